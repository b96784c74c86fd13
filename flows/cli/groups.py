"""Groups of commands, and their errors as JSON; this module imports nothing heavy, as `session.py` does not."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import click

SECTIONS = {
    "The pipeline and its results": ("init", "learn", "run", "up", "report", "compare", "lineage", "nights", "promote", "rollback"),
    "Pages and questions": ("pages", "questions", "validate", "index", "reindex", "search", "retrieval-report", "setup", "world"),
    "Models and training": (
        "models",
        "bootstrap",
        "sft",
        "preflight",
        "forecast",
        "train",
        "planner",
        "evaluate",
        "judge",
        "export",
        "bundle",
    ),
    "Asking, serving, upkeep": ("ask", "infer", "serve", "calibrate", "mcp", "corrections", "dataset", "sandbox", "config", "ops", "bench"),
}
"""Sections of the help."""
EXTENSIONS = {"sandbox": "Run programs of the searcher in an isolated sandbox.", "bench": "Measure speed, memory and false alarms."}
"""Commands of extensions, with their help: to look for entry points takes a third of the time of `slmsearch --help`."""
ENTRY_POINTS = "slmsearch.commands"
"""Group of the entry points of extensions' commands."""


def error_as_json(error: BaseException, message: str) -> dict[str, object]:
    """Return an error as a command with `--json` tells it: its message, and where it comes from."""
    named = "usage" if isinstance(error, click.ClickException) else type(error).__name__
    return {"error": message, "boundary": getattr(error, "boundary", named)}


@contextmanager
def told_in_json(args: Sequence[str]) -> Iterator[None]:
    """Write an error of the command line in JSON, too, if the line asks for it."""
    try:
        yield
    except click.UsageError as error:
        if "--json" in args:
            click.echo(json.dumps(error_as_json(error, error.format_message())))
        raise


class CommandGroup(click.Group):
    """A group that names an unknown command in JSON where the command line asks for it."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group.resolve_command`."""
        with told_in_json(args):
            return super().resolve_command(ctx, args)


class Commands(CommandGroup):
    """Group of all commands; those of `ops` also have their bare names, those of extensions are loaded when they run."""

    group_class = CommandGroup

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """See `click.Group.get_command`."""
        if (known := super().get_command(ctx, name) or cast(click.Group, self.commands["ops"]).get_command(ctx, name)) is not None:
            return known
        from importlib.metadata import entry_points

        return next((entry.load() for entry in entry_points(group=ENTRY_POINTS, name=name)), None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See `click.Group.list_commands`; shells complete names by it."""
        return sorted({*super().list_commands(ctx), *EXTENSIONS})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        helps = EXTENSIONS | {name: self.commands[name].get_short_help_str(formatter.width - 22) for name in self.commands}
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<16}", helps[name]) for name in names])
