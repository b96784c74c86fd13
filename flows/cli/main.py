"""The console script `slmsearch`. What a command needs is imported when it runs."""

from flows.cli.commands import (  # noqa: F401  importing one adds its commands
    bundle,
    corpus,
    documents,
    learning,
    models,
    operating,
    planner,
    results,
)
from flows.cli.session import cli
from slmsearch.processes.noise import silence_noise
from slmsearch.processes.processor import settle

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line."""
    settle()
    silence_noise()
    cli(prog_name="slmsearch")
