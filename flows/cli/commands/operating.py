"""Commands of a service on one or many machines: deploy, worker."""

from pathlib import Path

import click

from flows.cli.session import Session, command

POOL_TYPES = ("process", "docker", "kubernetes")


def register(cli: click.Group) -> None:
    """Add the commands of this module to the command line."""
    for made in (deploy, worker):
        cli.add_command(made)


_group = click.Group()


@command(_group, "deploy")
@click.option("--pool-type", type=click.Choice(POOL_TYPES), default="process", show_default=True, help="What runs flows, for a new pool.")
@click.option(
    "--base-job-template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON of how the pool starts a flow run, such as deployments/kubernetes/base-job-template.json.",
)
def deploy(session: Session, pool_type: str, base_job_template: Path | None) -> None:
    """Make pool, limits and deployments at the Prefect server that PREFECT_API_URL names.

    Runs of the deployments take the settings given here as their defaults.
    """
    from flows.ops.api import require_api
    from flows.ops.pool import Pool, read_template
    from flows.ops.up import deploy_flows, prepare_pool

    pool, config = Pool(pool_type, read_template(base_job_template) if base_job_template else None), session.config
    require_api(config)
    prepare_pool(config, pool)
    deploy_flows(config, session.say)
    session.finish({"deployed": True, "pool_type": pool_type}, "deployed")


@command(_group, "worker")
@click.option("--name", help="Name in the pool; the machine's by default.")
@click.option("--limit", type=click.IntRange(0), default=0, show_default=True, help="Flow runs at a time; 0 takes any number.")
@click.option("--check", is_flag=True, help="Only say whether the worker of this name reports; start nothing.")
def worker(session: Session, name: str | None, limit: int, check: bool) -> None:
    """Run what is submitted to the pool; SIGTERM and Ctrl-C cancel its flow runs and wait for them."""
    from flows.ops.api import require_api
    from flows.ops.worker import check_worker, serve_worker, worker_name

    config, name = session.config, name or worker_name()
    require_api(config)
    if check:
        silent = check_worker(name)
        session.finish({"worker": name, "reported_s_ago": silent}, f"worker {name} reported {silent:.0f} s ago")
        return
    serve_worker(config, name, limit, session.say)
    session.finish({"stopped": True}, "stopped")
