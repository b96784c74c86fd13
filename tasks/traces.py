"""Traces of episodes as trees of spans: the episode, its turns, and the tool call of each turn. This module writes nothing itself.

Episodes of a batch are played together and only their whole time is known, so it is divided evenly among the turns; the attribute `timing`
says so. Texts are capped: large traces crash MLflow's UI.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.episodes.episode import Episode, Turn
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.foreign import encodable

MAX_SPAN_CHARS = 4000
MAX_TURNS = 40
"""Maximum number of turns of an episode that become spans."""


@dataclass(frozen=True)
class Span:
    """One span of a trace; times are seconds from the start of the trace."""

    name: str
    kind: str
    """MLflow's span type."""
    inputs: Mapping[str, object]
    outputs: Mapping[str, object]
    start_s: float
    end_s: float
    attributes: Mapping[str, object] = field(default_factory=dict)
    children: tuple["Span", ...] = ()


def episode_span(episode: Episode, row: EpisodeRow) -> Span:
    """Render an episode as the root span of its trace."""
    graded = {"reward": row.reward, "reward_parts": row.reward_parts, "stop_reason": row.stop_reason}
    return _root_span(episode, row.question, {"gold": _cap(row.gold)}, graded)


def served_span(episode: Episode, question: str) -> Span:
    """Render an episode of the service, whose correctness is unknown, as the root span of its trace."""
    return _root_span(episode, question, {}, {"stop_reason": str(episode.stop_reason)})


def _root_span(episode: Episode, question: str, outputs: Mapping[str, object], attributes: Mapping[str, object]) -> Span:
    turns = episode.turns[:MAX_TURNS]
    share = episode.seconds / max(1, len(turns))
    return Span(
        name="episode",
        kind="AGENT",
        inputs={"question": _cap(question)},
        outputs={"answer": _cap(episode.answer or ""), **outputs},
        start_s=0.0,
        end_s=episode.seconds,
        attributes={**attributes, "timing": "batch time, divided evenly among turns"},
        children=tuple(_turn_span(turn, i, i * share, (i + 1) * share) for i, turn in enumerate(turns)),
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


def _turn_span(turn: Turn, number: int, start_s: float, end_s: float) -> Span:
    return Span(
        name=f"turn {number + 1}",
        kind="CHAT_MODEL",
        inputs={"turn": number + 1},
        outputs={"text": _cap(turn.text)},
        start_s=start_s,
        end_s=end_s,
        attributes={"sampled_tokens": len(turn.sampled_ids), "context_tokens": len(turn.context_ids)},
        children=(_tool_span(turn, (start_s + end_s) / 2, end_s),) if turn.result or turn.call or turn.program else (),
    )


def _tool_span(turn: Turn, start_s: float, end_s: float) -> Span:
    text = turn.result.text if turn.result else ""
    asked = {"argument": _cap(turn.call.argument)} if turn.call else {"program": _cap(turn.program or "")}
    return Span(
        name=turn.call.name if turn.call else "malformed" if turn.told else "program",
        kind="RETRIEVER" if turn.call and turn.call.name == SEARCH else "TOOL",
        inputs=asked,
        outputs={"text": _cap(text)},
        start_s=start_s,
        end_s=end_s,
        attributes={"served": bool(turn.result and turn.result.served)},
    )


def _cap(text: str) -> str:
    clean = encodable(text)
    return clean if len(clean) <= MAX_SPAN_CHARS else f"{clean[:MAX_SPAN_CHARS]} … ({len(clean)} characters)"
