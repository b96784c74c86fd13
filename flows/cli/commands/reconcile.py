"""The command that brings states to the truth: reconcile."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.cli.session import Session, command

if TYPE_CHECKING:
    from tasks.reconcile import Fixed


def register(cli: click.Group) -> None:
    """Add the commands of this module to the command line."""
    cli.add_command(reconcile)


_group = click.Group()


@command(_group, "reconcile")
def reconcile(session: Session) -> None:
    """End what shows as running and is not, in Prefect and in MLflow, and say why; report device slots that nobody holds.

    `slmsearch up` does it all the time, the deployment `reconcile` every night. Run it before a worker of your own is started.
    """
    from flows.ops.api import prefect_api

    with prefect_api(session.config):
        from flows.reconcile import reconcile_here

        fixed = reconcile_here(session.config)
    session.finish({"fixed": [asdict(item) for item in fixed]}, _render(fixed))


def _render(fixed: "list[Fixed]") -> str:
    return "\n".join(item.describe() for item in fixed) or "all states are true: nothing shows as running that is not"
