import json
from typing import Any

import pytest

from slmsearch.config import NightlyConfig
from slmsearch.evaluate.nightly import GREEN
from slmsearch.extensions.bench import false_alarms as nightly
from slmsearch.extensions.bench.false_alarms import NightSeries, Policy, fell

SMALL = Policy(0.6, 0.15, n=300)


def test_quiet_nights_are_green_and_a_large_fall_is_not() -> None:
    series = NightSeries(SMALL, 1, NightlyConfig())
    assert [series.play().state for _ in range(4)] == ["green"] * 4
    night = series.play(0.15, 0.15)
    assert night.state == "regressed" and GREEN in {test.against for test in night.falls}
    assert night.against["green"] == ["003", "002", "001", "000"]


def test_a_planted_fall_has_its_size() -> None:
    series = NightSeries(SMALL, 2, NightlyConfig())
    for shape in ("spread", "dimmed", "one kind"):
        lowered = fell(series.chances, series.kinds, 0.05, shape, series.rng)
        assert abs(series.chances.mean() - lowered.mean() - 0.05) < 0.004
        assert ((lowered < series.chances) <= (lowered != series.chances)).all()


def test_the_tables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "QUIET", (SMALL,))
    found = nightly.run_nightly(NightlyConfig(), 2, 5, 1)
    values: Any = json.loads(json.dumps(found.values))
    assert len(values["quiet"][0]["alarms"]) == 2 and values["quiet"][0]["policy"]["coins"] == 0.15
    assert [row["shape"] for row in values["planted"]] == ["spread", "dimmed", "one kind"]
    assert {*values["planted"][0]} == {"policy", "shape", "of", "first_night", "three_nights", "fresh_first_night", "fresh_three_nights"}
    text = found.render()
    assert "alarms in 2 series of 5 quiet nights" in text and f"| 60% | 5% | {sum(values['quiet'][0]['alarms'])} |" in text
    assert f"| 60% | 5% | spread | {values['planted'][0]['first_night']} of 1 |" in text
