"""Demonstrations from gold sections: for any corpus whose questions name the sections that answer them.

The demonstrator searches for the question, reads the gold section and answers, through the tools and the index that the policy will
use. It writes only what a policy could have known: a page that a search showed, a section that a hint or a list of sections showed.
Questions it cannot play so are left out and counted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.environment import Demonstration
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.parsing import render_answer, render_call
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

NO_GOLD, NOT_FOUND, NOT_HINTED, NO_SECTION = "no gold section", "page not found", "section not hinted", "no such section"
BATCH = 64
"""Questions whose searches are served together."""


class Unplayable(Exception):
    """A question cannot be demonstrated; the message is the reason that is counted."""


def demonstrate_gold(questions: Sequence[Question], toolbox: Toolbox) -> tuple[list[tuple[Question, Demonstration]], Counter[str]]:
    """Play questions by their gold sections.

    Args:
        questions: those without gold sections are left out.
        toolbox: tools over their corpus, as the policy will have them.

    Returns:
        Demonstrated questions in order, and how many were left out for which reason.
    """
    left_out: Counter[str] = Counter()
    found: list[tuple[Question, Demonstration]] = []
    sampling_mode = [question for question in questions if question.section_ids and question.answer != UNKNOWN_ANSWER]
    left_out[NO_GOLD] = len(questions) - len(sampling_mode)
    for start in range(0, len(sampling_mode), BATCH):
        batch = sampling_mode[start : start + BATCH]
        searched = toolbox.serve([ToolCall(SEARCH, question.question) for question in batch])
        for question, result in zip(batch, searched, strict=True):
            try:
                found.append((question, _play(question, result, toolbox)))
            except Unplayable as reason:
                left_out[str(reason)] += 1
    return found, +left_out


def _play(question: Question, searched: ToolResult, toolbox: Toolbox) -> Demonstration:
    turns = [(render_call(ToolCall(SEARCH, question.question)), searched.text)]
    for section_id in question.section_ids:
        section = toolbox.library.section(section_id)
        if section is None:
            raise Unplayable(NO_SECTION)
        if section.page_id not in searched.page_ids:
            searched = _search_again(section.page_id, turns, toolbox)
        if not toolbox.section_hints:
            turns += _go_through(VIEW, section.page_id, toolbox, partial(_lists, section_id))
        elif f"({section_id})" not in searched.text:
            raise Unplayable(NOT_HINTED)
        turns += _go_through(READ, section_id, toolbox, partial(_holds_answer, question))
    return Demonstration(question.question, (*turns, (render_answer(question.answer), "")))


def _search_again(page_id: str, turns: list[tuple[str, str]], toolbox: Toolbox) -> ToolResult:
    """Search for a page by its title, which must stand in what was read: nothing else could have led there."""
    page = toolbox.library.page(page_id)
    if page is None or len(turns) == 1 or page.title not in turns[-1][1]:
        raise Unplayable(NOT_FOUND)
    call = ToolCall(SEARCH, page.title)
    result = toolbox.serve([call])[0]
    if page_id not in result.page_ids:
        raise Unplayable(NOT_FOUND)
    turns.append((render_call(call), result.text))
    return result


def _go_through(tool: str, name: str, toolbox: Toolbox, is_found: Callable[[ToolResult], bool]) -> list[tuple[str, str]]:
    """Turn the pages of a result up to the one that holds what is looked for; the first page alone where none does."""
    turns: list[tuple[str, str]] = []
    number = 1
    while (result := toolbox.serve([call := ToolCall(tool, name if number == 1 else f"{name}#{number}")])[0]).served:
        turns.append((render_call(call), result.text))
        if is_found(result):
            return turns
        number += 1
    return turns[:1]


def _lists(section_id: str, result: ToolResult) -> bool:
    return section_id in result.section_ids


def _holds_answer(question: Question, result: ToolResult) -> bool:
    return any(answer.lower() in result.text.lower() for answer in question.answers)
