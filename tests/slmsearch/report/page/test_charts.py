"""Charts stay inside their drawing, whatever the numbers."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.report.page.charts import HEIGHT, LABEL_GAP, MAX_POINTS, WIDTH, Bar, ChartLine, interval_chart, line_chart, spread, thin

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=50), st.lists(VALUES, max_size=5))
def test_lines_stay_inside(ys: list[float], others: list[float]) -> None:
    lines = [ChartLine("a <b>", list(enumerate(ys))), ChartLine("b", list(enumerate(others)))]
    chart = ET.fromstring(line_chart('t "<', lines, marks=[(0, "here")]))
    for path in (node.get("d") or "" for node in chart.iter("path") if "line" in (node.get("class") or "")):
        for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path):
            assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, VALUES).map(sorted), max_size=8))
def test_intervals_are_xml(spans: list[list[float]]) -> None:
    chart = interval_chart("t", [Bar("<&>", value, low, high, "x") for low, value, high in spans], zero=True)
    assert (chart == "") is (not spans)
    if chart:
        assert len(list(ET.fromstring(chart).iter("circle"))) == len(spans)


@settings(deadline=None)
@given(st.lists(st.floats(12, 160), max_size=6))
def test_labels_do_not_cover_each_other(heights: list[float]) -> None:
    placed = sorted(spread(heights))
    assert all(b - a >= LABEL_GAP - 1e-6 for a, b in pairwise(placed))


def test_long_lines_are_thinned_to_means() -> None:
    points = [(float(i), float(i % 2)) for i in range(10_000)]
    thinned = thin(points)
    assert len(thinned) <= MAX_POINTS
    assert thinned[-1][0] == 9999
    assert all(y == pytest.approx(0.5, abs=0.05) for _, y in thinned)


def test_nothing_to_draw_is_no_chart() -> None:
    assert line_chart("t", [ChartLine("a", [])]) == ""


@pytest.mark.parametrize(
    ("value", "label"), [(100.0, "100"), (99.6, "100"), (640.0, "640"), (1234.5, "1,234"), (61.7, "62"), (0.56, "0.56"), (0.0, "0")]
)
def test_a_line_ends_with_its_value_and_no_exponent(value: float, label: str) -> None:
    assert line_chart("t", [ChartLine("a", [(0.0, 0.0), (1.0, value)])]).endswith(f">a {label}</text></svg>")
