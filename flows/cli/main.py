"""The console script `slmsearch`. What a command needs is imported when it runs."""

import logging
import warnings

from flows.cli.commands import (  # noqa: F401  importing one adds its commands
    bench,
    corpus,
    documents,
    learning,
    models,
    operating,
    planner,
    results,
    sandbox,
)
from flows.cli.session import cli
from slmsearch.processor import settle

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line."""
    settle()
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # peft's matter, at every adapter loaded
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # misses a kernel that it would fetch from a hub, at every adapter loaded
    cli(prog_name="slmsearch")
