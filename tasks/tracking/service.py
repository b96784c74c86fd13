"""The store of MLflow: its address, conversion of its errors, and the names of this project's tags."""

import functools
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import mlflow
from alembic.util import CommandError
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from slmsearch.config import PathsConfig, TrackingConfig
from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of, without_credentials
from tasks.tracking.local_store import SQLITE

P = ParamSpec("P")
R = TypeVar("R")

NO_SUCH_THING = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
CHAMPION = "champion"
"""Alias of the promoted model version."""
PREFIX = "slmsearch."
"""Prefix of all tags of this project."""
KEY, STAGE, OWNER, ADAPTER_HASH, BASE_MODEL = (f"{PREFIX}{name}" for name in ("key", "stage", "owner", "adapter_hash", "base_model"))
"""Tags of runs and model versions."""
ENDED = f"{PREFIX}ended"
"""Tag of a run that did not finish, with the reason."""
DOCUMENTS = f"{PREFIX}documents"
"""Tag of a registered model: corpus, index and time of the documents that it answers from."""
DELETED = f"{PREFIX}deleted"
"""Tag of a run that housekeeping has deleted, with the time in seconds since the epoch."""
FLOW_RUN = "prefect.flow_run_id"
"""Tag of a run with the flow run it records."""
FLOW_RUN_NAME = "prefect.flow_run_name"
"""Tag of a run with Prefect's name of that flow run."""


def as_service(function: Callable[P, R]) -> Callable[P, R]:
    """Turn MLflow's errors into a `ServiceError`, and hold SIGTERM back meanwhile."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _undisturbed():
                return function(*args, **kwargs)
        except (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error) as error:
            where = mlflow.get_tracking_uri()
            raise ServiceError(f"MLflow at {where}: {cause_of(error)}; check tracking.uri and paths.mlruns_dir") from error

    return wrapped


def if_there(call: Callable[[], R]) -> R | None:
    """Return the result of a call to MLflow; None if the requested thing does not exist."""
    try:
        return call()
    except MlflowException as error:
        if error.error_code not in NO_SUCH_THING:
            raise
        return None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold SIGTERM back until it cannot do harm.

    Prefect's handler raises at any point of the process. If it raises inside a transaction, the connection stays open as long as the
    exception exists, and with SQLite the same process then waits a minute in vain to record the termination.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGTERM, lambda *received: held.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        if held:
            handler(*held[0])


def tracking_uri(paths: PathsConfig, tracking: TrackingConfig) -> str:
    """Return the address of the store: the configured one, or SQLite in `paths.mlruns_dir`.

    User and password of an HTTP server go to MLflow by its own variables: it writes addresses into messages.
    """
    uri = tracking.uri
    if uri and uri.startswith(("http://", "https://")) and (plain := without_credentials(uri)) != uri:
        parts = urlsplit(uri)
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = (
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )
        return plain
    return uri or f"{SQLITE}{Path(paths.mlruns_dir).resolve()}/mlflow.db"
