"""The charts of a run as files: what they show, and that they come out whatever the data."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.store import Evaluation
from slmsearch.report.page.render import run_charts, write_charts
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.training.reports import StepReport
from tests.slmsearch.evaluate.builders import fail, make
from tests.slmsearch.report.page.synthetic import make_run

OLD = [make(f"q{i}", i % 4 == 0, kind="one_hop" if i < 10 else "two_hop", stop_reason="answered") for i in range(20)]
NEW = [make(f"q{i}", i % 4 != 0, kind=row.kind, stop_reason="malformed" if i == 0 else "answered") for i, row in enumerate(OLD)]


def as_run(evaluations: dict[str, list[EpisodeRow]], steps: list[StepReport] | None = None) -> RunResults:
    stored = {
        name: Evaluation(tuple(rows), tuple(Episode(row.question_id, (), StopReason.ANSWERED, (), 0.5, "", 1) for row in rows), {}, {}, 1.0)
        for name, rows in evaluations.items()
    }
    return replace(make_run(2), evaluations=stored, comparisons={}, steps=steps or [])


def words(run: RunResults, name: str, tmp_path: Path) -> list[str]:
    """All texts of a file, in order."""
    (path,) = write_charts(tmp_path, {name: run_charts(run)[name]})
    return [node.text or "" for node in ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")]


BOTH = as_run({BEFORE: OLD, AFTER: NEW})


def test_accuracy_by_kind_shows_shares_and_policies(tmp_path: Path) -> None:
    shown = words(BOTH, "accuracy_by_kind", tmp_path)
    assert {"all, before", "all, after", "one hop, before", "two hop, after", "25.0", "75.0"} <= set(shown)


def test_failed_rows_are_in_no_share(tmp_path: Path) -> None:
    assert "100.0" in words(as_run({"a": [make("x"), fail("y"), fail("z")]}), "accuracy_by_kind", tmp_path)


def test_stop_reasons_leaves_out_what_never_happened(tmp_path: Path) -> None:
    shown = words(BOTH, "stop_reasons", tmp_path)
    assert {"answered, after", "malformed, after", "95.0", "5.0"} <= set(shown)
    assert not [text for text in shown if text.startswith("max turns")]


def test_failure_modes_are_shares_of_the_wrong(tmp_path: Path) -> None:
    assert {"misread, before", "misread, after", "100.0"} <= set(words(BOTH, "failure_modes", tmp_path))


def test_reward_labels_the_last_moving_mean(tmp_path: Path) -> None:
    steps = [StepReport(i, {"reward/mean": 0.1 * i, "episode/tool_calls": 2.0}, float(i)) for i in range(1, 21)]
    run = as_run({}, steps)
    assert "1.6" in words(run, "reward", tmp_path)  # mean of 1.1 ... 2.0
    assert "tool_calls_over_training" in run_charts(run) and "loss" not in run_charts(run)


def test_stops_over_training_draws_what_happened(tmp_path: Path) -> None:
    steps = [StepReport(i, {"stop/answered": 0.9, "stop/malformed": 0.1, "stop/failed": 0.0}, float(i)) for i in range(1, 21)]
    shown = " ".join(words(as_run({}, steps), "stop_reasons_over_training", tmp_path))
    assert "answered" in shown and "malformed" in shown and "failed" not in shown
    assert "stop_reasons_over_training" not in run_charts(as_run({}))


ODD = {"no policy": {}, "no row": {"empty": []}, "all failed": {"down": [fail("x")]}, "markup": {"<b>cost</b> $5 & $6": NEW}}


@pytest.mark.parametrize("case", ODD)
def test_odd_data_still_draws(tmp_path: Path, case: str) -> None:
    for path in write_charts(tmp_path / "charts", run_charts(as_run(ODD[case]))):
        ET.parse(path)


def test_the_same_chart_gives_the_same_bytes_and_needs_no_style_sheet(tmp_path: Path) -> None:
    first, second = (write_charts(tmp_path / name, run_charts(make_run(20))) for name in ("a", "b"))
    assert {path.suffix for path in first} == {".svg"} and len(first) >= 8
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert not [path for path in first if "var(" in path.read_text(encoding="utf-8")]
