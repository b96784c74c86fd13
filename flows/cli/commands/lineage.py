"""Commands about where results come from: lineage, reproduce."""

from dataclasses import asdict
from pathlib import Path

import click

from flows.cli.session import Session, cli, command


@command(cli, "lineage")
@click.argument("target")
@click.option("--verify", "again", is_flag=True, help="Hash every stored content again and name what changed; exit code 1 if anything did.")
def lineage(session: Session, target: str, again: bool) -> None:
    """Say what TARGET was made from and what was made from it, as far as it is recorded.

    TARGET is an adapter's directory, name/version, models:/name@alias, a content key of an index version, evaluation or training run, or
    an MLflow run id. Settings given here (flags: on top of those recorded, files: in their place) are compared with those recorded, and
    the stages that would run again are named.
    """
    from flows.cli.lineage_text import render
    from flows.ops.lineage import trace

    found = trace(session.config, target, again, session.config_beside if session.is_configured else None)
    session.finish(found.to_dict(), render(found), negative=not found.as_recorded)


@command(cli, "reproduce")
@click.argument("version")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where to run it; default: a new folder, removed when equal.")
def reproduce(session: Session, version: str, out: Path | None) -> None:
    """Run the flow that made a model version again from its recorded settings, in a data directory of its own, and compare."""
    from flows.ops.reproduce import render_comparison, reproduce_version

    found = reproduce_version(session.config, version, out, session.say)
    session.finish(asdict(found), render_comparison(found), negative=not found.same)
