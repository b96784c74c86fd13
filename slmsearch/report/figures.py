"""The charts of a run as files."""

from collections.abc import Mapping
from pathlib import Path

from slmsearch.report.page.charts import to_file
from slmsearch.report.page.results import RunResults
from slmsearch.report.page.sections import Block, run_parts


def run_charts(run: RunResults) -> dict[str, Block]:
    """Return the charts of a run's page by their file's name."""
    return {block.file: block for part in run_parts(run) for block in part.blocks if block.chart}


def write_charts(directory: Path, charts: Mapping[str, Block]) -> list[Path]:
    """Write charts as `<name>.svg`; the same charts give the same bytes.

    Args:
        directory: where, made if missing.
        charts: name -> a block with a chart.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, block in charts.items():
        paths.append(directory / f"{name}.svg")
        paths[-1].write_text(to_file(block.chart, block.caption), encoding="utf-8")
    return paths
