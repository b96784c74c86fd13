"""A training run as text and as a page."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.learn.reports import StepReport
from slmsearch.report.live import LEVELS, describe_step, draw_lines, draw_spark, render_live
from tests.slmsearch.report.page.synthetic import make_run


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), max_size=200), st.integers(0, 80))
def test_a_spark_line_keeps_to_its_width(values: list[float], width: int) -> None:
    line = draw_spark(values, width)
    assert len(line) <= width and set(line) <= set(LEVELS)
    assert bool(line) is bool(values and width)


def test_a_rise_is_drawn_as_one() -> None:
    assert draw_spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == LEVELS
    assert draw_spark([5, 5, 5], 8) == LEVELS[3] * 3


def test_lines_name_the_curve_the_last_value_and_the_span() -> None:
    lines = draw_lines(make_run(steps=20).steps, 20)
    assert [line.split()[0] for line in lines] == ["reward", "accuracy", "loss"]
    assert lines[0].endswith("1.000  (0.050 to 1.000)")
    assert draw_lines([]) == []


def test_a_step_is_one_line_and_a_collapse_is_in_it() -> None:
    steps = make_run(steps=4).steps
    assert describe_step(steps[0], 4) == "step 1/4  reward 0.250  accuracy 0.250  loss 1.000"
    assert "collapse (entropy" in describe_step(steps[1], 0) and describe_step(steps[1], 0).startswith("step 2  ")


@pytest.mark.parametrize("refresh_s", [5, None])
def test_the_page_comes_back_until_the_end(refresh_s: int | None) -> None:
    page = render_live([StepReport(1, {"reward/mean": 0.5}, 0.0)], "<Training>", "Step 1 of 2", refresh_s)
    assert ('http-equiv="refresh" content="5"' in page) is (refresh_s is not None)
    assert "&lt;Training&gt;" in page and "<svg" in page and "<script" not in page
    assert "No step has ended yet" in render_live([], "t", "Step 0", refresh_s)
