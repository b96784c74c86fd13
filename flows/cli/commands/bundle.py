"""Commands about bundles: carry a training to a machine without a network, and its results back."""

import os
from pathlib import Path

import click

from flows.cli.session import FILE, FOLDER, Session, SettingsCommand, cli


class BundleCommands(click.Group):
    """Group `bundle`: `bundle import ARCHIVE`; without a command it runs `bundle write`."""

    usual = "write"
    """Command that runs if none is named."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> "tuple[str | None, click.Command | None, list[str]]":
        """Resolve a command (see `click.Group.resolve_command`); arguments that begin with an option go to `bundle write`."""
        return super().resolve_command(ctx, args if args[0] in self.commands else [self.usual, *args])


# Options that the group does not know are those of `bundle write`.
@cli.group("bundle", cls=BundleCommands, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def bundle() -> None:
    """Carry a training to a machine without a network."""


@bundle.command("write", cls=SettingsCommand)
@click.option("--target", type=FILE, required=True, help="The other machine: a line `python 3.12`, then its `pip freeze`.")
@click.option("--out", type=FOLDER, required=True, help="Folder to write; it must not exist or be empty.")
@click.option("--max-mb", type=click.IntRange(min=1), metavar="MB", help="Pack archives of at most this many megabytes.")
@click.pass_obj
def write(session: Session, target: Path, out: Path, max_mb: int | None) -> None:
    """Write a bundle: wheels, models, texts, settings, run.sh.

    Copy the folder to the other machine and start ./run.sh there: it installs without a network, checks the card, trains, and leaves one
    archive of results. The bundle never contains torch. `slmsearch bundle` alone does the same.
    """
    from flows.runtime.settings import recordable
    from slmsearch.artifacts.directories import replaced_directory
    from slmsearch.bundle.contents import collect_contents
    from slmsearch.bundle.target import parse_target, require_extras
    from slmsearch.bundle.write import write_bundle
    from slmsearch.errors import ConfigError

    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; name another folder with --out, or delete it")
    machine = parse_target(target.read_text(encoding="utf-8", errors="replace"))
    config = session.config
    require_extras(machine, config.policy, config.train)
    contents = collect_contents(config)
    settings = recordable(config.changed(contents.settings), only_changed=True)
    for elsewhere in ("paths", "tracking"):  # the other machine keeps its data and its store beside the settings
        settings.pop(elsewhere, None)
    flow = "train-planner" if config.environment == "planner" else "train-and-eval"
    with replaced_directory(out) as staging:
        written = write_bundle(staging, machine, contents, settings, flow, max_mb, os.environ, session.say)
    facts = {"out": str(out), **written.as_json()}
    session.finish(facts, written.render(out))


@bundle.command("import", cls=SettingsCommand)
@click.argument("archive", type=FILE)
@click.pass_obj
def import_(session: Session, archive: Path) -> None:
    """Record a bundle's results in MLflow.

    They become a run of the machine where the bundle ran.
    """
    import tempfile

    from slmsearch.bundle.fetched_results import unpack_results

    config = session.config  # prepares the process environment for MLflow, before it is imported
    from tasks.tracking import open_tracker
    from tasks.tracking.imports import import_store

    with tempfile.TemporaryDirectory(prefix="slmsearch-results-") as name:
        facts = unpack_results(archive, Path(name))
        run_id, new = import_store(open_tracker(config.paths, config.tracking), facts, Path(name), str(facts["bundle"]))
    where = f"{facts['machine']} ({facts['gpu'] or 'no card'})"
    session.finish({"run_id": run_id, "new": new, **facts}, f"{len(new)} runs of {where} recorded below {run_id}")
