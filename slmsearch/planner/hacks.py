"""Reward hacks: ways in which a plan could earn without planning, found in its text.

A refused plan is graded as a wrong one (`reward.py`), and each kind is counted. Plans of one subproblem are no hack by
themselves, a good rewording may be worth something; they are counted beside these.
"""

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from slmsearch.planner.numbers import count_quantities, find_numbers, implied_numbers
from slmsearch.planner.plan import REFERENCE, Plan, Subproblem

RESTATED_FRAC = 0.9
"""Share of the problem's words that makes a subproblem the problem itself."""
_WORDS = re.compile(r"\w+")


class Hack(StrEnum):
    """What a filter refuses."""

    LEAKED = "leaked"
    """A number that is neither in the problem nor implied by its words nor an earlier answer: the planner did the sum itself."""
    RESTATED = "restated"
    """A subproblem is the problem itself."""
    TRIVIAL = "trivial"
    """A subproblem leaves nothing to compute."""
    DUPLICATED = "duplicated"
    """Two subproblems ask the same."""


def find_hacks(problem: str, plan: Plan) -> tuple[Hack, ...]:
    """Find what the filters refuse in a plan; a plan that leaves everything to the worker hides nothing."""
    if not plan.should_decompose:
        return ()
    questions = [part.question for part in plan.subproblems]
    found = {
        Hack.LEAKED: _leaks(problem, [*questions, plan.combine]),
        Hack.RESTATED: any(_restates(problem, question) for question in questions),
        Hack.TRIVIAL: any(map(_is_trivial, plan.subproblems)),
        Hack.DUPLICATED: len({" ".join(question.casefold().split()).rstrip("?. ") for question in questions}) < len(questions),
    }
    return tuple(hack for hack, is_there in found.items() if is_there)


def _leaks(problem: str, texts: Sequence[str]) -> bool:
    """Say whether a number in the texts cannot come from the problem."""
    allowed = find_numbers(problem) | implied_numbers(problem) | {1}
    return any(find_numbers(REFERENCE.sub(" ", text)) - allowed for text in texts)


def _restates(problem: str, question: str) -> bool:
    wanted, has = (Counter(_WORDS.findall(text.casefold())) for text in (problem, question))
    if not wanted or not find_numbers(problem) <= find_numbers(question):
        return False
    return sum((wanted & has).values()) >= RESTATED_FRAC * wanted.total()


def _is_trivial(part: Subproblem) -> bool:
    used = set(REFERENCE.findall(part.question)) | set(part.depends_on)
    return count_quantities(REFERENCE.sub(" ", part.question)) + len(used) < 2 and len(REFERENCE.findall(part.question)) < 2
