"""The curves of training runs as one picture, for a paper, a message or a slide: PNG or SVG by the suffix of its file.

The page has these and further curves (`page/sections.py`), smaller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.foreign import one_line
from slmsearch.report.page.charts import SMOOTHED_STEPS, smooth
from slmsearch.report.page.results import RunResults
from slmsearch.report.page.sections import curve
from slmsearch.training.reports import HELD_OUT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
COLOURS = ("#2a6fb0", "#c8551b", "#2f8f5b", "#8a4fa3", "#8c6d1f", "#5b6570")
"""Colours of runs, in order; people who confuse red and green can distinguish them."""
PANEL_SIZE = (3.9, 2.6)
"""Width and height of a panel, in inches."""
COLUMNS, DPI = 3, 160
MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class Panel:
    """A curve that is drawn if some run has it."""

    title: str
    unit: str
    metrics: tuple[str, ...]
    """Names of metrics; the first that a run has is drawn."""
    factor: float = 1.0
    """Factor from the metric's unit to the drawn one."""
    tiny: bool = False
    """True if values have any order of magnitude below 1, and are written with prefixes of units."""
    sparse: bool = False
    """True if the metric is measured only at some steps, and drawn as points instead of a moving mean."""


PANELS = (
    Panel("Reward", "mean of a step's episodes", ("reward/mean",)),
    Panel("Right answers", "% of a step's episodes", ("accuracy",), 100),
    Panel("Tool calls", "calls an episode", ("episode/tool_calls",)),
    Panel("Entropy of the policy", "nats a token", ("policy/entropy",)),
    Panel(
        "KL", "nats a token (m \u00b5 n: 10\u207b\u00b3 \u207b\u2076 \u207b\u2079)", ("policy/kl_reference", "policy/kl_sampler"), tiny=True
    ),
    Panel("Held-out reward", "mean of the questions", (HELD_OUT,), sparse=True),
    Panel("Problems split", "% of a step's plans", ("plan/decomposed_frac",), 100),
)
KL_TO = {"policy/kl_reference": "KL to the reference", "policy/kl_sampler": "KL of sampler and trainer"}


def check_suffix(path: Path) -> None:
    """Check that a file's suffix is that of a PNG or an SVG.

    Raises:
        ConfigError: it is another suffix.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path} has no suffix of a picture that can be written; name it .png or .svg")


def draw_curves(runs: Sequence[RunResults], path: Path) -> None:
    """Draw the curves of one training run, or of several in the same axes; the same runs give the same bytes.

    Raises:
        ConfigError: the suffix is neither `.png` nor `.svg`.
        EvaluationError: no run has training steps.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    check_suffix(path)
    trained = [run for run in runs if run.steps]
    panels = [panel for panel in PANELS if any(_points(run, panel)[1] for run in trained)]
    if not panels:
        raise EvaluationError(f"{', '.join(one_line(run.name) for run in runs)}: no training step is stored; give a run that trained")
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(
        {"font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "slmsearch", "text.parse_math": False}
    ):
        figure = Figure(figsize=(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * rows + 0.7), layout="constrained", dpi=DPI)
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for place, panel in zip(axes, panels, strict=False):
            _draw(place, panel, trained)
        for place in axes[len(panels) :]:
            place.set_axis_off()
        _label(figure, axes[0], trained)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else {"Software": None})


def _points(run: RunResults, panel: Panel) -> tuple[str, list[tuple[float, float]]]:
    """Return the metric of a panel that a run has, and its points; empty if it has none."""
    for name in panel.metrics:
        if points := curve(run, name):
            return name, [(step, panel.factor * value) for step, value in points]
    return panel.metrics[0], []


def _draw(place: "Axes", panel: Panel, runs: Sequence[RunResults]) -> None:
    """Draw a panel: single steps pale, their moving mean strong, with its last value at its end."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    names = set()
    for number, run in enumerate(runs):
        name, points = _points(run, panel)
        if not points:
            continue
        names.add(name)
        colour = COLOURS[number % len(COLOURS)]
        xs, ys = zip(*points, strict=True)
        shown = points if panel.sparse else smooth(points)
        if not panel.sparse:
            place.plot(xs, ys, color=colour, alpha=0.25, linewidth=0.8)
        label = f"{one_line(run.name)[:MAX_NAME]} ({len(run.steps)} steps)"
        place.plot(xs, [y for _, y in shown], color=colour, linewidth=1.8, marker="o" if panel.sparse else "", markersize=4, label=label)
        last = shown[-1][1]
        place.annotate(
            EngFormatter(places=0, sep="")(last) if panel.tiny else f"{last:.3g}",
            shown[-1],
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
        )
        for report in run.steps:
            if report.collapse is not None:
                place.axvline(report.step, color=colour, linewidth=0.8, linestyle=":")
    title = KL_TO[names.pop()] if panel.title == "KL" and len(names) == 1 else panel.title
    place.set_title(title, loc="left", fontsize=10, fontweight="bold")
    place.set(ylabel=panel.unit, xlabel="training step")
    place.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    if panel.tiny:
        place.yaxis.set_major_formatter(EngFormatter(sep=""))
    place.margins(y=0.12)
    place.set_xlim(0, 1.02 * max(run.steps[-1].step for run in runs))
    place.grid(alpha=0.25, linewidth=0.6)
    place.spines[["top", "right"]].set_visible(False)


def _label(figure: Any, place: "Axes", runs: Sequence[RunResults]) -> None:
    """Label the figure: the runs above, and the meaning of pale, strong and dotted lines below."""
    note = f"pale: single steps; strong: mean of the last {SMOOTHED_STEPS}"
    if any(report.collapse is not None for run in runs for report in run.steps):
        note += "; dotted: collapse, best weights restored"
    handles, labels = place.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(3, len(labels)), frameon=False, fontsize=10)
    figure.supxlabel(note, fontsize=8, color="#5b6570")
