"""The reward of an executed plan: a sum of named, weighted parts. Pure, like the searcher's.

    w_c correct + w_t (1 - tokens / max_tokens) + w_i independence

Only a right answer gets the last two parts. A text that is no plan, or does not end, gets the part `malformed`. Reward hacks are plans that
could earn reward without planning, and filters find them in the plan's text. A plan that a filter rejects is graded as wrong, even with a
right answer, and gets the part `hacked`, so that no hack earns more than an honest plan that fails. Each kind is counted. A plan of one
subproblem is not a hack, because a good rewording may help; such plans are counted separately.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from slmsearch.config import PlanRewardConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner.arithmetic import LABEL
from slmsearch.environments.planner.numbers import count_quantities, find_literals, find_numbers, implied_numbers, parse_number
from slmsearch.environments.planner.plan import REFERENCE, Fault, Plan, parse_plan
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.reward import Reward
from slmsearch.judge import Judge, Verdict
from slmsearch.retrieval.embed import Embedder

PLAN_RULES_VERSION = 3
"""Part of every evaluation and training key of the planner; raise it when a plan may be read, executed or graded differently."""
PLAN_PARTS = ("correct", "tokens", "independence", "malformed", "hacked", "format", "random")
"""Names of the parts, as they appear in `reward/<part>`; every plan's reward has all of them."""
RESTATED_FRAC = 0.9
"""Share of the problem's words from which on a subproblem counts as the problem itself."""
_WORDS = re.compile(r"\w+")


class Hack(StrEnum):
    """A reward hack that a filter rejects."""

    LEAKED = "leaked"
    """A number is neither in the problem nor implied by its words nor an earlier answer, or too long to read: the planner computed it."""
    RESTATED = "restated"
    """A subproblem is the problem itself."""
    TRIVIAL = "trivial"
    """A subproblem leaves nothing to compute."""
    DUPLICATED = "duplicated"
    """Two subproblems ask the same."""


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """The plan of an episode, with its faults and counts."""

    plan: Plan | None
    faults: tuple[Fault, ...]
    hacks: tuple[Hack, ...]
    worker_tokens: int

    @property
    def decomposed(self) -> bool:
        """True where the problem was split."""
        return self.plan is not None and self.plan.should_decompose

    @property
    def subproblems(self) -> int:
        """Number of parts of the plan."""
        return len(self.plan.subproblems) if self.plan else 0


def find_hacks(problem: str, plan: Plan) -> tuple[Hack, ...]:
    """Return the hacks that the filters find in a plan; a plan that leaves everything to the worker has none."""
    if not plan.should_decompose:
        return ()
    questions = [part.question for part in plan.subproblems]
    found = {
        Hack.LEAKED: _leaks(problem, [*questions, plan.combine]),
        Hack.RESTATED: any(_restates(problem, question) for question in questions),
        Hack.TRIVIAL: any(map(_is_trivial, questions)),
        Hack.DUPLICATED: len({" ".join(question.casefold().split()).rstrip("?. ") for question in questions}) < len(questions),
    }
    return tuple(hack for hack, is_there in found.items() if is_there)


def _leaks(problem: str, texts: Sequence[str]) -> bool:
    """Return whether a number in the texts cannot come from the problem."""
    allowed = find_numbers(problem) | find_literals(problem) | implied_numbers(problem) | {Fraction(1)}
    named = {number for text in texts for bare in [REFERENCE.sub(" ", text)] for number in find_numbers(bare) | find_literals(bare)}
    return None in named or bool(named - allowed)


def _restates(problem: str, question: str) -> bool:
    wanted, has = (Counter(_WORDS.findall(text.casefold())) for text in (problem, question))
    if not wanted or not find_numbers(problem) <= find_numbers(question):
        return False
    return sum((wanted & has).values()) >= RESTATED_FRAC * wanted.total()


def _is_trivial(question: str) -> bool:
    return count_quantities(REFERENCE.sub(" ", question)) + len(REFERENCE.findall(question)) < 2


def compared_texts(plan: Plan) -> list[str]:
    """Return the texts whose independence is scored: the questions, without labels, that `combine` refers to, directly or through others.

    Parts that nothing refers to and labels are free text, which would earn independence without planning.
    """
    left = {part.id: part.question for part in plan.subproblems}
    texts, needed = list[str](), REFERENCE.findall(plan.combine)
    while needed:
        if (question := left.pop(needed.pop(), None)) is not None:
            texts.append(LABEL.sub("", question).strip())
            needed += REFERENCE.findall(question)
    return texts


def inspect_episode(episode: Episode, problem: str) -> PlannedEpisode:
    """Read the plan of an episode again; return its faults, hacks and the worker's tokens."""
    text = episode.turns[0].text if episode.turns else ""
    parsed = parse_plan(text)
    hacks = find_hacks(problem, parsed.plan) if parsed.plan else ()
    tokens = sum(turn.result.tokens for turn in episode.turns if turn.result is not None)
    return PlannedEpisode(parsed.plan, parsed.faults, hacks, tokens)


def score_plan(
    episode: Episode,
    planned: PlannedEpisode,
    correct: bool,
    independence: float,
    config: PlanRewardConfig,
    draw: float = 0.0,
) -> Reward:
    """Score an episode that was executed to its end.

    Args:
        episode: any episode that did not fail.
        planned: from `inspect_episode`.
        correct: whether the final answer is right, and no filter refuses the plan.
        independence: mean dissimilarity of the compared texts, 0 to 1; 0 where the worker alone answers right.
        config: the weights.
        draw: uniform in [0, 1), the whole reward where `config.kind` is `random`.

    Raises:
        ValueError: the episode failed. An outage has no reward: leave the episode out of its group.
    """
    if episode.stop_reason is StopReason.FAILED:
        raise ValueError(f"episode of problem {episode.question_id!r} failed ({episode.failure}): leave it out, it has no reward")
    parts = dict.fromkeys(PLAN_PARTS, 0.0)
    well_formed = episode.stop_reason is StopReason.ANSWERED
    if config.kind == "random":
        parts["random"] = draw
    elif config.kind == "format_only":
        parts["format"] = float(well_formed)
    else:
        parts["malformed"] = 0.0 if well_formed else config.malformed
        parts["hacked"] = config.hacked if planned.hacks else 0.0
        if correct:
            spent = episode.sampled_tokens + planned.worker_tokens
            parts["correct"] = 1.0
            parts["tokens"] = config.tokens * max(0.0, 1.0 - spent / config.max_tokens)
            parts["independence"] = config.independence * independence
    return Reward(total=sum(parts.values()), parts=parts)


class NumberJudge:
    """A judge that compares exact values: `3.50`, `3.5` and `7/2` are one number, `35` is another.

    A model decides only where there is no number.
    """

    def __init__(self, fallback: Judge | None = None) -> None:
        """Bind the judge for gold or answers that are not numbers; None: they count as wrong."""
        self._fallback = fallback

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`."""
        verdicts = [self._decide(question, answer) for question, answer in items]
        open_ = [i for i, verdict in enumerate(verdicts) if verdict is None]
        if self._fallback is not None and open_:
            for i, verdict in zip(open_, self._fallback.judge([items[i] for i in open_]), strict=True):
                verdicts[i] = verdict
        return [verdict or Verdict(False) for verdict in verdicts]

    def _decide(self, question: Question, answer: str | None) -> Verdict | None:
        """Decide by rule; None where gold or answer is not a number."""
        if not answer:
            return Verdict(False)
        given, gold = parse_number(answer), [parse_number(text) for text in question.answers]
        if given is None or any(value is None for value in gold):
            return None
        return Verdict(given in gold)


class Independence:
    """A measure of how independent the parts of a plan are: 1 minus the mean cosine of their embeddings, from 0 (all the same) to 1."""

    def __init__(self, embedder: Embedder) -> None:
        """Bind an embedder that remembers its embeddings: the plans of a group have similar parts."""
        self.name = f"{embedder.id}@{embedder.revision}"
        """Part of every evaluation and training key."""
        self._embedder = embedder

    def score(self, plans: Sequence[Sequence[str]]) -> list[float]:
        """Score the texts of each plan (`compared_texts`); fewer than two score 0."""
        texts = list(dict.fromkeys(text for plan in plans if len(plan) > 1 for text in plan))
        if not texts:
            return [0.0] * len(plans)
        vectors = dict(zip(texts, self._embedder.encode_queries(texts), strict=True))
        return [_spread(np.stack([vectors[text] for text in plan])) if len(plan) > 1 else 0.0 for plan in plans]


def _spread(vectors: NDArray[np.float32]) -> float:
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    return float(np.clip(1.0 - cosines.astype(np.float64), 0.0, 1.0).mean())
