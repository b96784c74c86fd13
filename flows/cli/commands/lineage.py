"""Commands about where results come from: lineage, reproduce."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import Session, cli, command

if TYPE_CHECKING:
    from slmsearch.lineage.graph import Step
    from slmsearch.lineage.verify import Verified
    from tasks.lineage import Lineage

TOLD = {
    "source": ("kind", "world.pages", "world.seed", "count", "seed", "limit_pages", "split_seed"),
    "corpus": ("pages", "questions", "source.pages", "source.questions", "source.revision"),
    "index": ("passages", "max_passage_chars", "chunker_version", "recall"),
    "eval": ("policy", "n"),
    "model": ("path",),
    "training": ("steps", "packages.torch", "packages.trl"),
    "adapter": ("sha256",),
    "version": ("aliases", "run"),
    "run": ("stage", "status"),
}
"""Facts shown of each kind; `--json` has them all."""
MAX_CHARS = 70


@command(cli, "lineage")
@click.argument("target")
@click.option("--verify", "again", is_flag=True, help="Hash every stored content again and name what changed; exit code 1 if anything did.")
def lineage(session: Session, target: str, again: bool) -> None:
    """Say what TARGET was made from and what was made from it, as far as it is recorded.

    TARGET is an adapter's directory, name/version, models:/name@alias, a content key of an index version, evaluation or training run, or
    an MLflow run id.
    """
    from tasks.lineage import trace

    found = trace(session.config, target, again)
    session.finish(found.to_dict(), render(found), negative=bool(found.verified and found.verified.changes))


@command(cli, "reproduce")
@click.argument("version")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where to run it; default: a new folder, removed when equal.")
def reproduce(session: Session, version: str, out: Path | None) -> None:
    """Run the flow that made a model version again from its recorded settings, in a data directory of its own, and compare."""
    from flows.ops.reproduce import render_comparison, reproduce_version

    found = reproduce_version(session.config, version, out, session.say)
    session.finish(asdict(found), render_comparison(found), negative=not found.same)


def render(lineage: "Lineage") -> str:
    """Render a lineage."""
    blocks = ["\n".join(_rows(lineage.up))]
    if lineage.down:
        blocks.append("\n".join(["made from it:", *_rows(lineage.down)]))
    if lineage.gaps:
        blocks.append("\n".join(["not known:", *(f"  {gap}" for gap in lineage.gaps)]))
    if lineage.verified is not None:
        blocks.append(_verified(lineage.verified))
    return "\n\n".join(blocks)


def _rows(steps: "Iterable[Step]") -> list[str]:
    rows = []
    for step in steps:
        kind, key = step.name
        facts = step.node.facts if step.node else {}
        told = [f"{name.rpartition('.')[2]} {facts[name][:MAX_CHARS]}" for name in TOLD.get(kind, ()) if facts.get(name)]
        told += [] if step.node or kind == "embedder" else ["not stored here"]
        label = f"{'  ' * step.depth}{kind}{' (' + step.role + ')' if step.role else ''}"
        rows.append(f"{label:<30} {key}  {', '.join(told)}".rstrip())
    return rows


def _verified(verified: "Verified") -> str:
    changes = verified.changes
    head = f"hashed again: {len(verified.checked)} things, {f'{len(changes)} not as recorded:' if changes else 'all as recorded'}"
    unchecked = (f"  not checked: {text}" for text in verified.unchecked)
    return "\n".join([head, *(f"  {change.describe()}" for change in changes), *unchecked])
