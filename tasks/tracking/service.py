"""The store of MLflow: its address, its errors as ours, and the names of our tags in it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import mlflow
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from tasks.owners import one_line

P = ParamSpec("P")
R = TypeVar("R")

NO_SUCH_THING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
CHAMPION = "champion"
"""Alias of the promoted model version."""
PREFIX = "slmsearch."
"""Of all our tags."""
KEY, STAGE, OWNER, ADAPTER_HASH, BASE_MODEL = (f"{PREFIX}{name}" for name in ("key", "stage", "owner", "adapter_hash", "base_model"))
"""Tags of runs and model versions."""


def as_service(function: Callable[P, R]) -> Callable[P, R]:
    """Turn MLflow's errors into a `ServiceError`."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (MlflowException, SQLAlchemyError) as error:
            where = mlflow.get_tracking_uri()
            raise ServiceError(f"MLflow at {where}: {one_line(error)}; check tracking.uri and paths.mlruns_dir") from error

    return wrapped


def tracking_uri(config: RunConfig) -> str:
    """Return the address of the store: the configured one, or SQLite in `paths.mlruns_dir`."""
    return config.tracking.uri or f"sqlite:///{Path(config.paths.mlruns_dir).resolve()}/mlflow.db"
