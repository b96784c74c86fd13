"""Commands that measure: `slmsearch bench ...`."""

from pathlib import Path

import click

from flows.session import Session, command


def register(cli: click.Group) -> None:
    """Add the group to the command line."""
    cli.add_command(bench)


@click.group("bench")
def bench() -> None:
    """Measure side by side; results go to `bench/` in the MLflow directory."""


@command(bench, "learning")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds of GRPO, separated by commas.")
def learning(session: Session, seeds: str) -> None:
    """Train GRPO with several seeds and compare it with its start and its controls; writes learning.json."""
    from flows.settings import find_project_root
    from slmsearch.bench.learning import render_learning, run_learning, save_learning

    config = session.config
    try:
        chosen = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--seeds {seeds!r} is no list of numbers: write 0,1,2") from error
    clean = find_project_root() / "data" / "models" / "tiny-searcher-clean"
    result = run_learning(config, chosen, str(clean) if clean.is_dir() else None, session.say)
    save_learning(result, Path(config.paths.mlruns_dir) / "bench" / "learning.json")
    session.finish(result, render_learning(result))
