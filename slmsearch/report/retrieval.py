"""What is shown of a retrieval report: tables for a terminal, and the figure."""

from collections.abc import Mapping
from typing import Any

from slmsearch.evaluate.retrieval import METRICS, RETRIEVERS
from slmsearch.report.page.charts import Bar, interval_chart
from slmsearch.report.page.sections import Block
from slmsearch.report.tables import NONE, Table, difference, number, percent, share

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
            shown = difference(gain["mean"], gain["low"], gain["high"], gain["p"])
            lines.append(f"{TITLES.get(metric, 'MRR'):<14} hybrid - {gain['over']:<8} {shown}")
    return "\n".join(lines)


def draw_retrieval(result: Mapping[str, Any]) -> Block:
    """Draw each metric with its interval, a row per way of ranking."""
    shown = [(style, name, result["retrievers"][name]) for style, name in enumerate(RETRIEVERS) if name in result["retrievers"]]
    bars = []
    for metric in METRICS:
        for style, name, of in shown:
            if of[metric] is not None:
                low, high = of["intervals"][metric]
                label = f"{TITLES[metric]}, {name}"
                bars.append(Bar(label, 100 * of[metric], 100 * low, 100 * high, percent(of[metric]), style))
    title = f"Where the gold was found, % of {result['n']} questions"
    return Block(title, chart=interval_chart(title, bars))


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
    return share(of[metric], *of["intervals"][metric])
