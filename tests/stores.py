"""Empty stores of Prefect and MLflow, made once: in a new home each takes a command seconds of a processor."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

MAKE = """
import asyncio, sys
from mlflow import MlflowClient
from flows.ops.prefect_server import fill_database
asyncio.run(fill_database())
MlflowClient(f"sqlite:///{sys.argv[1]}").search_experiments()
"""


def make_empty_stores(folder: Path) -> Path:
    """Make both stores in a folder that the processes of a session share; return it."""
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            making = folder.with_suffix(".making")
            (making / "prefect").mkdir(parents=True)
            environment = {**os.environ, "PREFECT_HOME": str(making / "prefect")}
            subprocess.run([sys.executable, "-c", MAKE, str(making / "mlflow.db")], env=environment, check=True, capture_output=True)
            making.rename(folder)
    return folder


def put_empty_stores(stores: Path, home: Path) -> None:
    """Copy both stores to where commands with `home / "data"` and `home / "mlruns"` look for them."""
    shutil.copytree(stores / "prefect", home / "data" / "prefect")
    (home / "mlruns").mkdir(exist_ok=True)
    shutil.copyfile(stores / "mlflow.db", home / "mlruns" / "mlflow.db")
