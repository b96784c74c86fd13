"""The page as one file that requests nothing and executes only its own script; and its charts as files."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from slmsearch.foreign import visible
from slmsearch.report.page.browse import MAX_EPISODES, choose_episodes, pack_episodes, pair_sides, shorten, to_script_json
from slmsearch.report.page.charts import to_file
from slmsearch.report.page.results import RunResults
from slmsearch.report.page.sections import Block, run_parts
from slmsearch.report.page.side_by_side import side_by_side
from slmsearch.report.page.suspects import RULES

SAMPLE_CHARS = 1000
"""Number of characters kept of one text of a training rollout."""
FILES = files("slmsearch.report.page") / "files"


def render_page(runs: Sequence[RunResults], made: str, max_episodes: int = MAX_EPISODES) -> str:
    """Render one run or several as a page.

    Args:
        runs: at least one.
        made: time of the report.
        max_episodes: largest number of episodes of all runs together."""
    chosen = choose_episodes(runs, max_episodes)
    packed, held, text_limit = pack_episodes(chosen)
    names = [visible(run.name) for run in runs]
    pairs = [[(number, visible(policy)) for number, policy in pair] for pair in pair_sides(runs)]
    labels = {"runs": names, "rules": {name: meaning for name, (meaning, _) in RULES.items()}, "pairs": pairs}
    style, script = read_file("chart.css") + read_file("page.css"), read_file("page.js")
    policy = {  # the browser runs nothing but the page's own script
        "default-src": "'none'",
        "style-src": f"'{_digest(style)}'",
        "script-src": f"'{_digest(script)}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = lambda text: visible(str(text))
    environment.filters["short"] = lambda text: shorten(visible(str(text)), SAMPLE_CHARS)
    environment.filters["markup"] = Markup
    return environment.from_string(read_file("page.html")).render(
        style=Markup(style),
        script=Markup(script),
        policy=Markup("; ".join(f"{name} {value}" for name, value in policy.items())),
        title=", ".join(names),
        runs=[(run, run_parts(run)) for run in runs],
        together=side_by_side(runs) if len(runs) > 1 else None,
        made=made,
        held=held,
        total=sum(len(evaluation.rows) for run in runs for evaluation in run.evaluations.values()),
        text_limit=text_limit,
        episodes=Markup(packed),
        labels=Markup(to_script_json(labels)),
    )


def run_charts(run: RunResults) -> dict[str, Block]:
    """Return the charts of a run's page by their file's name."""
    return {block.file: block for part in run_parts(run) for block in part.blocks if block.chart}


def write_charts(directory: Path, charts: Mapping[str, Block]) -> list[Path]:
    """Write charts, blocks by name, as `<name>.svg` into a directory, created if missing; the same charts give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, block in charts.items():
        paths.append(directory / f"{name}.svg")
        paths[-1].write_text(to_file(block.chart, block.caption), encoding="utf-8")
    return paths


def read_file(name: str) -> str:
    """Read a file that belongs to the pages."""
    return (FILES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    # The browser hashes the text between the tags, to the last byte.
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
