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
_ALWAYS = frozenset({1})


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
    found = []
    if leaked_numbers(problem, plan):
        found.append(Hack.LEAKED)
    if any(_restates(problem, part.question) for part in plan.subproblems):
        found.append(Hack.RESTATED)
    if any(_is_trivial(part) for part in plan.subproblems):
        found.append(Hack.TRIVIAL)
    if max(Counter(_normalise(part.question) for part in plan.subproblems).values(), default=0) > 1:
        found.append(Hack.DUPLICATED)
    return tuple(found)


def leaked_numbers(problem: str, plan: Plan) -> set[str]:
    """Return the numbers in a plan's questions and in `combine` that cannot come from the problem."""
    allowed = find_numbers(problem) | implied_numbers(problem) | _ALWAYS
    texts = [*(part.question for part in plan.subproblems), plan.combine]
    return {str(number) for text in texts for number in find_numbers(REFERENCE.sub(" ", text)) - allowed}


def _restates(problem: str, question: str) -> bool:
    wanted, has = Counter(_words(problem)), Counter(_words(question))
    if not wanted or not find_numbers(problem) <= find_numbers(question):
        return False
    return sum((wanted & has).values()) >= RESTATED_FRAC * wanted.total()


def _is_trivial(part: Subproblem) -> bool:
    used = set(REFERENCE.findall(part.question)) | set(part.depends_on)
    return count_quantities(REFERENCE.sub(" ", part.question)) + len(used) < 2 and len(REFERENCE.findall(part.question)) < 2


def _words(text: str) -> Sequence[str]:
    return _WORDS.findall(text.casefold())


def _normalise(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?. ")
