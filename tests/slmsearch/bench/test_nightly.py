from slmsearch.bench.nightly import Policy, Series, fell, render_nightly
from slmsearch.config import NightlyConfig
from slmsearch.evaluate.nightly import GREEN

SMALL = Policy(0.6, 0.15, n=300)


def test_quiet_nights_are_green_and_a_large_fall_is_not() -> None:
    series = Series(SMALL, 1, NightlyConfig())
    assert [series.play().state for _ in range(4)] == ["green"] * 4
    night = series.play(0.15, 0.15)
    assert night.state == "regressed" and GREEN in {test.against for test in night.falls}
    assert night.against["green"] == ["003", "002", "001", "000"]


def test_a_planted_fall_has_its_size() -> None:
    series = Series(SMALL, 2, NightlyConfig())
    for shape in ("spread", "dimmed", "one kind"):
        lowered = fell(series.chances, series.kinds, 0.05, shape, series.rng)
        assert abs(series.chances.mean() - lowered.mean() - 0.05) < 0.004
        assert ((lowered < series.chances) <= (lowered != series.chances)).all()


def test_the_table_counts() -> None:
    policy = {"accuracy": 0.6, "coins": 0.15}
    counts = dict.fromkeys(("first_night", "three_nights", "fresh_first_night", "fresh_three_nights"), 3)
    result = {
        "series": 2, "nights": 50, "quiet": [{"policy": policy, "alarms": [1, 2], "most": 2, "more_than_two": 0}],
        "planted": [{"policy": policy, "shape": "spread", "of": 4, **counts}],
    }  # fmt: skip
    text = render_nightly(result)
    assert "| 60% | 5% | 3 | 2 | 0 |" in text
    assert "| 60% | 5% | spread | 3 of 4 | 3 of 4 | 3 of 4 | 3 of 4 |" in text
