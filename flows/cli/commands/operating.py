"""Commands that run flows and look after an installation."""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import FOLDER, LIVE, MISSING, Session, cli, command, ops, option
from slmsearch.foreign import without_credentials

if TYPE_CHECKING:
    from tasks.housekeeping import Item


APPROVAL_S = 86_400.0
"""Time that `--approve` waits unless `tracking.approval_s` says otherwise."""
FLOW_NAMES = ("train-and-eval", "train-planner", "evaluate", "nightly", "refresh", "reindex", "validate")


@command(cli, "run")
@click.argument("flow", type=click.Choice(FLOW_NAMES))
@click.option("--here", is_flag=True, help="Run in this process even if `slmsearch up` has a worker.")
@LIVE
@click.option("--approve", is_flag=True, help="Ask on the run's page in Prefect before a promotion.")
@click.option(
    "--if-worth-it",
    is_flag=True,
    help="Train only if a forecast says that it is worth its time; else exit code 1 (3: no forecast).",
)
def run(session: Session, flow: str, here: bool, live: bool, approve: bool, if_worth_it: bool) -> None:
    """Run a flow, on the worker of `slmsearch up` if any.

    Without a worker the flow runs in this process.
    """
    from flows.cli.text import render_result

    if live and not flow.startswith("train-"):
        raise click.UsageError(f"--live shows a training, and {flow} has none; leave it out")
    if approve and not flow.startswith("train-"):
        raise click.UsageError(f"--approve is for a promotion, and {flow} promotes nothing; leave it out")
    if if_worth_it and not flow.startswith("train-"):
        raise click.UsageError(f"--if-worth-it is for a training, and {flow} has none; leave it out")
    if flow == "refresh" and session.config.corpus.pages is None:
        raise click.UsageError("refresh reads the documents that corpus.pages names; give the settings of the champion with --config")
    if if_worth_it:
        session.override(forecast__if_worth_it=True)
    if flow == "train-planner":
        session.override(environment="planner")
    if approve and not session.config.tracking.approval_s:
        session.override(tracking__approval_s=APPROVAL_S)
    result = session.run(flow, here, live)
    negative = result.get("decision") == "reject" or result.get("state") in ("regressed", "held back")
    session.finish(result, render_result(result, session.config.paths, session.config.decision), negative)


@command(cli, "reindex")
@click.option("--here", is_flag=True, help="Run in this process even if `slmsearch up` has a worker.")
def reindex(session: Session, here: bool) -> None:
    """Validate the corpus and rebuild the current index.

    Builds the index version of the configured corpus and makes it the current one.
    """
    result = session.run("reindex", here)
    session.finish(result, f"index {result['index_key']} of corpus {result['data_digest']} is current")


@command(cli, "up", endless=True)
@option("--port", type=click.IntRange(1, 65535), default=4200, help="Port of Prefect.")
@option("--mlflow-port", type=click.IntRange(1, 65535), default=5000, help="Port of MLflow.")
def up(session: Session, port: int, mlflow_port: int) -> None:
    """Start Prefect, MLflow and a worker; Ctrl-C stops them.

    Also creates the work pool, limits and deployments. Runs of the deployments take the settings given here as their defaults.
    """
    from flows.ops.up import serve

    if port == mlflow_port:
        raise click.UsageError(f"Prefect and MLflow cannot share port {port}; give another --port or --mlflow-port")
    session.say_where()
    serve(session.config, session.base, port, mlflow_port, session.say)
    session.finish({"stopped": True}, "stopped")


@command(cli, "init")
@click.argument("folder", type=FOLDER, default=".")
def init(session: Session, folder: Path) -> None:
    """Write a small project into FOLDER.

    The files are settings.yaml, .env.example, prefect.yaml and README.md. The command writes nothing if one of them exists.
    """
    from slmsearch.errors import ConfigError
    from slmsearch.package_data import package_data

    templates = sorted(Path(__file__).parents[1].joinpath("project").iterdir())
    files = {folder / source.name: source for source in [*templates, package_data("deployments/prefect.yaml")]}
    if there := [path.name for path in files if path.exists()]:
        raise ConfigError(f"{folder} already holds {', '.join(there)}; nothing was written, name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, source in files.items():
        path.write_bytes(source.read_bytes())
    written = [str(path) for path in files]
    settings = shlex.quote(str(folder / "settings.yaml"))
    session.finish({"written": written}, "\n".join([*written, f"next    slmsearch run train-and-eval --config {settings}"]))


@command(cli, "config")
@click.option("--presets", is_flag=True, help="List the presets that --config takes by name.")
def config(session: Session, presets: bool) -> None:
    """Print every resolved setting, secrets masked."""
    import yaml

    from flows.runtime.settings import masked, preset_files

    if presets:
        found = {name: first_comment(path) for name, path in preset_files().items()}
        session.finish(found, "\n".join(f"{name:<20} {what}" for name, what in found.items()))
        return
    values = masked(session.config)
    session.finish(values, yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip())


def first_comment(path: Path) -> str:
    """Return the first sentence of the comment at the start of a file."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return " ".join(line.lstrip("# ") for line in lines).partition(". ")[0].rstrip(".")


SHOWN = 3
"""Items that housekeeping names of each kind; `--json` names all."""


@command(ops, "deploy")
@option("--pool-type", choices=["process", "docker", "kubernetes"], default="process", help="Kind of a new pool: what runs its flows.")
@click.option(
    "--base-job-template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON that says how the pool starts a flow run, such as deployments/kubernetes/base-job-template.json.",
)
def deploy(session: Session, pool_type: str, base_job_template: Path | None) -> None:
    """Create pool, limits and deployments in Prefect.

    PREFECT_API_URL names the server. Runs of the deployments take the settings given here as their defaults.
    """
    from flows.ops.deploying import deploy_flows
    from flows.runtime.api import require_api
    from flows.runtime.pool import prepare_pool, read_template

    template, config = read_template(base_job_template) if base_job_template else None, session.config
    require_api(config.paths)
    prepare_pool(config.train, pool_type, template)
    deploy_flows(config, session.base, session.say)
    session.finish({"deployed": True, "pool_type": pool_type}, "deployed")


@command(ops, "worker", endless=True)
@click.option("--name", help="Name in the pool; default: the machine's name.")
@option("--limit", type=click.IntRange(0), default=0, help="Flow runs at a time; 0 takes any number.")
@click.option("--check", is_flag=True, help="Only report whether the worker of this name is alive.")
def worker(session: Session, name: str | None, limit: int, check: bool) -> None:
    """Run the flow runs of the work pool.

    SIGTERM and Ctrl-C cancel its flow runs and wait for them.
    """
    from flows.ops.worker import check_worker, serve_worker, worker_name
    from flows.runtime.api import require_api

    config, name = session.config, name or worker_name()
    require_api(config.paths)
    if check:
        silent = check_worker(name)
        session.finish({"worker": name, "reported_s_ago": silent}, f"worker {name} reported {silent:.0f} s ago")
        return
    serve_worker(config.paths, config.tracking, config.train, name, limit, session.say)
    session.finish({"stopped": True}, "stopped")


@command(ops, "doctor")
@click.option("--fix", is_flag=True, help="Apply the remedies that lose nothing.")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
def doctor(session: Session, fix: bool, strict: bool) -> None:
    """Find problems of the installation and their remedies.

    Checks versions, servers, limits, pools, disk, leftovers, and whether others can get in. Exit code 1 if there is an error. The preflight
    of a training checks the training itself.
    """
    from flows.ops.doctor.checks import examine, render
    from flows.ops.doctor.collect import look, remove_leftovers

    config = session.config
    facts = look(config.paths, config.retrieval, config.tracking)
    findings, done = examine(facts), list[str]()
    if fix:
        done = remove_leftovers(facts, config.paths, config.tracking)
        findings = examine(look(config.paths, config.retrieval, config.tracking))
    failing = ("error", "warning") if strict else ("error",)
    wrong = any(finding.severity in failing for finding in findings)
    session.finish({"findings": [asdict(finding) for finding in findings], "fixed": done}, render(findings, done), negative=wrong)


@command(ops, "reconcile")
def reconcile(session: Session) -> None:
    """End runs that show as running but are not.

    Does so in Prefect and in MLflow, and says why. `slmsearch up` does it all the time, the deployment `reconcile` every night. Run it
    before you start a worker of your own.
    """
    from flows.runtime.api import prefect_api

    with prefect_api(session.config.paths):
        from flows.reconcile import reconcile_here

        fixed = reconcile_here(session.config.paths, session.config.tracking)
    text = "\n".join(item.describe() for item in fixed) or "all run states are correct"
    session.finish({"fixed": [asdict(item) for item in fixed]}, text)


@command(ops, "housekeeping")
@click.option("--apply", "deed", is_flag=True, help="Delete the data; without this option they are only listed.")
@option("--older-than", type=click.FloatRange(min=0), default=14.0, help="Smallest age in days; newer data stay.")
@option("--keep-versions", type=click.IntRange(0), default=3, help="Number of newest versions of each model that stay.")
def housekeeping(session: Session, deed: bool, older_than: float, keep_versions: int) -> None:
    """List data that nothing needs; --apply deletes it.

    Covers checkpoints, corpora, indexes, evaluations, trainings, traces and runs. It keeps what a champion (any alias), CURRENT, a live run
    or the configuration needs, with everything these were made from.
    """
    from tasks.housekeeping import Housekeeping, Rules

    work = Housekeeping(session.config, Rules(older_than, keep_versions))
    if deed:
        items, failed = work.carry_out()
        kept = {}
    else:
        planned = work.plan()
        items, failed, kept = list(planned.items), [], planned.used
    result = {"applied": deed, "items": [asdict(item) for item in items], "failed": failed, "in_use": kept}
    session.finish(
        result, "\n".join([*_rows(items, deed, session.config.retrieval.chroma_url), *(f"could not go: {line}" for line in failed)])
    )
    if failed:
        raise SystemExit(MISSING)


def _rows(items: "Sequence[Item]", deed: bool, chroma_url: str | None = None) -> list[str]:
    rows = []
    for kind in dict.fromkeys(item.kind for item in items):
        mine = [item for item in items if item.kind == kind]
        shown = ", ".join(item.key for item in mine[:SHOWN]) + (" ..." if len(mine) > SHOWN else "")
        rows.append(f"{kind:<13}{len(mine):>5}  {sum(item.num_bytes for item in mine) / 1e6:>9.1f} MB  {shown}")
    size = sum(item.num_bytes for item in items) / 1e6
    if not items:
        verdict = "nothing to delete: everything is in use or newer than --older-than"
    elif deed:
        verdict = f"{len(items)} things deleted, {size:.1f} MB freed; `mlflow gc` frees what deleted runs held"
    else:
        verdict = f"{len(items)} things may go, {size:.1f} MB; nothing was changed: --apply takes them away"
    if chroma_url and any(item.kind == "indexes" for item in items):
        place = without_credentials(chroma_url)
        verdict += (
            f"\nthe disk of the Chroma server at {place} stays as full: it keeps the files of deleted collections; see docs/retrieval.md"
        )
    return [*rows, verdict]
