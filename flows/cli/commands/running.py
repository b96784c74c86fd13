"""Commands that run flows and servers: run, reindex, up, config."""

from typing import Any

import click

from flows.cli.session import Session, cli, command

FLOW_NAMES = ("train-and-eval", "train-planner", "evaluate", "nightly", "reindex", "validate")


@command(cli, "run")
@click.argument("flow", type=click.Choice(FLOW_NAMES))
@click.option("--here", is_flag=True, help="Run in this process even if `slmsearch up` has a worker.")
def run(session: Session, flow: str, here: bool) -> None:
    """Run a flow: on the worker of `slmsearch up` where one is up, else in this process."""
    from flows.cli.look import where_to_look
    from flows.cli.text import render_result
    from flows.ops.runner import run_flow

    if flow == "train-planner":
        session.override(environment="planner")
    result = run_flow(flow, session.config, session.say, here)
    session.say(where_to_look(session.config, result))
    session.finish(
        result, render_result(result, session.config), negative=result.get("decision") == "reject" or result.get("state") == "regressed"
    )


@command(cli, "reindex")
@click.option("--here", is_flag=True, help="Run in this process even if `slmsearch up` has a worker.")
def reindex(session: Session, here: bool) -> None:
    """Validate, build the index version of the configured corpus and make it the current one."""
    from flows.cli.look import where_to_look
    from flows.ops.runner import run_flow

    result = run_flow("reindex", session.config, session.say, here)
    session.say(where_to_look(session.config, result))
    session.finish(result, f"index {result['index_key']} of corpus {result['data_digest']} is current")


@command(cli, "up")
@click.option("--port", type=click.IntRange(1, 65535), default=4200, show_default=True, help="Port of Prefect.")
@click.option("--mlflow-port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port of MLflow.")
def up(session: Session, port: int, mlflow_port: int) -> None:
    """Start Prefect, MLflow, pool, limits, deployments and a worker; Ctrl-C stops them all.

    Runs of the deployments take the settings given here as their defaults.
    """
    from flows.ops.up import serve

    serve(session.config, port, mlflow_port, session.say)
    session.finish({"stopped": True}, "stopped")


@command(cli, "config")
def config(session: Session) -> None:
    """Print every setting as it is resolved; secrets are masked."""
    import yaml

    from flows.cli.settings import masked

    values: dict[str, Any] = masked(session.config)
    session.finish(values, yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip())
