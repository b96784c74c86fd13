"""The process environment that Prefect, MLflow and the other libraries read, set before they are imported.

What the user has set stands; these are defaults. Nothing is phoned home, Prefect keeps its database and results under the
data directory, a lost server is noticed in seconds, what is written is private to the user, and no log holds a secret.
"""

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.runtime.settings import read_environment
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.config.secrets import split_secrets
from slmsearch.errors import SlmSearchError
from slmsearch.foreign import visible, without_credentials
from slmsearch.judge.cache import FILE as VERDICTS
from slmsearch.package_data import CHECKOUT

DEFAULTS = {
    # Switches of telemetry: Chroma, the general one, Great Expectations, Hugging Face, MLflow, Prefect.
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    # Half a minute: a server that is started again is waited for. One that is not there at all is found before a run begins.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # The queue of the asynchronous way drops traces when it is full, and takes a second to flush.
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_RUNNER_HEARTBEAT_FREQUENCY": "30",
    # A worker looks for runs this often, not every ten seconds: half of the wait for a run to start was this.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Leases in memory die with a killed server and leave their slots taken for ever; on disk they run out and are given back.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    # Of itself Prefect deletes old events only, and flow runs with their logs never.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86_400),
    "TOKENIZERS_PARALLELISM": "false",
}

PRIVATE = 0o700
"""Mode of what belongs to the user alone."""
MIN_SECRET_CHARS = 6
"""A shorter key is not looked for in logs: what they hold by chance is no secret."""


def prefect_home(paths: PathsConfig, environment: Mapping[str, str] | None = None) -> Path:
    """Return where Prefect keeps its database: the user's own choice, or `prefect/` in the data directory."""
    chosen = (read_environment() if environment is None else environment).get("PREFECT_HOME")
    return Path(chosen) if chosen else Path(paths.data_dir) / "prefect"


def prepare_process_environment(config: RunConfig, environment: Mapping[str, str]) -> None:
    """Set what is not set yet in `os.environ`; call it before Prefect or MLflow is imported.

    Data directories are made private to the user, and from here on no log of this process holds a secret of the configuration.

    Args:
        config: run; says where data lies.
        environment: variables of `.env` and the process, as `read_environment()` returns them; they count as set by the user.
    """
    defaults = {
        **DEFAULTS,
        "PREFECT_HOME": str(prefect_home(config.paths, environment)),
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(Path(config.paths.data_dir) / "prefect" / "results"),
    }
    if not sys.stderr.isatty():
        defaults["TQDM_DISABLE"] = "1"  # bars of libraries; what matters is logged
    for name, value in {**defaults, **environment}.items():
        os.environ.setdefault(name, value)
    _make_private(config.paths)
    logging.setLogRecordFactory(_record_maker(split_secrets(config)[1].values()))


def _make_private(paths: PathsConfig) -> None:
    """Let nobody else into the data directories: missing ones are made so, and those of the checkout become so.

    A directory that the user has made elsewhere keeps its mode, as others may have to get in (`slmsearch ops doctor` names it); in it, the
    databases are closed.
    """
    home = Path(os.environ["PREFECT_HOME"])
    for directory in (Path(paths.data_dir), Path(paths.mlruns_dir), home):
        with suppress(OSError):  # another user's, or on a disk that cannot be written to, which shows where it is used
            directory.parent.mkdir(parents=True, exist_ok=True)
            if not directory.exists():
                directory.mkdir(mode=PRIVATE)
            elif CHECKOUT and directory.is_relative_to(CHECKOUT):
                directory.chmod(directory.stat().st_mode & PRIVATE)
    for database in (home / "prefect.db", Path(paths.mlruns_dir) / "mlflow.db", Path(paths.data_dir) / VERDICTS):
        with suppress(OSError):  # not there yet
            database.chmod(database.stat().st_mode & PRIVATE)


def _record_maker(secrets: Iterable[str]) -> Callable[..., logging.LogRecord]:
    """Return a class of log records without secrets, also in the tracebacks of errors of libraries."""
    keys = [secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS]

    def clean(text: str) -> str:
        return functools.reduce(without_credentials, keys, without_credentials(text))

    class Record(logging.LogRecord):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if isinstance(self.exc_info, tuple) and self.exc_info[1] is not None:
                self.exc_text = clean("".join(traceback.format_exception(self.exc_info[1])).rstrip("\n"))  # formatters take it as it is

        def getMessage(self) -> str:
            return clean(super().getMessage())

    return Record


CHATTY = ("great_expectations", "py.warnings")
"""Loggers whose informations and deprecation warnings help nobody who runs a flow."""


class _Terse(logging.Filter):
    """Drops chatter of libraries, leaves out tracebacks of errors that say what is wrong, and shows what would steer a terminal."""

    def __init__(self, without_pages: bool) -> None:
        super().__init__()
        self.without_pages = without_pages

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether to show a record, and shorten it."""
        if record.name.startswith(CHATTY) and record.levelno <= logging.WARNING:
            return False
        if self.without_pages and str(record.msg).startswith("View at "):
            return False
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, SlmSearchError):
            record.exc_info, record.exc_text = None, None
            record.msg, record.args = f"{type(error).__name__}: {error}", ()
        with suppress(Exception):  # a message that does not fit its arguments is the handler's to report
            message = record.getMessage()
            if (shown := visible(message)) != message:
                record.msg, record.args = shown, ()
        return True


def be_terse(without_pages: bool) -> None:
    """Let the terminal show what a person needs; call it after Prefect has set up logging.

    Args:
        without_pages: the server has no pages to look at, so no links to them are shown.
    """
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Terse(without_pages))
