"""One evaluated question as a row: everything that tables, statistics and failure analysis need of an episode.

A row holds no token ids and no tool texts; the episode itself is stored beside it. Rows survive JSON unchanged,
so that a comparison can be repeated from stored rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from slmsearch.corpus.questions import Question
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.reward import Reward
from slmsearch.errors import EvaluationError
from slmsearch.judge import Verdict
from slmsearch.judge.exact import exact_match, f1, is_abstention, rouge_l, typed_match


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """A played and graded question. In a failed row only the first eight fields, `stop_reason` and `failure` have a meaning."""

    question_id: str
    kind: str
    hops: int
    source: str
    """Name of the source data set; empty where unknown."""
    cluster: str
    """First gold page, by which resampling is clustered; empty where no gold page is known."""
    question: str
    gold: str
    answer: str | None
    exact_match: float
    """Exact match as in SQuAD, for comparison: 1.0 or 0.0."""
    typed_match: float
    """Match by rule, which decides without a model: 1.0 or 0.0."""
    f1: float
    rouge_l: float | None
    """ROUGE-L of a long gold answer; None where the gold answer is short."""
    correct: float
    """Verdict of the judge: 1.0 or 0.0."""
    abstained: bool
    reward: float
    reward_parts: dict[str, float]
    turns: int
    tool_calls: int
    unserved_calls: int
    stop_reason: str
    first_hit: bool | None
    """True if the first gold page was among the hits of the first search; None where no gold page is known."""
    any_hit: bool | None
    """True if every gold page was among the hits of some search; None where no gold page is known."""
    gold_read: bool | None
    """True if every gold section was read; None where no gold section is known."""
    sampled_tokens: int
    completion_tokens: int
    """Tokens after the prompt, tool results included; for policies that give no ids, those written."""
    seconds: float
    failure_mode: str
    """Failure mode of a wrong episode (`FailureMode`); empty for right and failed ones."""
    failure: str
    """`boundary: message` of a failed row; empty otherwise."""
    measured: dict[str, float] = field(default_factory=dict)
    """Further metrics of the row, under their names in `docs/metrics.md`, which only one of the environments has."""
    told_turns: int = 0
    """Number of malformed messages that were answered with format feedback."""

    @property
    def failed(self) -> bool:
        """True where a service broke: the row is counted and left out of every mean."""
        return self.stop_reason == StopReason.FAILED


@dataclass(frozen=True, slots=True)
class Measures:
    """Measurements of an episode beside its reward; None where a value cannot be known."""

    first_hit: bool | None = None
    any_hit: bool | None = None
    gold_read: bool | None = None
    failure_mode: str = ""
    """Failure mode, if the answer is wrong."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name."""


NOT_MEASURED = Measures()


def make_row(
    question: Question, episode: Episode, verdict: Verdict, reward: Reward | None, measures: Measures = NOT_MEASURED
) -> EpisodeRow:
    """Make the row of one episode; an episode without a verdict counts as failed.

    The reward is None exactly when the episode failed or has no verdict.
    """
    failure = episode.failure if episode.stop_reason is StopReason.FAILED else verdict.failure
    failed = episode.stop_reason is StopReason.FAILED or verdict.correct is None
    if failed is not (reward is None):
        raise ValueError(f"question {question.id!r}: an episode has a reward exactly when it has not failed")
    correct = bool(verdict.correct) and not failed
    return EpisodeRow(
        question_id=question.id,
        kind=question.kind,
        hops=question.hops,
        source=question.source,
        cluster=question.page_ids[0] if question.page_ids else "",
        question=question.question,
        gold=question.answer,
        answer=episode.answer,
        exact_match=float(exact_match(episode.answer, question.answers)),
        typed_match=float(typed_match(episode.answer, question.answers)),
        f1=f1(episode.answer, question.answers),
        rouge_l=rouge_l(episode.answer, question.answers),
        correct=float(correct),
        abstained=is_abstention(episode.answer),
        reward=reward.total if reward else 0.0,
        reward_parts=dict(reward.parts) if reward else {},
        turns=len(episode.turns),
        tool_calls=len(episode.calls),
        unserved_calls=episode.num_unserved,
        stop_reason=(StopReason.FAILED if failed else episode.stop_reason).value,
        first_hit=measures.first_hit,
        any_hit=measures.any_hit,
        gold_read=measures.gold_read,
        sampled_tokens=episode.sampled_tokens,
        completion_tokens=max(len(episode.completion_ids), episode.sampled_tokens),
        seconds=episode.seconds,
        failure_mode="" if failed or correct else measures.failure_mode,
        failure=(failure or "unknown: no cause given") if failed else "",
        measured={} if failed else dict(measures.measured),
        told_turns=episode.num_told,
    )


def row_from_dict(values: Mapping[str, Any]) -> EpisodeRow:
    """Convert stored values back to a row.

    Raises:
        EvaluationError: a field is missing or unknown.
    """
    stored = values if isinstance(values, Mapping) else {}
    expected = {column.name for column in fields(EpisodeRow)}
    if set(stored) != expected:
        odd = ", ".join(sorted(set(stored) ^ expected))
        raise EvaluationError(f"stored row has missing or unknown fields ({odd}); evaluate again with this version")
    return EpisodeRow(**stored)
