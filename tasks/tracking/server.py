"""Entry point of `python -m tasks.tracking.server ARGUMENT...`: `mlflow server` on a store with all its tables (`make_store`)."""

import sys
from collections.abc import Sequence

from mlflow.cli import cli

from tasks.tracking.local_store import make_store


def main(arguments: Sequence[str]) -> None:
    """Serve until terminated."""
    make_store(arguments[arguments.index("--backend-store-uri") + 1])
    cli(["server", *arguments], prog_name="mlflow")


if __name__ == "__main__":
    main(sys.argv[1:])
