"""One evaluated question as a row: everything the tables, the statistics and the failure analysis need of an episode.

A row holds no token ids and no tool texts; the episode itself is stored beside it. Rows survive JSON unchanged,
so that a comparison can be replayed from what was stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from slmsearch.corpus.questions import Question
from slmsearch.errors import EvaluationError
from slmsearch.judge import Verdict
from slmsearch.judge.exact import exact_match, f1, is_abstention, is_unanswerable, typed_match
from slmsearch.searcher.episode import Episode, StopReason, Turn
from slmsearch.searcher.evidence import gather_evidence, opened_pages, read_sections, shown_pages
from slmsearch.searcher.reward import Reward
from slmsearch.searcher.tools import SEARCH


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """A played and graded question. Of a failed row only the first seven fields, `stop_reason` and `failure` mean anything."""

    question_id: str
    kind: str
    hops: int
    cluster: str
    """First gold page, by which resampling is clustered; empty where no gold page is known."""
    question: str
    gold: str
    answer: str | None
    exact_match: float
    """SQuAD's, for comparison: 1.0 or 0.0."""
    typed_match: float
    """What decides by rule: 1.0 or 0.0."""
    f1: float
    correct: float
    """The judge's verdict: 1.0 or 0.0."""
    abstained: bool
    reward: float
    reward_parts: dict[str, float]
    turns: int
    tool_calls: int
    unserved_calls: int
    stop_reason: str
    first_hit: bool | None
    """The first gold page was among the hits of the first search; None where no gold page is known."""
    any_hit: bool | None
    """Every gold page was among the hits of some search; None where no gold page is known."""
    gold_read: bool | None
    """Every gold section was read; None where no gold section is known."""
    sampled_tokens: int
    completion_tokens: int
    """Tokens after the prompt, tool results included; for policies that give no ids, those written."""
    seconds: float
    failure_mode: str
    """Where a wrong episode broke (`FailureMode`); empty for right and failed ones."""
    failure: str
    """`boundary: message` of a failed row; empty otherwise."""
    measured: dict[str, float] = field(default_factory=dict)
    """Further metrics of the row, under their names in `docs/metrics.md`; what only one of the environments has."""
    told_turns: int = 0
    """Malformed messages that were answered with what is wrong with them."""

    @property
    def failed(self) -> bool:
        """True where a service broke: the row is counted and left out of every mean."""
        return self.stop_reason == StopReason.FAILED


def make_row(question: Question, episode: Episode, verdict: Verdict, reward: Reward | None) -> EpisodeRow:
    """Make the row of one episode; an episode whose verdict is missing is as failed as one that was not played.

    The reward is None exactly when the episode failed or has no verdict.
    """
    failure = episode.failure if episode.stop_reason is StopReason.FAILED else verdict.failure
    failed = episode.stop_reason is StopReason.FAILED or verdict.correct is None
    if failed is not (reward is None):
        raise ValueError(f"question {question.id!r}: an episode has a reward exactly when it has not failed")
    evidence = gather_evidence(question, episode)
    correct = bool(verdict.correct) and not failed
    return EpisodeRow(
        question_id=question.id,
        kind=question.kind,
        hops=question.hops,
        cluster=question.page_ids[0] if question.page_ids else "",
        question=question.question,
        gold=question.answer,
        answer=episode.answer,
        exact_match=float(exact_match(episode.answer, question.answers)),
        typed_match=float(typed_match(episode.answer, question.answers)),
        f1=f1(episode.answer, question.answers),
        correct=float(correct),
        abstained=is_abstention(episode.answer),
        reward=reward.total if reward else 0.0,
        reward_parts=dict(reward.parts) if reward else {},
        turns=len(episode.turns),
        tool_calls=len(episode.calls),
        unserved_calls=episode.num_unserved,
        stop_reason=(StopReason.FAILED if failed else episode.stop_reason).value,
        first_hit=evidence.first_hit,
        any_hit=evidence.any_hit,
        gold_read=evidence.gold_read,
        sampled_tokens=episode.sampled_tokens,
        completion_tokens=max(len(episode.completion_ids), episode.sampled_tokens),
        seconds=episode.seconds,
        failure_mode="" if failed or correct else find_failure_mode(question, episode).value,
        failure=(failure or "unknown: no cause given") if failed else "",
        told_turns=episode.num_told,
    )


def row_from_dict(values: Mapping[str, Any]) -> EpisodeRow:
    """Turn stored values back into a row.

    Raises:
        EvaluationError: a field is missing or unknown.
    """
    stored = values if isinstance(values, Mapping) else {}
    expected = {column.name for column in fields(EpisodeRow)}
    if set(stored) != expected:
        odd = ", ".join(sorted(set(stored) ^ expected))
        raise EvaluationError(f"stored row has missing or unknown fields ({odd}); evaluate again with this version")
    return EpisodeRow(**stored)


class FailureMode(StrEnum):
    """Where a wrong episode broke; `find_failure_mode` defines each."""

    MALFORMED = "malformed"
    CUT_OFF = "cut_off"
    NO_SEARCH = "no_search"
    PAGE_MISSED = "page_missed"
    SECTION_MISSED = "section_missed"
    STOPPED_EARLY = "stopped_early"
    MISREAD = "misread"
    INVENTED = "invented"
    ABSTAINED_WRONGLY = "abstained_wrongly"


@dataclass(frozen=True, slots=True)
class _Goal:
    """One thing to be read, in the order of the hops."""

    page_id: str
    section_id: str | None

    def reached_by(self, turn: Turn) -> bool:
        if self.section_id is None:
            return bool(read_sections(turn)) and self.page_id in opened_pages(turn)
        return self.section_id in read_sections(turn)


def find_failure_mode(question: Question, episode: Episode) -> FailureMode:
    """Say where an episode that is known to be wrong broke: the first of these that applies.

    1. `malformed`: it ended on text that is neither a call nor an answer.
    2. `cut_off`: it ran out of turns, tokens or time before answering.
    3. `invented`: it gave an answer to a question that has none.
    4. `abstained_wrongly`: it gave up on a question that has an answer.
    5. `no_search`: it answered without a single search and without having read anything.
    6. `misread`: it had read all gold sections, and still answered wrongly.
    7. With some gold sections read and others not: `stopped_early` if it made no call after the last one, otherwise what the calls
       made for the next hop came to, as in 8.
    8. With the next gold section unread: `page_missed` if no search showed its page, `section_missed` if the page was opened
       or something else was read instead, `invented` if nothing was read at all: an answer without evidence.

    Questions that name no gold section are judged by their gold pages (a page counts as read once a section of it was); without
    those, an answer after reading is `misread` and one without `invented`.

    Raises:
        ValueError: the episode failed, so nothing can be said about the policy.
    """
    if episode.stop_reason is StopReason.FAILED:
        raise ValueError(f"episode of question {episode.question_id!r} failed: it is no evidence about the policy")
    if episode.stop_reason is StopReason.MALFORMED:
        return FailureMode.MALFORMED
    if episode.stop_reason is not StopReason.ANSWERED:
        return FailureMode.CUT_OFF
    if is_unanswerable(question.answers):
        return FailureMode.INVENTED
    if is_abstention(episode.answer):
        return FailureMode.ABSTAINED_WRONGLY
    searched = any(call.name == SEARCH for call in episode.calls)
    has_read = any(read_sections(turn) for turn in episode.turns)
    if not searched and not has_read:
        return FailureMode.NO_SEARCH
    goals = [_Goal(_page_of(section_id, question.page_ids), section_id) for section_id in question.section_ids]
    goals = goals or [_Goal(page_id, None) for page_id in question.page_ids]
    if not goals:
        return FailureMode.MISREAD if has_read else FailureMode.INVENTED
    return _first_missing_hop(goals, episode.turns)


def _page_of(section_id: str, page_ids: Sequence[str]) -> str:
    # Page ids may hold `:` themselves, so a gold page that fits is believed before the text is cut at the last colon.
    fitting = [page_id for page_id in page_ids if section_id.startswith(f"{page_id}:")]
    return max(fitting, key=len) if fitting else section_id.rpartition(":")[0]


def _first_missing_hop(goals: Sequence[_Goal], turns: Sequence[Turn]) -> FailureMode:
    missing = next((goal for goal in goals if not any(goal.reached_by(turn) for turn in turns)), None)
    if missing is None:
        return FailureMode.MISREAD
    reads = [i for i, turn in enumerate(turns) if any(goal.reached_by(turn) for goal in goals)]
    tries = turns[reads[-1] + 1 :] if reads else turns
    if reads and not any(turn.call is not None or turn.program is not None for turn in tries):
        return FailureMode.STOPPED_EARLY
    found = any(missing.page_id in (*shown_pages(turn), *opened_pages(turn)) for turn in turns)
    if not found:
        return FailureMode.PAGE_MISSED
    # Found, but never read. Having read nothing whatever means that the answer came from nowhere.
    return FailureMode.SECTION_MISSED if any(opened_pages(turn) for turn in turns) else FailureMode.INVENTED
