"""Traces of episodes as trees of spans (the episode, its turns, the tool call of each turn) with what is known of them.

This module writes nothing itself. What was searched or read are documents, as MLflow's retrieval scorers expect; gold answers, verdicts and
people's feedback are assessments. Episodes of a batch are played together and only their whole time is known, so it is divided evenly
among the turns; the attribute `timing` says so. Texts are capped: large traces crash MLflow's UI.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import READ, SEARCH
from slmsearch.episodes.episode import Episode, ToolResult, Turn
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.foreign import encodable
from slmsearch.judge.llm import judge_by_rule
from slmsearch.serving.api.caller import NOBODY, Caller

MAX_SPAN_CHARS = 4000
MAX_TURNS = 40
"""Maximum number of turns of an episode that become spans."""


USAGE = "mlflow.chat.tokenUsage"
"""Attribute of a turn by which MLflow adds up tokens; a turn reads all tokens before it."""
EXPECTED = "expected_response"
"""Name of the gold answer, as MLflow's own scorers look for it."""
CORRECT = "correct"
"""Name of a verdict."""


@dataclass(frozen=True)
class Assessment:
    """A gold answer, or what somebody holds of an episode."""

    name: str
    value: str | bool | float
    source: str
    """Name of the rule, the model or the group of people."""
    by: Literal["CODE", "LLM_JUDGE", "HUMAN"] = "CODE"
    """MLflow's kind of source."""
    id: str = ""
    """Id of the feedback, so that it is recorded once."""
    created: int | None = None
    """Time at which it was said, in seconds since the epoch; None for now."""


@dataclass(frozen=True)
class Span:
    """One span of a trace; times are seconds from the start of the trace."""

    name: str
    kind: str
    """MLflow's span type."""
    inputs: Mapping[str, object]
    outputs: Mapping[str, object] | list[dict[str, object]] | str
    """A mapping; of a retriever its documents; of an episode the answer alone, which MLflow's scorers read as the response."""
    start_s: float
    end_s: float
    attributes: Mapping[str, object] = field(default_factory=dict)
    children: tuple["Span", ...] = ()
    assessments: tuple[Assessment, ...] = ()
    """Gold answer, verdicts and feedback of the episode, at the root."""
    caller: Caller = NOBODY
    """User, session and span of the client that asked, at the root."""


def episode_span(episode: Episode, row: EpisodeRow, judge: str = "") -> Span:
    """Render an episode as the root span of its trace.

    Args:
        episode: the row's episode.
        row: with its verdict.
        judge: name of the model that was asked where no rule decides; empty if the verdicts are those of typed match.
    """
    graded = {"reward": row.reward, "reward_parts": row.reward_parts, "stop_reason": row.stop_reason}
    return _root_span(episode, row.question, graded, _assess(row, judge))


def _assess(row: EpisodeRow, judge: str) -> tuple[Assessment, ...]:
    expected = Assessment(EXPECTED, _cap(row.gold), "questions")
    if row.failed:
        return (expected,)
    asked = Question(row.question_id, row.question, row.gold)
    judged = judge and not row.typed_match and judge_by_rule(asked, row.answer) is None
    correct = Assessment(CORRECT, bool(row.correct), _cap(judge) if judged else "typed match", "LLM_JUDGE" if judged else "CODE")
    return expected, correct, Assessment("exact_match", bool(row.exact_match), "exact match"), Assessment("f1", row.f1, "token F1")


WITHIN = "within"
"""Input of a span: restrictions of its question to some pages."""


def served_span(episode: Episode, question: str, caller: Caller = NOBODY, within: str = "") -> Span:
    """Render an episode of the service, whose correctness is unknown, as the root span of its trace; `within` restricts its pages."""
    root = _root_span(episode, question, {"stop_reason": str(episode.stop_reason)})
    return replace(root, caller=caller, inputs={**root.inputs, WITHIN: within} if within else root.inputs)


def _root_span(
    episode: Episode,
    question: str,
    attributes: Mapping[str, object],
    assessments: tuple[Assessment, ...] = (),
) -> Span:
    turns = episode.turns[:MAX_TURNS]
    share = episode.seconds / max(1, len(turns))
    return Span(
        name="episode",
        kind="AGENT",
        inputs={"question": _cap(question)},
        outputs=_cap(episode.answer or ""),
        start_s=0.0,
        end_s=episode.seconds,
        attributes={**attributes, "timing": "batch time, divided evenly among turns"},
        children=tuple(_turn_span(episode, i, i * share, (i + 1) * share) for i in range(len(turns))),
        assessments=assessments,
    )


def trace_tags(row: EpisodeRow) -> dict[str, str]:
    """Return the tags by which people filter traces."""
    outcome = "failed" if row.failed else "right" if row.correct else "wrong"
    return {
        "question_id": row.question_id,
        "kind": row.kind,
        "source": row.source,
        "stop_reason": row.stop_reason,
        "outcome": outcome,
        "failure_mode": row.failure_mode,
    }


def _turn_span(episode: Episode, number: int, start_s: float, end_s: float) -> Span:
    turn = episode.turns[number]
    read = len(episode.prompt_ids) + len(turn.context_ids)
    read += sum(len(before.context_ids) + len(before.sampled_ids) for before in episode.turns[:number])
    written = len(turn.sampled_ids)
    usage = {USAGE: {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}} if written else {}
    return Span(
        name=f"turn {number + 1}",
        kind="CHAT_MODEL",
        inputs={"turn": number + 1},
        outputs={"text": _cap(turn.text)},
        start_s=start_s,
        end_s=end_s,
        attributes=usage,
        children=(_tool_span(turn, (start_s + end_s) / 2, end_s),) if turn.result or turn.call or turn.program else (),
    )


def _tool_span(turn: Turn, start_s: float, end_s: float) -> Span:
    documents = _documents(turn)
    asked = {"argument": _cap(turn.call.argument)} if turn.call else {"program": _cap(turn.program or "")}
    return Span(
        name=turn.call.name if turn.call else "malformed" if turn.told else "program",
        kind="TOOL" if documents is None else "RETRIEVER",
        inputs=asked,
        outputs={"text": _cap(turn.result.text if turn.result else "")} if documents is None else documents,
        start_s=start_s,
        end_s=end_s,
        attributes={"served": bool(turn.result and turn.result.served)},
    )


def _documents(turn: Turn) -> list[dict[str, object]] | None:
    """Return the pages that a search found, each with its part of the result, or the section that was read; None for another call."""
    call, result = turn.call, turn.result
    if call is None or result is None or not result.served:
        return None
    if call.name == READ and result.section_ids:
        return [_document(result.section_ids[0], result.text, {"page": result.page_ids[0]} if result.page_ids else {})]
    if call.name != SEARCH:
        return None
    texts = _split(result)
    scores = [{"score": score} for score in result.scores] or [{} for _ in result.page_ids]
    found = zip(result.page_ids, scores, strict=True)
    return [_document(page, texts.get(page, ""), {"rank": rank, **score}) for rank, (page, score) in enumerate(found, start=1)]


def _split(result: ToolResult) -> dict[str, str]:
    """Split the result of a search by page: first the pages that are shown with a text, then a line for each of the others."""
    shown = [page for page in result.page_ids if any(name == page or name.startswith(f"{page}:") for name in result.section_ids)]
    others = [page for page in result.page_ids if page not in shown]
    lines = result.text.split("\n")
    listed = lines[len(lines) - len(others) :]
    text, begins = "\n".join(lines[: len(lines) - len(others)]), list[int]()
    for page in shown:
        found = re.compile(rf"(?:\A|\n\n){re.escape(page)}[:#]").search(text, begins[-1] if begins else 0)
        begins.append(found.start() if found else len(text))
    parts = [text[begin:end].strip() for begin, end in pairwise([*begins, len(text)])]
    return dict(zip(shown, parts, strict=True)) | dict(zip(others, listed, strict=False))


def _document(uri: str, text: str, metadata: Mapping[str, object]) -> dict[str, object]:
    return {"id": encodable(uri), "page_content": _cap(text), "metadata": {"doc_uri": encodable(uri), **metadata}}


def _cap(text: str) -> str:
    clean = encodable(text)
    return clean if len(clean) <= MAX_SPAN_CHARS else f"{clean[:MAX_SPAN_CHARS]} … ({len(clean)} characters)"
