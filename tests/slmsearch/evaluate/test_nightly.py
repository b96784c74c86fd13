"""The comparison of a night with its past: exact where it can be, quiet where nothing changed, and not blind."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from slmsearch.config import NightlyConfig
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.evaluate.nightly import (
    FRESH,
    FRESH_WINDOW,
    GREEN,
    OTHER,
    PROMOTION,
    Past,
    Scores,
    SliceScore,
    compare_night,
    history_p,
    questions_key,
    replay_p,
    scores_of,
)
from slmsearch.evaluate.nights import (
    Night,
    PlayedSet,
    Promotion,
    choose_references,
    find_changes,
    judge_night,
    load_nights,
    night_from_dict,
    save_night,
)
from tests.slmsearch.evaluate.builders import fail, make

RULE = NightlyConfig()


class Strict(NightlyConfig):
    min_fall: ClassVar[float] = 0.005


NAMES = st.sampled_from(["eval_key", "questions", "n", "failed", "slices", "p"])


def scores(right: int, n: int = 200, kind: str = "one_hop") -> Scores:
    """The first so many of n questions are right."""
    values = np.array([1.0] * right + [0.0] * (n - right))
    return Scores(tuple(f"q{i:04d}" for i in range(n)), values, ((f"kind={kind}",),) * n, ("",) * n)


def world(mean: float, n: int = 1000) -> dict[str, SliceScore]:
    return {"all": SliceScore(n, mean, mean * (1 - mean) / n)}


def night(name: str, right: int = 120, state: str = "green", adapter: str = "a", questions: str = "q", fresh: float | None = 0.6) -> Night:
    fixed = PlayedSet(f"eval-{name}", questions, 200, 0, scores(right).summarise())
    found = PlayedSet(f"fresh-{name}", f"questions-{name}", 1000, 0, world(fresh)) if fresh is not None else None
    return Night(name, name, state, "champion", "answer/exact_match", {"adapter.hash": adapter}, fixed, found)  # type: ignore[arg-type]


def by(tests: object, against: str, name: str = "all") -> object:
    return next(test for test in tests if (test.against, test.slice) == (against, name))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (6, 0), (10, 3), (0, 9)])
def test_two_nights_are_mcnemars_exact_test(lost: int, gained: int) -> None:
    before = np.array([1.0] * lost + [0.0] * gained + [1.0] * 50)
    now = np.array([0.0] * lost + [1.0] * gained + [1.0] * 50)
    expected = binom.cdf(gained, lost + gained, 0.5) if lost + gained else 1.0
    assert replay_p(np.stack([now, before])) == pytest.approx(expected)


def test_values_between_are_drawn_and_agree_with_the_exact_test() -> None:
    rng = np.random.default_rng(3)
    nights = (rng.random((4, 60)) < 0.5).astype(float)
    nights[0] = np.minimum(nights[0], (rng.random(60) < 0.75))
    assert replay_p(nights * 0.5) == pytest.approx(replay_p(nights), abs=0.01)


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=2, max_size=5))
def test_a_p_value_is_one_and_a_better_night_has_a_larger_one(rows: list[list[bool]]) -> None:
    nights = np.array(rows, dtype=float)
    better = nights.copy()
    better[0] = 1.0
    assert 0.0 <= replay_p(nights) <= 1.0
    assert replay_p(better) >= 0.5


def test_a_history_of_worlds_that_differ_expects_less_of_a_night() -> None:
    alike = [SliceScore(1000, mean, 0.00024) for mean in (0.6, 0.601, 0.599, 0.6, 0.602, 0.598)]
    unlike = [SliceScore(1000, mean, 0.00024) for mean in (0.5, 0.7, 0.55, 0.65, 0.6, 0.6)]
    tonight = [SliceScore(1000, 0.53, 0.00024)]
    assert history_p(tonight, alike)[2] < 0.001
    assert history_p(tonight, unlike)[2] > 0.1
    assert history_p([SliceScore(1000, 0.6, 0.00024)], alike)[2] == pytest.approx(0.5, abs=0.05)


def test_a_fall_is_found_where_it_is_and_a_small_slice_is_only_shown() -> None:
    both = [scores(120), scores(20, 20, "count")]
    fixed = Scores(*(sum((getattr(part, name) for part in both), ()) if name != "values" else np.concatenate([part.values for part in both])
        for name in ("ids", "values", "groups", "clusters")))  # fmt: skip
    fixed = replace(fixed, ids=tuple(f"{i:04d}" for i in range(220)))
    worse = replace(fixed, values=np.concatenate([scores(105).values, scores(18, 20).values]))
    tests = compare_night(worse, None, Past(green=(fixed,), promotion=worse), RULE)
    assert {(test.against, test.slice) for test in tests if test.fell} == {(GREEN, "all"), (GREEN, "kind=one_hop")}
    assert by(tests, GREEN, "kind=count").p_holm is None  # type: ignore[attr-defined]
    assert by(tests, PROMOTION).p == 1.0  # type: ignore[attr-defined]


def test_a_source_that_falls_is_named_as_a_kind_is() -> None:
    def asked(right: int) -> list[EpisodeRow]:
        return [make(f"q{i:03}", i >= 100 or i < right, kind="plain", source="nq" if i < 100 else "squad") for i in range(400)]

    before, after = (scores_of(asked(right), "answer/typed_match") for right in (80, 60))
    fell = {test.slice for test in compare_night(after, None, Past(green=(before,)), RULE) if test.fell}
    assert fell == {"all", "kind=plain", "source=nq"}


def test_a_certain_fall_below_the_smallest_is_no_regression() -> None:
    before, after = scores(1500, 2000), scores(1484, 2000)
    (test,) = [test for test in compare_night(after, None, Past(green=(before,)), RULE) if test.slice == "all"]
    assert test.p_holm is not None and test.p_holm < RULE.alpha and not test.fell
    assert compare_night(after, None, Past(green=(before,)), Strict())[0].fell


def test_three_worlds_find_what_one_does_not() -> None:
    past = tuple(world(mean) for mean in (0.6, 0.61, 0.59, 0.6, 0.605, 0.595))
    low = world(0.565)
    tests = compare_night(scores(100), low, Past(fresh=past, fresh_before=(low, low), fresh_older=past), RULE)
    assert {test.against: test.fell for test in tests} == {FRESH: False, FRESH_WINDOW: True}


def test_references_are_green_nights_of_the_same_make() -> None:
    nights = [night("5", state="regressed"), night("4"), night("3"), night("2", adapter="b"), night("1")]
    found = choose_references(nights, night("6"), 5)
    assert found.last is not None and found.last.night == "4"
    assert [item.night for item in found.green] == ["4", "3"], "a night of another adapter ends the row"
    assert [item.night for item in found.fresh] == ["4", "3", "1"]
    assert [item.night for item in found.fresh_before] == ["5", "4"], "the window holds what came before, green or not"
    assert [item.night for item in found.fresh_older] == ["3", "1"]
    assert choose_references(nights, night("6", questions="others"), 5).green == ()
    assert choose_references(nights, night("0"), 5).last is None, "what came later is no past"
    accepted = replace(nights[0], accepted={"by": "me"})
    found = choose_references([accepted, *nights[1:]], night("6"), 5)
    assert found.green == (accepted,) and found.fresh == (accepted,), "what was before it counts no more"


def test_a_night_names_what_changed_the_likely_causes_first() -> None:
    before = {"adapter.hash": "a", "packages.torch": "2.12", "data.corpus": "x", "machine.host": "h"}
    now = {"adapter.hash": "a", "packages.torch": "2.13", "data.corpus": "y", "machine.host": "h", "index.key": "k"}
    assert [(c.part, c.name, c.before, c.now) for c in find_changes(before, now)] == [
        ("data", "corpus", "x", "y"), ("index", "key", None, "k"), ("packages", "torch", "2.12", "2.13")]  # fmt: skip
    assert [change.part for change in find_changes(before, now, partial=True)] == ["data", "packages"]


def test_a_verdict_says_what_it_could_not_compare() -> None:
    fixed = scores(120)
    first = judge_night([], night("1", fresh=None), fixed, {}.__getitem__, None, RULE)
    assert first.state == "green" and first.tests == () and any("no green night yet" in note for note in first.notes)

    def gone(key: str) -> Scores:
        raise EvaluationError(f"{key} is gone")

    worse = judge_night([night("1")], night("2", right=80), scores(80), gone, None, RULE)
    assert worse.state == "regressed" and {test.against for test in worse.falls} == {OTHER}
    assert any("eval-1 is gone" in note for note in worse.notes)
    promotion = Promotion("p", "q", scores(160), {"packages.torch": "2.12"})
    told = judge_night([night("1")], replace(night("2"), make={"packages.torch": "2.13"}), fixed, lambda _: fixed, promotion, RULE)
    assert {test.against for test in told.falls} == {PROMOTION}
    assert [change.name for change in told.changes["promotion"]] == ["torch"]


def test_records_survive_and_odd_files_are_named(tmp_path: Path) -> None:
    fixed = scores(80)
    judged = judge_night([night("1")], night("2", right=80), fixed, lambda _: scores(120), None, RULE)
    save_night(tmp_path, judged)
    save_night(tmp_path, night("1"))
    (tmp_path / "x.json").write_text('{"schema": 99}')
    (tmp_path / "y.json").write_text("no JSON")
    (tmp_path / "z.json").write_text("[1]")
    nights, odd = load_nights(tmp_path)
    assert nights == [judged, night("1")]
    assert [line.split(" is no record")[0].rpartition("/")[2] for line in odd] == ["x.json", "y.json", "z.json"]
    assert load_nights(tmp_path / "none") == ([], [])


@settings(max_examples=40)
@given(
    st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.none() | st.text(max_size=3), max_size=3) | st.dictionaries(NAMES, NAMES)
)
def test_what_is_no_record_is_refused(value: object) -> None:
    damaged = {**night("1").to_dict(), "fixed": value}
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        night_from_dict(damaged)


def test_scores_leave_failed_rows_out_and_know_their_questions() -> None:
    rows = [make("b", cluster="p", source="nq"), make("a", False, kind="count"), fail("c")]
    found = scores_of(rows, "answer/exact_match")
    assert (found.ids, list(found.values), found.groups) == (("a", "b"), [0.0, 1.0], (("kind=count",), ("kind=one_hop", "source=nq")))
    assert {name: list(places) for name, places in found.slices().items()} == {
        "all": [0, 1], "kind=count": [0], "kind=one_hop": [1], "source=nq": [1],
    }  # fmt: skip
    assert questions_key(rows) == questions_key(rows[::-1]) != questions_key(rows[:2])
    assert found.summarise()["all"].variance > 0, "two questions are not certain of anything"
    with pytest.raises(ConfigError, match="no mean over questions"):
        scores_of(rows, "loss")


def test_a_world_that_was_played_twice_counts_once_and_tonights_not_at_all() -> None:
    def again(one: Night, at: str) -> Night:
        return replace(one, night=f"{one.night} again", at=at)

    nights = [night(f"2026-01-{day:02}") for day in range(1, 12)]
    tonight = night("2026-01-12")
    plain = choose_references(nights, tonight, 5)
    twice = choose_references([*nights, again(nights[-1], "2026-01-11b"), again(tonight, "2026-01-11c")], tonight, 5)
    for once, more in ((plain.fresh, twice.fresh), (plain.fresh_before, twice.fresh_before), (plain.fresh_older, twice.fresh_older)):
        worlds = [found.fresh.questions for found in more if found.fresh]
        assert worlds == [found.fresh.questions for found in once if found.fresh] and len(set(worlds)) == len(worlds) > 0


def test_flips_that_are_no_fall_alarm_seldom_whatever_the_nights_before() -> None:
    """Five equal nights say nothing of what another version of a library flips; by them alone one night in seven was an alarm."""
    rng, alarms, past = np.random.default_rng(0), 0, scores(120)
    for _ in range(100):
        values, up = past.values.copy(), int(rng.binomial(40, 0.5))
        values[rng.choice(np.flatnonzero(past.values == 0), up, replace=False)] = 1
        values[rng.choice(np.flatnonzero(past.values == 1), 40 - up, replace=False)] = 0
        tests = compare_night(replace(past, values=values), None, Past(green=(past,) * 5), RULE)
        alarms += next(test for test in tests if test.slice == "all").p < 0.01
    assert alarms <= 4
