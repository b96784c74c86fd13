"""What is shown of a retrieval report: tables for a terminal, and the figure."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from slmsearch.evaluate.retrieval import METRICS, RETRIEVERS
from slmsearch.report.cells import NONE, number, percent
from slmsearch.report.figures import COLOURS, INK, clean, new_figure, set_title
from slmsearch.report.tables import Table

TITLES = {
    "page_at_1": "page first",
    "page_at_5": "page in 5",
    "section_at_1": "section first",
    "section_at_5": "section in 5",
}


def render_retrieval(result: Mapping[str, Any]) -> str:
    """Render what `summarise_ranks` gives for a terminal."""
    level = f"{100 * (1 - result['alpha']):g} %"
    headers = ("ranking", *TITLES.values(), "MRR")
    rows = tuple((name, *(_share(of, metric) for metric in METRICS), number(of["mrr"], 3)) for name, of in result["retrievers"].items())
    lines = [f"{result['n']} questions, percentages with {level} intervals; MRR of the page among {result['depth']}", ""]
    lines += [Table(headers, rows).to_text(), "", _kinds(result).to_text()]
    for metric, gain in result["gains"].items():
        if gain is not None:
            shown = f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}], p {gain['p']:.4f}"
            lines.append(f"{TITLES.get(metric, 'MRR'):<14} hybrid - {gain['over']:<8} {shown}")
    return "\n".join(lines)


def render_weights(result: Mapping[str, Any]) -> str:
    """Render what `choose_weights` gives for a terminal."""
    headers = ("weight of BM25", "page first", "section in 5", "held out: page first", "section in 5")
    rows = []
    for trial in result["trials"]:
        mark = " *" if trial["lexical"] == result["chosen"] else ""
        halves = (trial["chosen_on"], trial["held_out"])
        rows.append(
            (f"{trial['lexical']:.1f}{mark}", *(percent(half[metric]) for half in halves for metric in ("page_at_1", "section_at_5")))
        )
    sizes = [result["trials"][0][half]["n"] for half in ("chosen_on", "held_out")]
    told = f"* best on the {sizes[0]} questions of one half of the pages; {sizes[1]} are held out; search uses {result['used']}"
    return f"{Table(headers, tuple(rows)).to_text()}\n\n{told}"


def draw_retrieval(result: Mapping[str, Any]) -> Figure:
    """Draw each metric with its interval, a mark per way of ranking."""
    figure = new_figure(7.0, 3.2)
    axes = figure.add_subplot(1, 1, 1)
    clean(axes, grid="y")
    shown = [name for name in RETRIEVERS if name in result["retrievers"]]
    for i, name in enumerate(shown):
        of = result["retrievers"][name]
        for place, metric in enumerate(METRICS):
            if of[metric] is None:
                continue
            low, high = of["intervals"][metric]
            x = place + 0.22 * (i - (len(shown) - 1) / 2)
            error = [[max(0.0, of[metric] - low)], [max(0.0, high - of[metric])]]
            label = name if place == 0 else None
            axes.errorbar(x, of[metric], yerr=error, fmt="osD"[i], color=COLOURS[i], capsize=3, label=label)
            axes.annotate(percent(of[metric]), (x, high), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7, color=INK)
    axes.set_xticks(range(len(METRICS)), [TITLES[metric] for metric in METRICS])
    axes.set_ylim(top=1.06)
    axes.legend(frameon=False, loc="lower left", fontsize=8)
    set_title(axes, f"Where the gold was found, {result['n']} questions")
    return figure


def _kinds(result: Mapping[str, Any]) -> Table:
    headers = ("kind", "n", *(f"{name}: page first" for name in result["retrievers"]), *(f"{name}: in 5" for name in result["retrievers"]))
    first = next(iter(result["retrievers"].values()))
    rows = []
    for kind, whole in first["kinds"].items():
        cells = [percent(of["kinds"][kind][metric]) for metric in ("page_at_1", "page_at_5") for of in result["retrievers"].values()]
        rows.append((kind, str(whole["n"]), *cells))
    return Table(headers, tuple(rows))


def _share(of: Mapping[str, Any], metric: str) -> str:
    if of[metric] is None:
        return NONE
    low, high = of["intervals"][metric]
    return f"{percent(of[metric])} ({percent(low)}-{percent(high)})"
