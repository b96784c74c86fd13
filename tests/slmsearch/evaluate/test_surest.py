"""Share of wrong ones among a policy's surest answers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.environments.searcher.failure_modes import SURENESS, measure_episode
from slmsearch.episodes.episode import ToolCall, ToolResult, Turn
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.surest import rank_answers
from slmsearch.report.tables import surest_table
from tests.slmsearch.evaluate.builders import ONE_HOP, fail, make, play

LOGPROB, TOP_SCORE = SURENESS


def sure(name: str, right: bool, value: float, metric: str = LOGPROB) -> EpisodeRow:
    """A row of an answer that is as sure as a value."""
    return replace(make(name, right), measured={metric: value})


def test_the_surest_answers_come_first_and_what_is_not_answered_counts_as_asked() -> None:
    rows = [sure(f"q{i}", i < 8, -float(i)) for i in range(10)]  # the two least sure ones are wrong
    silent = [replace(make(f"s{i}", False), answer=None if i % 2 else "I don't know", abstained=True) for i in range(10)]
    found = rank_answers([*reversed(rows), *silent, fail("broken")], 0.05)
    assert [one.n for one in found] == list(range(1, 11))
    assert [round(one.answered_frac, 2) for one in found] == [n / 20 for n in range(1, 11)]
    assert [round(one.wrong_frac, 3) for one in found] == [*[0.0] * 8, 0.111, 0.2]
    assert found[-1].low < 0.2 < found[-1].high


def test_answers_that_are_as_sure_stand_on_one_side() -> None:
    rows = [sure(f"q{i}", i % 2 == 0, 0.0) for i in range(40)]
    (found,) = rank_answers(rows, 0.05)
    assert (found.n, found.wrong_frac) == (40, 0.5), "an order among equals would be of the file"


def test_policies_without_probabilities_are_ranked_by_their_search() -> None:
    rows = [sure(f"q{i}", i < 3, 9.0 - i, TOP_SCORE) for i in range(4)]
    assert [one.wrong_frac for one in rank_answers(rows, 0.05)] == [0, 0, 0, 0.25]
    assert rank_answers([*rows, replace(rows[0], measured={})], 0.05) == [], "an answer that nothing ranks has no place"
    assert rank_answers([], 0.05) == []


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(-5, 0)), max_size=60))
def test_whatever_was_played_the_last_are_all_answers(played: list[tuple[bool, bool, int]]) -> None:
    rows = [
        sure(f"q{i}", right, value) if said else replace(make(f"q{i}", False), answer=None) for i, (said, right, value) in enumerate(played)
    ]
    found = rank_answers(rows, 0.05)
    given = sum(said for said, *_ in played)
    assert [one.n for one in found] == sorted({one.n for one in found})
    assert (found[-1].n if found else 0) == given
    assert all(0 <= one.low <= one.wrong_frac <= one.high <= 1 and one.answered_frac == one.n / len(rows) for one in found)


def test_the_table_has_a_row_for_each_policy_that_can_be_ranked() -> None:
    rows = [sure(f"q{i}", i < 6, -float(i)) for i in range(8)]
    table = surest_table({"after": rows, "unranked": [make("q", True)]})
    assert table is not None
    assert table.headers[1:] == ("10%", "25%", "50%", "75%", "all answers", "answered, %")
    assert [row[0] for row in table.rows] == ["after"]
    assert [cell.split()[0] for cell in table.rows[0][1:]] == ["0.0", "0.0", "0.0", "0.0", "25.0", "100.0"]
    assert surest_table({"unranked": [make("q", True)]}) is None


def searched(*scores: float) -> Turn:
    """A search whose pages have these scores."""
    return Turn("search", call=ToolCall("search_pages", "Ada"), result=ToolResult("hits", True, ("ada",) * len(scores), (), scores))


def answered(text: str, *logprobs: float) -> Turn:
    """An answer of as many tokens."""
    return Turn(text, answer=text, sampled_ids=tuple(range(len(logprobs))), sampled_logprobs=logprobs)


@pytest.mark.parametrize(
    ("turns", "measured"),
    [
        ((searched(0.25, 0.75), searched(0.9), answered("1815", -0.5, -0.25)), {LOGPROB: -0.75, TOP_SCORE: 0.75}),
        ((searched(), searched(0.5), answered("1815")), {TOP_SCORE: 0.5}),  # the first one found nothing; no model
        ((answered("1815", -0.123456),), {LOGPROB: -0.1235}),
        ((searched(0.5), answered("I don't know", -0.5)), {}),
        ((searched(0.5),), {}),
        ((searched(0.5), answered("1815", -0.5, -math.inf)), {TOP_SCORE: 0.5}),
        ((searched(math.nan), answered("1815", -0.5, math.nan)), {}),  # a model whose numbers overflow
    ],
)
def test_what_an_answer_is_ranked_by(turns: tuple[Turn, ...], measured: dict[str, float]) -> None:
    assert measure_episode(ONE_HOP, play(*turns)).measured == measured
