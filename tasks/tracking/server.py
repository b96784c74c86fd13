"""`python -m tasks.tracking.server ARGUMENT...`: `mlflow server` on a store whose tables are all there (`make_store`)."""

import sys
from collections.abc import Sequence

from mlflow.cli import cli

from tasks.tracking.service import make_store


def main(arguments: Sequence[str]) -> None:
    """Serve until told to stop."""
    make_store(arguments[arguments.index("--backend-store-uri") + 1])
    cli(["server", *arguments], prog_name="mlflow")


if __name__ == "__main__":
    main(sys.argv[1:])
