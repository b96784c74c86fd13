"""Figures: what they show, and that they come out whatever the data."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from slmsearch.report.figures import (
    draw_accuracy_by_kind,
    draw_failure_modes,
    draw_reward_curve,
    draw_stop_reasons,
    draw_stops_over_training,
    write_figures,
)
from tests.slmsearch.evaluate.builders import fail, make

BEFORE = [make(f"q{i}", i % 4 == 0, kind="one_hop" if i < 10 else "two_hop", stop_reason="answered") for i in range(20)]
AFTER = [make(f"q{i}", i % 4 != 0, kind=row.kind, stop_reason="malformed" if i == 0 else "answered") for i, row in enumerate(BEFORE)]
BOTH = {"untrained": BEFORE, "trained": AFTER}


def words(figure: Figure) -> set[str]:
    """All texts of a figure."""
    axes = figure.axes[0]
    legend = axes.get_legend()
    labels = [*axes.get_yticklabels(), *axes.texts, *(legend.get_texts() if legend else [])]
    return {label.get_text() for label in labels}


def test_accuracy_by_kind_shows_shares_sizes_and_policies() -> None:
    shown = words(draw_accuracy_by_kind(BOTH))
    assert {"all  (n = 20)", "one hop  (n = 10)", "two hop  (n = 10)", "25", "75", "untrained", "trained"} <= shown


def test_failed_rows_are_in_no_share() -> None:
    figure = draw_accuracy_by_kind({"a": [make("x"), fail("y"), fail("z")]})
    assert "100" in words(figure)


def test_stop_reasons_leaves_out_what_never_happened() -> None:
    shown = words(draw_stop_reasons(BOTH))
    assert {"answered", "malformed", "95", "5"} <= shown
    assert "max turns" not in shown


def test_failure_modes_are_counted() -> None:
    assert {"misread", "15", "5"} <= words(draw_failure_modes(BOTH))


def test_reward_curve_labels_the_last_moving_mean() -> None:
    steps = [(i, {"reward/mean": 0.1 * i, "episode/tool_calls": 2.0}) for i in range(1, 21)]
    figure = draw_reward_curve(steps)
    assert len(figure.axes) == 2
    assert "1.55" in words(figure)  # mean of 1.1 ... 2.0
    assert len(draw_reward_curve([(1, {"reward/mean": 0.5}), (2, {"loss": 1.0})]).axes) == 1


ODD = {"no policy": {}, "no row": {"empty": []}, "all failed": {"down": [fail("x")]}, "dollars": {"cost $5 and $6": AFTER}}


@pytest.mark.parametrize("case", ODD)
def test_odd_data_still_draws(tmp_path: Path, case: str) -> None:
    evaluations = ODD[case]
    figures = {f.__name__: f(evaluations) for f in (draw_accuracy_by_kind, draw_stop_reasons, draw_failure_modes)}
    paths = write_figures(tmp_path / "figures", {**figures, "curve": draw_reward_curve([])})
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    both = ("png", "svg")
    first, second = (write_figures(tmp_path / name, {"stops": draw_stop_reasons(BOTH)}, both) for name in ("a", "b"))
    assert [path.suffix for path in first] == [".png", ".svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_stops_over_training_draws_what_happened() -> None:
    steps = [(i, {"stop/answered": 0.9, "stop/malformed": 0.1, "stop/failed": 0.0}) for i in range(1, 21)]
    figure = draw_stops_over_training(steps)
    assert {"answered", "malformed"} <= words(figure)
    assert "failed" not in words(figure)
    assert "no steps yet" in words(draw_stops_over_training([]))
