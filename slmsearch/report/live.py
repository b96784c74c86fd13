"""A training run as it goes: a page that loads itself again, and lines for a terminal."""

import math
from collections.abc import Sequence

from slmsearch.learn.reports import StepReport
from slmsearch.report.page.render import render
from slmsearch.report.page.results import RunResults
from slmsearch.report.page.sections import curve, training_charts

SHOWN = (("reward", "reward/mean"), ("accuracy", "accuracy"), ("loss", "loss"))
"""Word in a terminal -> curve."""
LEVELS = "▁▂▃▄▅▆▇█"


def render_live(reports: Sequence[StepReport], title: str, status: str, refresh_s: int | None) -> str:
    """Render the steps so far as a page.

    Args:
        reports: steps.
        title: what is trained.
        status: how far it is.
        refresh_s: seconds after which the page loads itself again; None for the last one.
    """
    return render("live.html", title=title, status=status, refresh_s=refresh_s, blocks=training_charts(_as_run(reports, title)))


def draw_lines(reports: Sequence[StepReport], width: int = 60) -> list[str]:
    """Draw reward, accuracy and loss as one line of text each: the course, the last value, the span."""
    run = _as_run(reports, "")
    lines = []
    for word, name in SHOWN:
        values = [value for _, value in curve(run, name)]
        if values:
            lines.append(f"{word:<9}{draw_spark(values, width)} {values[-1]:.3f}  ({min(values):.3f} to {max(values):.3f})")
    return lines


def describe_step(report: StepReport, total: int) -> str:
    """Say a step in one line; `total` 0 is not known."""
    run = _as_run([report], "")
    values = [f"{word} {points[0][1]:.3f}" for word, name in SHOWN if (points := curve(run, name))]
    collapse = f"  {report.collapse.describe()}" if report.collapse else ""
    return f"step {report.step}{f'/{total}' if total else ''}  {'  '.join(values)}{collapse}"


def draw_spark(values: Sequence[float], width: int) -> str:
    """Draw values as blocks of eight heights, at most `width` of them, each the mean of its neighbours."""
    if not values or width < 1:
        return ""
    size = -(-len(values) // width)
    means = [math.fsum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, span = min(means), max(means) - min(means)
    if not span > 0:
        return LEVELS[3] * len(means)
    return "".join(LEVELS[min(len(LEVELS) - 1, int((value - low) / span * len(LEVELS)))] for value in means)


def _as_run(reports: Sequence[StepReport], name: str) -> RunResults:
    environment = "planner" if any("plan/gain" in report.metrics for report in reports[-1:]) else "searcher"
    return RunResults("", name, environment, "RUNNING", "", {}, steps=reports)
