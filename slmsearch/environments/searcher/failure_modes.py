"""Failure modes of wrong episodes of the searcher."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.evidence import gather_evidence, opened_pages, read_sections, shown_pages
from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.episodes.episode import Episode, StopReason, Turn
from slmsearch.episodes.rows import Measures
from slmsearch.judge.exact import is_abstention, is_unanswerable

SURENESS = ("answer/logprob", "search/top_score")
"""Metrics by which a policy's answers are ranked, the surest first: log-probability of the answer's turn (nats), of policies without a
model the score of the first search's best page."""


class FailureMode(StrEnum):
    """The failure mode of a wrong episode; `find_failure_mode` defines each."""

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
    """A section or page to be read, in the order of the hops."""

    page_id: str
    section_id: str | None

    def reached_by(self, turn: Turn) -> bool:
        if self.section_id is None:
            return bool(read_sections(turn)) and self.page_id in opened_pages(turn)
        return self.section_id in read_sections(turn)


def measure_episode(question: Question, episode: Episode) -> Measures:
    """Measure the pages found and sections read in an episode, its failure mode if its answer is wrong, and how sure the answer is."""
    found = gather_evidence(question, episode)
    return Measures(found.first_hit, found.any_hit, found.gold_read, find_failure_mode(question, episode).value, _sureness(episode))


def _sureness(episode: Episode) -> dict[str, float]:
    """Return those of `SURENESS` that are known of an answer, rounded to 1e-4; what is not finite ranks none and cannot be stored."""
    if episode.answer is None or is_abstention(episode.answer):
        return {}
    logprobs = episode.turns[-1].sampled_logprobs
    scores = next((turn.result.scores for turn in episode.turns if turn.result is not None and turn.result.scores), ())
    known = zip(SURENESS, (sum(logprobs) if logprobs else None, max(scores, default=None)), strict=True)
    return {name: round(value, 4) for name, value in known if value is not None and isfinite(value)}


def find_failure_mode(question: Question, episode: Episode) -> FailureMode:
    """Return the failure mode of a wrong episode: the first of these that applies.

    1. `malformed`: it ended on text that is neither a call nor an answer.
    2. `cut_off`: it ran out of turns, tokens or time before answering.
    3. `invented`: it gave an answer to a question that has none.
    4. `abstained_wrongly`: it gave up on a question that has an answer.
    5. `no_search`: it answered without a single search and without having read anything.
    6. `misread`: it had read all gold sections, and still answered wrongly.
    7. With some gold sections read and others not: `stopped_early` if it made no call after the last one, otherwise the result of the
       calls for the next hop, as in 8.
    8. With the next gold section unread: `page_missed` if no search showed its page, `section_missed` if the page was opened
       or something else was read instead, `invented` if nothing was read at all: an answer without evidence.

    Questions that name no gold section are judged by their gold pages (a page counts as read once a section of it was); without
    those, an answer after reading is `misread` and one without `invented`.

    Raises:
        ValueError: the episode failed, so it says nothing about the policy.
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
    # Page ids may hold `:` themselves, so a matching gold page takes precedence over a cut at the last colon.
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
    # Found, but never read. Without any read the answer has no source.
    return FailureMode.SECTION_MISSED if any(opened_pages(turn) for turn in turns) else FailureMode.INVENTED
