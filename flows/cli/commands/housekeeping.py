"""The command that frees space: housekeeping."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.cli import exits
from flows.cli.session import Session, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.housekeeping import Item


def register(cli: click.Group) -> None:
    """Add the commands of this module to the command line."""
    cli.add_command(housekeeping)


_group = click.Group()
SHOWN = 3
"""Things named of each kind; `--json` names all."""


@command(_group, "housekeeping")
@click.option("--apply", "deed", is_flag=True, help="Take it away; without this it is only said.")
@click.option("--older-than", type=click.FloatRange(min=0), default=14.0, show_default=True, help="Days that must have passed since.")
@click.option("--keep-versions", type=click.IntRange(0), default=3, show_default=True, help="Newest versions of each model that stay.")
def housekeeping(session: Session, deed: bool, older_than: float, keep_versions: int) -> None:
    """Say what nothing needs any more, and take it away with --apply: checkpoints, corpora, indexes, evaluations, trainings, traces, runs.

    Never what a champion (any alias), CURRENT, a live run or the configuration needs, with all they were made from.
    """
    from tasks.housekeeping import Rules, carry_out, plan

    rules = Rules(older_than, keep_versions)
    if deed:
        items, failed = carry_out(session.config, rules)
        kept = {}
    else:
        planned = plan(session.config, rules)
        items, failed, kept = list(planned.items), [], asdict(planned.used)
    result = {"applied": deed, "items": [asdict(item) for item in items], "failed": failed, "in_use": kept}
    rows = [*_rows(items), *(f"could not go: {line}" for line in failed)]
    rows.append(_verdict(items, deed))
    session.finish(result, "\n".join(rows))
    if failed:
        raise SystemExit(exits.MISSING)


def _rows(items: "Sequence[Item]") -> list[str]:
    kinds = dict.fromkeys(item.kind for item in items)
    rows = []
    for kind in kinds:
        mine = [item for item in items if item.kind == kind]
        shown = ", ".join(item.key for item in mine[:SHOWN]) + (" ..." if len(mine) > SHOWN else "")
        rows.append(f"{kind:<13}{len(mine):>5}  {sum(item.num_bytes for item in mine) / 1e6:>9.1f} MB  {shown}")
    return rows


def _verdict(items: "Sequence[Item]", deed: bool) -> str:
    size = sum(item.num_bytes for item in items) / 1e6
    if not items:
        return "nothing may go: everything is needed or young"
    if deed:
        return f"{len(items)} things deleted, {size:.1f} MB freed; `mlflow gc` frees what deleted runs held"
    return f"{len(items)} things may go, {size:.1f} MB; nothing was changed: --apply takes them away"
