"""Rows and their summary under the one list of metric names."""

import json
from dataclasses import asdict

import pytest

from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.environments.searcher.reward import REWARD_PARTS
from slmsearch.episodes import rows as episode_rows
from slmsearch.episodes.episode import StopReason, ToolCall, Turn
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import EpisodeRow, row_from_dict
from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.evaluate.metrics import metric_values, slice_rows, summarise, summarise_slices
from slmsearch.judge import Verdict
from tests.slmsearch.evaluate.builders import METRICS, ONE_HOP, TWO_HOP, fail, is_documented, make, play, read, say, search

REWARD = Reward(0.96, {"correct": 1.0, "call_cost": -0.04, "malformed": 0.0, "abstained": 0.0})
NO_REWARD = Reward(0.0, dict.fromkeys(REWARD_PARTS, 0.0))


def make_row(question, episode, verdict, reward):
    measured = episode_rows.NOT_MEASURED if reward is None or episode.failure else measure_episode(question, episode)
    return episode_rows.make_row(question, episode, verdict, reward, measured)


def test_row_of_a_right_episode() -> None:
    turns = (search("ada"), read("ada:life"), Turn("answer", answer="1815", context_ids=(1, 2, 3), sampled_ids=(4, 5)))
    row = make_row(ONE_HOP, play(*turns, sampled_tokens=2, seconds=1.5), Verdict(True), REWARD)
    assert (row.exact_match, row.f1, row.correct, row.failure_mode, row.failure) == (1.0, 1.0, 1.0, "", "")
    assert (row.turns, row.tool_calls, row.unserved_calls) == (3, 2, 0)
    assert (row.first_hit, row.any_hit, row.gold_read) == (True, True, True)
    assert (row.sampled_tokens, row.completion_tokens, row.seconds) == (2, 5, 1.5)
    assert (row.cluster, row.kind, row.hops, row.stop_reason) == ("ada", "one_hop", 1, "answered")
    assert not row.failed


def test_row_of_a_wrong_episode_says_where_it_broke() -> None:
    row = make_row(TWO_HOP, play(search("notes"), read("notes:author"), say("Ada Lovelace of London")), Verdict(False), NO_REWARD)
    assert (row.exact_match, row.correct, row.failure_mode) == (0.0, 0.0, "stopped_early")
    assert row.f1 == pytest.approx(2 / 5)  # one of four words, all of one
    assert row.cluster == "notes"


def test_the_judge_may_accept_what_exact_match_does_not() -> None:
    row = make_row(TWO_HOP, play(say("in London town")), Verdict(True, "judge"), REWARD)
    assert (row.exact_match, row.correct, row.failure_mode) == (0.0, 1.0, "")


def test_a_row_knows_its_source_and_how_much_of_a_long_answer_was_said() -> None:
    gold = "she was born in the house of her uncle on the river"
    question = Question("q", "Where?", gold, source="nq")
    row = make_row(question, play(say("in the house of her uncle")), Verdict(False), NO_REWARD)
    assert (row.source, row.exact_match, row.rouge_l) == ("nq", 0.0, pytest.approx(2 * 6 / (6 + 12)))
    assert make_row(ONE_HOP, play(say("1815")), Verdict(True), REWARD).rouge_l is None
    assert summarise([row, make("short")])["answer/rouge_l"] == row.rouge_l
    assert "answer/rouge_l" not in summarise([make("short")])


def test_unserved_calls_and_abstentions_are_counted() -> None:
    question = Question("q", "Who?", UNKNOWN_ANSWER, kind="unanswerable")
    row = make_row(question, play(search(served=False), read("x:y", served=False), say("I do not know")), Verdict(True), REWARD)
    assert (row.unserved_calls, row.abstained, row.exact_match, row.cluster) == (2, True, 1.0, "")
    assert (row.first_hit, row.gold_read) == (None, None)


def test_an_outage_of_the_judge_fails_the_row() -> None:
    row = make_row(ONE_HOP, play(say("1815")), Verdict(None, "judge", "judge: down"), None)
    assert row.failed
    assert (row.stop_reason, row.failure, row.failure_mode) == ("failed", "judge: down", "")


def test_an_outage_of_the_index_fails_the_row() -> None:
    episode = play(search(), stop_reason=StopReason.FAILED, failure="index: gone")
    row = make_row(ONE_HOP, episode, Verdict(None, failure="index: gone"), None)
    assert (row.failed, row.failure) == (True, "index: gone")
    with pytest.raises(ValueError, match="exactly when"):
        make_row(ONE_HOP, episode, Verdict(False), NO_REWARD)


def test_rows_survive_json() -> None:
    row = make("q", answer="Ä\u2028\ud800", first_hit=None, f1=1 / 3)
    assert row_from_dict(json.loads(json.dumps(asdict(row)))) == row
    with pytest.raises(EvaluationError, match="seconds"):
        row_from_dict({key: value for key, value in asdict(row).items() if key != "seconds"})
    with pytest.raises(EvaluationError, match="colour"):
        row_from_dict({**asdict(row), "colour": "red"})


def test_summary_leaves_failed_rows_out_and_counts_them() -> None:
    rows = [make("a", True, tool_calls=2), make("b", False, tool_calls=4), fail("c", "judge: down"), fail("d", "judge: busy")]
    summary = summarise(rows)
    assert summary["answer/exact_match"] == 0.5  # 1 of 2 graded, not 1 of 4
    assert summary["episode/tool_calls"] == 3.0
    assert summary["stop/failed"] == 0.5
    assert summary["stop/answered"] == 0.5
    assert summary["errors/judge"] == 2.0
    assert sum(value for name, value in summary.items() if name.startswith("stop/")) == 1.0


def test_summary_averages_only_what_is_defined() -> None:
    rows = [make(name, first_hit=hit, gold_read=None) for name, hit in (("a", True), ("b", None), ("c", False))]
    summary = summarise(rows)
    assert summary["search/first_hit_frac"] == 0.5
    assert "search/gold_read_frac" not in summary
    assert "answer/exact_match" not in summarise([fail("a")])
    assert summarise([]) == {}


def test_every_name_is_in_the_one_list() -> None:
    names = set(summarise([make("a", rouge_l=0.5), make("b", False), fail("c")]))
    assert {name for name in names if not is_documented(name)} == set()
    assert {f"stop/{reason}" for reason in StopReason} <= METRICS
    assert {f"reward/{part}" for part in REWARD_PARTS} <= names
    assert is_documented("eval/answer/f1")
    assert not is_documented("answer/accuracy")
    assert not is_documented("errors/")


def test_a_metric_that_is_no_mean_over_questions_is_refused_with_the_names_of_those_that_are() -> None:
    assert metric_values([make("a"), make("b", False)], "answer/exact_match") == [1.0, 0.0]
    with pytest.raises(ConfigError, match="no mean over questions") as refused:
        metric_values([make("a")], "reward/std")
    assert set(str(refused.value).partition("use one of ")[2].split(", ")) <= METRICS


def test_slices_by_kind_hops_and_source() -> None:
    rows = [
        make("a", kind="one_hop", hops=1, source="squad"),
        make("b", False, kind="two_hop", hops=2, source="nq"),
        make("c", kind="unanswerable", hops=0),
    ]
    assert {name: [row.question_id for row in members] for name, members in slice_rows(rows).items()} == {
        "hops=1": ["a"],
        "hops=2": ["b"],
        "kind=one_hop": ["a"],
        "kind=two_hop": ["b"],
        "kind=unanswerable": ["c"],
        "source=nq": ["b"],
        "source=squad": ["a"],
    }
    assert list(slice_rows(rows[::-1])) == list(slice_rows(rows)) == sorted(slice_rows(rows))
    found = summarise_slices([*rows, fail("d")])
    assert (found["kind=two_hop"]["n"], found["kind=two_hop"]["answer/exact_match"]) == (1, 0.0)
    assert (found["kind=one_hop"]["n"], found["kind=one_hop"]["stop/failed"]) == (2, 0.5), "n counts failed rows, as the shares do"


def test_means_do_not_depend_on_the_order_of_rows() -> None:
    rows: list[EpisodeRow] = [make(str(i), f1=i / 7, seconds=0.1 * i) for i in range(50)]
    assert summarise(rows) == summarise(rows[::-1])


def test_a_call_before_its_result_counts_as_a_call() -> None:
    episode = play(Turn("x", call=ToolCall("search_pages", "x")), stop_reason=StopReason.MAX_TURNS)
    row = make_row(ONE_HOP, episode, Verdict(False), NO_REWARD)
    assert (row.tool_calls, row.unserved_calls, row.first_hit) == (1, 0, False)
