"""Charts as SVG: small, sharp at any width, in the colours of the page's own style sheet or as files of their own.

Text follows the page's size, and one drawing is readable on a light and on a dark background. A dash or a label repeats the meaning of
every colour.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise

from slmsearch.intervals import wilson_interval

WIDTH, HEIGHT = 360, 190
"""Size of a line chart, in the units of its drawing: pixels on a narrow phone."""
LEFT, TOP, BOTTOM = 40, 12, 34
LABEL_GAP = 12
"""Height of a label."""
MAX_POINTS = 400
"""Largest number of points of one line; longer ones are reduced to means."""
SMOOTHED_STEPS = 10
DASHES = ("", "6 3", "2 2", "8 2 2 2", "1 3", "10 4")
ROW, VALUE_WIDTH = 24, 44
MAX_LABEL, CHAR_WIDTH = 24, 6.2
"""Largest number of characters of a row's label, and the width of one."""
TITLE_HEIGHT = 26
"""Height of the title over a chart in a file of its own."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart."""

    label: str
    points: Points
    faint: bool = False
    """True for a thin, pale line without a label: single steps, or seeds, behind their mean."""
    style: int | None = None
    """Number of its colour and dash; None takes its position."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval."""

    label: str
    value: float
    low: float
    high: float
    text: str
    style: int = 0
    """Number of its colour."""


def smooth(points: Points) -> Points:
    """Return the moving mean of the last `SMOOTHED_STEPS` points."""
    values = [value for _, value in points]
    parts = (values[max(0, i + 1 - SMOOTHED_STEPS) : i + 1] for i in range(len(values)))
    return [(x, sum(part) / len(part)) for (x, _), part in zip(points, parts, strict=True)]


def thin(points: Points) -> Points:
    """Replace runs of neighbours by their means, so that at most `MAX_POINTS` points are left."""
    size = -(-len(points) // MAX_POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def line_chart(title: str, lines: Sequence[ChartLine], x_label: str = "training step", marks: Sequence[tuple[float, str]] = ()) -> str:
    """Draw lines over a common axis; empty where no line has a point.

    Args:
        title: heading of the chart, also for screen readers.
        lines: lines, labelled at their ends; a mean alone over its faint single lines needs no name.
        x_label: unit of the axis.
        marks: positions on the axis, and the events there.
    """
    drawn = [(line, thin(line.points), number if line.style is None else line.style) for number, line in enumerate(lines) if line.points]
    if not drawn:
        return ""
    named = sum(not line.faint for line, _, _ in drawn) > 1 or not any(line.faint for line, _, _ in drawn)
    right = 104 if named else 38
    xs = [x for _, points, _ in drawn for x, _ in points]
    x_scale = _Scale([tick for tick in _ticks(xs, whole=True) if min(xs) <= tick <= max(xs)] or xs[:1], xs, LEFT, WIDTH - right)
    y_ticks = _ticks([y for _, points, _ in drawn for _, y in points])
    y_scale = _Scale(y_ticks, y_ticks, HEIGHT - BOTTOM, TOP)
    parts = [_axes(x_scale, y_scale, x_label), *(_mark(x_scale(x), text) for x, text in marks)]
    parts += [_path(line, [(x_scale(x), y_scale(y)) for x, y in points], style % len(DASHES)) for line, points, style in drawn]
    ends = [(line, points[-1][1]) for line, points, _ in drawn if not line.faint]
    for height, (line, value) in zip(spread([y_scale(value) for _, value in ends]), ends, strict=True):
        text = f"{_cut(line.label, 11)} {_short(value, 2)}" if named else _short(value, 2)
        parts.append(f'<text class="end" x="{x_scale.end + 4:.1f}" y="{height + 3.5:.1f}">{escape(text)}</text>')
    return _svg(title, HEIGHT, "".join(parts))


def _path(line: ChartLine, points: Points, style: int) -> str:
    """Draw one line; a single point becomes a dot."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("h.1" if len(points) == 1 else "")
    dash = f' stroke-dasharray="{DASHES[style]}"' if DASHES[style] and not line.faint else ""
    kind = f"line s{style}{' faint' if line.faint else ''}"
    return f'<path class="{kind}"{dash} d="M{path}"><title>{escape(line.label)}</title></path>'


def _mark(at: float, text: str) -> str:
    """Draw a mark where an event happened."""
    line = f'<path class="mark" d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{escape(text)}</title></path>'
    return f'{line}<text class="tick" x="{at:.1f}" y="{TOP - 3}" text-anchor="middle">▼</text>'


def interval_chart(title: str, bars: Sequence[Bar], zero: bool = False) -> str:
    """Draw one value with its interval per row, and with `zero` the line of no difference; empty where there is none."""
    if not bars:
        return ""
    height, left = TOP + ROW * len(bars) + 26, CHAR_WIDTH * min(MAX_LABEL, max(len(bar.label) for bar in bars)) + 14
    ticks = _ticks([*(end for bar in bars for end in (bar.low, bar.high, bar.value)), *([0.0] if zero else [])])
    scale = _Scale(ticks, ticks, left, WIDTH - VALUE_WIDTH)
    bottom = height - 24
    parts = [
        f'<path class="grid" d="M{scale(tick):.1f} {TOP}V{bottom}"/>'
        f'<text class="tick" x="{scale(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{_short(tick)}</text>'
        for tick in ticks
    ]
    if zero:
        parts.append(f'<path class="mark" d="M{scale(0):.1f} {TOP}V{bottom}"/>')
    for number, bar in enumerate(bars):
        y = TOP + ROW * (number + 0.5)
        low, high, at, style = scale(bar.low), scale(bar.high), scale(bar.value), bar.style % len(DASHES)
        parts.append(
            f'<text class="name" x="{left - 8:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{escape(_cut(bar.label, MAX_LABEL))}</text>'
            f'<path class="range s{style}" d="M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8"/>'
            f'<circle class="dot s{style}" cx="{at:.1f}" cy="{y:.1f}" r="2"><title>{escape(bar.label)}: {escape(bar.text)}</title></circle>'
            f'<text class="end" x="{WIDTH - VALUE_WIDTH + 6}" y="{y + 3.5:.1f}">{escape(bar.text)}</text>'
        )
    return _svg(title, height, "".join(parts))


def share_bar(label: str, count: float, n: int, alpha: float, style: int = 0) -> Bar:
    """Make the row of a share: per cent, with Wilson's interval."""
    share, (low, high) = 100 * count / n, wilson_interval(round(count), n, alpha)
    return Bar(label, share, 100 * low, 100 * high, f"{share:.1f}", style)


def share_chart(title: str, shares: Mapping[str, Mapping[str, tuple[float, int]]], alpha: float) -> str:
    """Draw shares (event -> policy -> its count, and the total) in per cent with intervals; a share of no cases is left out."""
    styles = {policy: number for number, policy in enumerate(dict.fromkeys(policy for found in shares.values() for policy in found))}
    bars = []
    for what, found in shares.items():
        for policy, (count, n) in found.items():
            label = what.replace("_", " ") + (f", {policy}" if len(styles) > 1 else "")
            bars += [share_bar(label, count, n, alpha, styles[policy])] if n else []
    return interval_chart(title, bars)


def to_file(chart: str, title: str) -> str:
    """Make a chart a file of its own: with a title, on white, in colours that every viewer knows."""
    style = files(__package__).joinpath("files", "chart.css").read_text(encoding="utf-8")
    palette = dict(re.findall(r"--(\w+): (#\w+)", style))
    style = re.sub(r"var\(--(\w+)\)", lambda found: palette[found[1]], style.partition("}")[2])
    height = float(chart.partition(f'viewBox="0 0 {WIDTH} ')[2].partition('"')[0]) + TITLE_HEIGHT
    size = f'xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{2 * height:g}"'
    content = chart.partition(">")[2]
    return (
        f'<svg {size} viewBox="0 {-TITLE_HEIGHT} {WIDTH} {height:g}" role="img"><style>{style}</style>'
        f'<rect y="{-TITLE_HEIGHT}" width="100%" height="100%" fill="#fff"/>'
        f'<text class="title" x="4" y="-10">{escape(title)}</text>{content}\n'
    )


def spread(heights: Sequence[float], gap: float = LABEL_GAP) -> list[float]:
    """Move labels apart so that none covers another, in the same order."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for previous, i in pairwise(order):
        placed[i] = max(placed[i], placed[previous] + gap)
    overflow = max((placed[i] for i in order), default=0.0) - (HEIGHT - BOTTOM + 8)
    if overflow > 0 and order:
        placed[order[-1]] -= overflow
        for following, i in pairwise(order[::-1]):
            placed[i] = min(placed[i], placed[following] - gap)
    return placed


class _Scale:
    """A map from values to positions on the drawing."""

    def __init__(self, ticks: Sequence[float], values: Sequence[float], start: float, end: float) -> None:
        self.ticks, self._low, self._start, self.end = ticks, min(values), start, end
        self._factor = (end - start) / ((max(values) - min(values)) or 1.0)

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._factor


def _ticks(values: Sequence[float], whole: bool = False) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 1, high + 1) if whole else (low - 0.1 * (abs(low) or 1), high + 0.1 * (abs(high) or 1))
    found = MaxNLocator(nbins=4, integer=whole, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in found]


def _axes(x_scale: _Scale, y_scale: _Scale, x_label: str) -> str:
    floor = HEIGHT - BOTTOM
    parts = [
        f'<path class="grid" d="M{LEFT} {y_scale(tick):.1f}H{x_scale.end:.1f}"/>'
        f'<text class="tick" x="{LEFT - 4}" y="{y_scale(tick) + 3.5:.1f}" text-anchor="end">{_short(tick)}</text>'
        for tick in y_scale.ticks
    ]
    parts += [
        f'<text class="tick" x="{x_scale(tick):.1f}" y="{floor + 13}" text-anchor="middle">{_short(tick)}</text>' for tick in x_scale.ticks
    ]
    parts.append(f'<text class="tick" x="{(LEFT + x_scale.end) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def _svg(title: str, height: float, content: str) -> str:
    name = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{name}">{content}</svg>'


def _short(value: float, digits: int = 3) -> str:
    if abs(value) < 1e-9:
        return "0"
    if 10**digits - 0.5 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if 1e-3 <= abs(value) < 1e5 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def _cut(text: str, limit: int = 10) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
