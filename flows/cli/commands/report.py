"""Commands that show stored results to people: report, plot."""

from pathlib import Path

import click

from flows.cli.session import Session, cli, command

RUN = "RUN is an MLflow run id (or its beginning), the name of a flow run, or `latest`."


@command(
    cli,
    "report",
    help=f"""Make one page of a run, or of several side by side; it opens without a network.

    {RUN} The page is also stored in the runs' artifacts in MLflow.""",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: reports/<run>.html in the MLflow directory.")
@click.option("--episodes", type=click.IntRange(min=0), help="Episodes that can be browsed at most; default 1000.")
def report(session: Session, runs: tuple[str, ...], output: Path | None, episodes: int | None) -> None:
    """Make the report page; see the help above."""
    from flows.cli.look import short_path
    from tasks.runs import make_page

    made = make_page(runs, session.config, output, episodes)
    for warning in made["warnings"]:
        session.say(f"warning: {warning}")
    shown = "\n".join(f"  {run['name']}  {run['run_id'][:8]}  {run['decision']}".rstrip() for run in made["runs"])
    session.finish(made, f"{short_path(Path(made['page']))} ({made['bytes'] / 1e6:.1f} MB), in MLflow as {made['artifact']}\n{shown}")


@command(
    cli,
    "plot",
    help=f"""Write the charts of a run's page as SVG files, and show them where there is a screen.

    {RUN}""",
)
@click.argument("run")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Default: plots/<run> in the MLflow directory.")
@click.option("--show/--no-show", default=True, show_default=True, help="Open the folder of figures when a person is at the terminal.")
def plot(session: Session, run: str, output: Path | None, show: bool) -> None:
    """Write the charts; see the help above."""
    import sys

    from tasks.runs import plot_run

    made = plot_run(run, session.config, output)
    for warning in made["warnings"]:
        session.say(f"warning: {warning}")
    if show and sys.stdout.isatty() and not session.as_json and click.launch(made["folder"]):
        session.say("no viewer could be started here; open the files yourself")
    session.finish(made, "\n".join(made["files"]))
