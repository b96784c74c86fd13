"""The console script `slmsearch`. What a command needs is imported when it runs."""

import logging
import warnings

import click

from flows.cli.commands import (
    bench,
    corpus,
    doctor,
    documents,
    housekeeping,
    index,
    judge,
    learning,
    lineage,
    models,
    operating,
    planner,
    promotion,
    reconcile,
    report,
    running,
    sandbox,
    serve,
)
from slmsearch.processor import settle


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="slmsearch")
def cli() -> None:
    """Train a small language model to search a corpus and to answer from what it read.

    \b
    slmsearch run train-and-eval    the whole pipeline, on two CPU cores, in minutes
    slmsearch run train-planner     the second environment: a planner for a frozen worker
    slmsearch up                    Prefect, MLflow and a worker to look at and to schedule
    """


MODULES = (
    corpus,
    documents,
    index,
    learning,
    running,
    operating,
    promotion,
    reconcile,
    report,
    lineage,
    doctor,
    housekeeping,
    judge,
    models,
    serve,
    sandbox,
    planner,
    bench,
)
for module in MODULES:
    module.register(cli)


def main() -> None:
    """Run the command line."""
    settle()
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # peft's matter, at every adapter loaded
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # misses a kernel that it would fetch from a hub, at every adapter loaded
    cli(prog_name="slmsearch")
