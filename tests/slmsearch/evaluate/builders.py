"""Builders of questions, episodes and rows that say only what a test is about."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from slmsearch.config import DecisionConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.reward import REWARD_PARTS
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.episodes.rows import EpisodeRow

ONE_HOP = Question("q1", "When was Ada born?", "1815", (), ("ada",), ("ada:life",), 1, "one_hop")
TWO_HOP = Question("q2", "Where was the author of Notes born?", "London", (), ("notes", "ada"), ("notes:author", "ada:life"), 2, "two_hop")


class Tolerant(DecisionConfig):
    """A rule under which half of the pairs may be lost."""

    max_failed_frac: ClassVar[float] = 0.5


PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
METRICS = frozenset(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
"""Names that the page about metrics lists."""


def is_documented(name: str) -> bool:
    """Say whether the page lists a metric, under `eval/` or not, or its family."""
    bare = name.removeprefix("eval/")
    return bare in METRICS or re.fullmatch(r"(errors|faults)/.+", bare) is not None


def search(*page_ids: str, served: bool = True) -> Turn:
    """A search that showed these pages."""
    return Turn("search", call=ToolCall(SEARCH, "query"), result=ToolResult("hits", served, page_ids))


def view(page_id: str) -> Turn:
    """A view of a page."""
    return Turn("view", call=ToolCall(VIEW, page_id), result=ToolResult("sections", True, (page_id,), (f"{page_id}:life",)))


def read(section_id: str, served: bool = True) -> Turn:
    """A read of a section."""
    shown = ((section_id.partition(":")[0],), (section_id,)) if served else ((), ())
    return Turn("read", call=ToolCall(READ, section_id), result=ToolResult("text", served, *shown))


def say(answer: str) -> Turn:
    """An answer."""
    return Turn("answer", answer=answer)


def play(*turns: Turn, stop_reason: StopReason = StopReason.ANSWERED, question_id: str = "q1", **values: Any) -> Episode:
    """An episode of these turns."""
    return Episode(question_id, turns, stop_reason, **values)


ROW = EpisodeRow(
    question_id="q",
    kind="one_hop",
    hops=1,
    source="",
    cluster="page",
    question="When?",
    gold="1815",
    answer="1815",
    exact_match=1.0,
    typed_match=1.0,
    f1=1.0,
    rouge_l=None,
    correct=1.0,
    abstained=False,
    reward=0.96,
    reward_parts={**dict.fromkeys(REWARD_PARTS, 0.0), "correct": 1.0, "call_cost": -0.04},
    turns=3,
    tool_calls=2,
    unserved_calls=0,
    stop_reason="answered",
    first_hit=True,
    any_hit=True,
    gold_read=True,
    sampled_tokens=30,
    completion_tokens=90,
    seconds=0.5,
    failure_mode="",
    failure="",
)


def make(question_id: str, right: bool = True, **values: Any) -> EpisodeRow:
    """A row that is right or wrong; its cluster is its own unless given."""
    grade = 1.0 if right else 0.0
    graded = {"exact_match": grade, "typed_match": grade, "f1": grade, "correct": grade, "failure_mode": "" if right else "misread"}
    return replace(ROW, **{"question_id": question_id, "cluster": question_id, **graded, **values})


def fail(question_id: str, failure: str = "index: gone") -> EpisodeRow:
    """A row lost to a broken service."""
    return make(question_id, False, stop_reason="failed", failure=failure, reward_parts={}, reward=0.0, failure_mode="")
