"""The store of MLflow: its address, its errors as ours, and the names of our tags in it."""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import mlflow
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from slmsearch.foreign import without_credentials
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
ENDED = f"{PREFIX}ended"
"""Tag of a run that did not finish: why."""
FLOW_RUN = "prefect.flow_run_id"
"""Tag of a run: the flow run it records."""


def as_service(function: Callable[P, R]) -> Callable[P, R]:
    """Turn MLflow's errors into a `ServiceError`, and let no SIGTERM in between."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _undisturbed():
                return function(*args, **kwargs)
        except (MlflowException, SQLAlchemyError) as error:
            where = mlflow.get_tracking_uri()
            raise ServiceError(f"MLflow at {where}: {one_line(error)}; check tracking.uri and paths.mlruns_dir") from error

    return wrapped


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold SIGTERM back until it cannot do harm.

    Prefect's handler raises wherever the process is. Raised inside of a transaction, the connection stays open as long as the exception
    is known, and with SQLite the same process then waits a minute in vain to write down that it was told to stop.
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


def tracking_uri(config: RunConfig) -> str:
    """Return the address of the store: the configured one, or SQLite in `paths.mlruns_dir`.

    User and password of an HTTP server go to MLflow by its own variables: it writes addresses into messages.
    """
    uri = config.tracking.uri
    if uri and uri.startswith(("http://", "https://")) and (plain := without_credentials(uri)) != uri:
        parts = urlsplit(uri)
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = (
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )
        return plain
    return uri or f"sqlite:///{Path(config.paths.mlruns_dir).resolve()}/mlflow.db"
