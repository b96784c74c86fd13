"""Figures made from evaluated rows and training steps.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; what a colour says, a label or a mark says too. Figures are
made without pyplot, so they may be drawn in any thread.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slmsearch.evaluate.failure_modes import FailureMode
from slmsearch.evaluate.rows import EpisodeRow
from slmsearch.evaluate.statistics import wilson_interval
from slmsearch.searcher.episode import StopReason

Evaluations = Mapping[str, Sequence[EpisodeRow]]
"""Name of a policy -> its rows; drawn in this order, the first one as the quiet reference."""
Steps = Sequence[tuple[int, Mapping[str, float]]]
"""Number of a training step and its metrics."""

COLOURS = ("#8a8a8a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Grey for the reference, then Okabe & Ito."""
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
INK, FAINT = "#222222", "#d9d9d9"
DPI = 150
SMOOTHED_STEPS = 10
"""Steps a moving mean looks back over."""


def draw_reward_curve(steps: Steps) -> Figure:
    """Draw the mean reward over training, with the moving mean, and the tool calls beside it where they are known."""
    return _draw_panels(steps, {"reward/mean": "Mean reward per step", "episode/tool_calls": "Tool calls per question"})


def draw_losses(steps: Steps) -> Figure:
    """Draw loss, gradient norm and entropy over training, those that are known."""
    return _draw_panels(steps, {"loss": "Loss", "optim/grad_norm": "Gradient norm", "policy/entropy": "Entropy of the policy, nats"})


def _draw_panels(steps: Steps, titles: Mapping[str, str]) -> Figure:
    """Draw one curve below the other; the first is drawn in any case."""
    panels = [name for name in titles if any(name in metrics for _, metrics in steps)] or [next(iter(titles))]
    figure = new_figure(7.0, 1.0 + 2.2 * len(panels))
    for i, name in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, i + 1)
        points = [(step, metrics[name]) for step, metrics in steps if name in metrics]
        _draw_curve(axes, points)
        set_title(axes, titles[name])
        if i == 0 and points:
            axes.legend(frameon=False, loc="best", fontsize=8)
    axes.set_xlabel("training step")
    return figure


def draw_stops_over_training(steps: Steps) -> Figure:
    """Draw the moving mean of each stop reason's share over training; marks tell the lines apart as well as colours."""
    figure = new_figure(7.0, 3.4)
    axes = figure.add_subplot(1, 1, 1)
    clean(axes, grid="y")
    drawn = 0
    for number, reason in enumerate(StopReason):
        points = [(step, 100 * metrics[f"stop/{reason}"]) for step, metrics in steps if f"stop/{reason}" in metrics]
        if any(value for _, value in points):
            style: dict[str, Any] = {
                "color": COLOURS[1 + number],
                "marker": MARKERS[number],
                "markevery": max(1, len(points) // 8),
                "markersize": 5,
            }
            axes.plot([step for step, _ in points], _smooth([value for _, value in points]), label=_pretty(reason), **style)
            drawn += 1
    axes.set_xlabel("training step")
    axes.set_ylabel(f"episodes, % (mean of {SMOOTHED_STEPS} steps)")
    if not drawn:
        axes.text(0.5, 0.5, "no steps yet", ha="center", va="center", transform=axes.transAxes, color=INK)
    set_title(axes, "How episodes ended, over training", _draw_legend_above(axes, drawn))
    return figure


def _draw_curve(axes: Axes, points: Sequence[tuple[int, float]]) -> None:
    clean(axes, grid="y")
    if not points:
        axes.text(0.5, 0.5, "no steps yet", ha="center", va="center", transform=axes.transAxes, color=INK)
        return
    numbers, values = [step for step, _ in points], [value for _, value in points]
    smoothed = _smooth(values)
    axes.plot(numbers, values, color=COLOURS[0], alpha=0.55, linewidth=0.9, label="each step")
    axes.plot(numbers, smoothed, color=COLOURS[1], linewidth=2.2, label=f"mean of {SMOOTHED_STEPS} steps")
    axes.annotate(f"{smoothed[-1]:.2f}", (numbers[-1], smoothed[-1]), xytext=(5, 0), textcoords="offset points", va="center", color=INK)
    axes.margins(x=0.02)


def draw_accuracy_by_kind(evaluations: Evaluations, alpha: float = 0.05) -> Figure:
    """Draw exact match by kind of question, one mark a policy, with Wilson intervals."""
    kinds = ["all", *sorted({row.kind for rows in evaluations.values() for row in rows})]
    figure = new_figure(7.0, 1.3 + (0.2 + 0.17 * len(evaluations)) * len(kinds))
    axes = figure.add_subplot(1, 1, 1)
    clean(axes, grid="x")
    for number, (name, rows) in enumerate(evaluations.items()):
        offset = _offset(number, len(evaluations), 0.7)
        for position, kind in enumerate(kinds):
            graded = [row for row in rows if not row.failed and kind in ("all", row.kind)]
            if graded:
                _draw_share(axes, position + offset, graded, number, _plain(name) if position == 0 else None, alpha)
    sizes = {kind: max((sum(kind in ("all", row.kind) for row in rows) for rows in evaluations.values()), default=0) for kind in kinds}
    axes.set_yticks(range(len(kinds)), [f"{_pretty(kind)}  (n = {sizes[kind]})" for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlim(0, 109)  # room for the label of a mark at 100 %
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"right answers, % (bars: {100 * (1 - alpha):g} % intervals)")
    set_title(axes, "Exact match by kind of question", _draw_legend_above(axes, len(evaluations)))
    return figure


def _draw_share(axes: Axes, height: float, rows: Sequence[EpisodeRow], number: int, label: str | None, alpha: float) -> None:
    right = round(sum(row.exact_match for row in rows))
    share, (low, high) = 100 * right / len(rows), (100 * end for end in wilson_interval(right, len(rows), alpha))
    colour = COLOURS[number % len(COLOURS)]
    axes.plot([low, high], [height, height], color=colour, linewidth=2, solid_capstyle="butt", alpha=0.7)
    marker = MARKERS[number % len(MARKERS)]
    axes.plot([share], [height], marker=marker, color=colour, markersize=7, linestyle="none", label=label, zorder=3)
    axes.annotate(f"{share:.0f}", (high, height), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=INK)


def draw_stop_reasons(evaluations: Evaluations) -> Figure:
    """Draw the share of episodes by stop reason, one bar a policy."""
    shares = {name: Counter(row.stop_reason for row in rows) for name, rows in evaluations.items()}
    reasons = [reason.value for reason in StopReason if any(counts[reason.value] for counts in shares.values())]
    totals = {name: max(1, len(rows)) for name, rows in evaluations.items()}
    values = {name: [100 * counts[reason] / totals[name] for reason in reasons] for name, counts in shares.items()}
    return _draw_bars(reasons, values, "How episodes ended", "episodes, %", "{:.0f}")


def draw_failure_modes(evaluations: Evaluations) -> Figure:
    """Draw how many wrong episodes broke where, one bar a policy, the most frequent first."""
    counts = {name: Counter(row.failure_mode for row in rows if row.failure_mode) for name, rows in evaluations.items()}
    total: Counter[str] = sum(counts.values(), Counter())
    known = dict.fromkeys([*(failure_mode.value for failure_mode in FailureMode), *sorted(total)])
    places = sorted((place for place in known if total[place]), key=lambda place: -total[place])
    values = {name: [float(count[place]) for place in places] for name, count in counts.items()}
    return _draw_bars(places, values, "Where wrong episodes broke", "episodes", "{:.0f}")


def _draw_bars(labels: Sequence[str], values: Mapping[str, Sequence[float]], title: str, unit: str, form: str) -> Figure:
    figure = new_figure(7.0, 1.3 + (0.2 + 0.22 * len(values)) * max(1, len(labels)))
    axes = figure.add_subplot(1, 1, 1)
    clean(axes, grid="x")
    thickness = 0.8 / max(1, len(values))
    for number, (name, numbers) in enumerate(values.items()):
        heights = [position + _offset(number, len(values), 0.8) for position in range(len(labels))]
        bars = axes.barh(heights, numbers, height=thickness * 0.9, color=COLOURS[number % len(COLOURS)], label=_plain(name))
        axes.bar_label(bars, [form.format(value) for value in numbers], padding=3, fontsize=8, color=INK)
    axes.set_yticks(range(len(labels)), [_pretty(label) for label in labels])
    axes.set_ylim(max(1, len(labels)) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.set_xlabel(unit)
    if not labels:
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes, color=INK)
    set_title(axes, title, _draw_legend_above(axes, len(values)))
    return figure


def write_figures(directory: Path, figures: Mapping[str, Figure], formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write figures as `<name>.<format>`; the same figures give the same bytes.

    Args:
        directory: where, made if missing.
        figures: name -> figure.
        formats: `png`, `svg`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    undated = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    paths = []
    with rc_context({"svg.hashsalt": "slmsearch", "svg.fonttype": "none"}):
        for name, figure in figures.items():
            for kind in formats:
                path = directory / f"{name}.{kind}"
                figure.savefig(path, dpi=DPI, metadata=undated[kind])
                paths.append(path)
    return paths


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the moving mean of the last steps."""
    return [sum(part) / len(part) for part in (values[max(0, i + 1 - SMOOTHED_STEPS) : i + 1] for i in range(len(values)))]


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure, inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def clean(axes: Axes, grid: Any) -> None:
    """Remove what says nothing; `grid` names the axis whose lines stay."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.grid(axis=grid, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)


def set_title(axes: Axes, text: str, lines_below: int = 0) -> None:
    """Set a title on the left, with room for lines of a legend below it."""
    axes.set_title(text, loc="left", fontsize=11, fontweight="bold", color=INK, pad=8 + 17 * lines_below)


def _draw_legend_above(axes: Axes, entries: int) -> int:
    """Draw the legend between title and axes; return how many lines it takes."""
    if not axes.get_legend_handles_labels()[0]:
        return 0
    columns = min(entries, 3)
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, fontsize=9, borderpad=0.2, columnspacing=1.2)
    return -(-entries // columns)


def _offset(number: int, count: int, spread: float) -> float:
    """Place the `number`-th of `count` marks around a tick, over `spread` of its room."""
    return spread * ((number + 0.5) / count - 0.5)


def _pretty(name: str) -> str:
    return _plain(name.replace("_", " "))


def _plain(name: str) -> str:
    # matplotlib reads `$...$` as mathematics, and names come from outside.
    return name.replace("$", r"\$")
