"""The process environment that Prefect, MLflow and the other libraries read, set before they are imported.

The user's variables win; these are defaults. Telemetry is off, Prefect keeps its database and results under the data directory, a lost
server is noticed in seconds, written files are private to the user, and no log holds a secret.
"""

import functools
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.runtime.settings import read_environment
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.config.secrets import split_secrets
from slmsearch.errors import ConfigError, SlmSearchError
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
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_RUNNER_HEARTBEAT_FREQUENCY": "30",
    # A worker looks for runs this often, not every ten seconds: half of the wait for a run to start was this.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Leases in memory die with a killed server and leave their slots taken for ever; on disk they run out and are given back.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    # By default Prefect deletes only old events, and never flow runs with their logs.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86_400),
    "TOKENIZERS_PARALLELISM": "false",
}

PRIVATE = 0o700
"""Mode of files that belong to the user alone."""
MIN_SECRET_CHARS = 6
"""Minimum length of a key that logs are searched for: a shorter text can occur by chance."""

UNSTORABLE = re.compile("[?]|%[0-9A-Fa-f]{2}")
"""Parts of a path that no folder of a SQLite store may have. MLflow decodes them in the address of artifacts (3.17), SQLAlchemy in that of
the store (2.1), and from a question mark on the address is none of a file."""


def prefect_home(paths: PathsConfig, environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory of Prefect's database: the user's own choice, or `prefect/` in the data directory."""
    chosen = (read_environment() if environment is None else environment).get("PREFECT_HOME")
    return Path(chosen) if chosen else Path(paths.data_dir) / "prefect"


def prepare_process_environment(config: RunConfig, environment: Mapping[str, str]) -> None:
    """Set the missing variables in `os.environ`; call it before Prefect or MLflow is imported.

    Data directories become private to the user, and from here on no log of this process holds a secret of the configuration.

    Args:
        config: settings of the run, with the data directory.
        environment: variables of `.env` and the process, as `read_environment()` returns them; they count as set by the user.

    Raises:
        ConfigError: a folder's path cannot stand in the address of a SQLite store.
    """
    home = prefect_home(config.paths, environment)
    for setting, folder in (("paths.mlruns_dir", config.paths.mlruns_dir), ("paths.data_dir or PREFECT_HOME", home)):
        if found := UNSTORABLE.search(str(Path(folder).absolute())):
            raise ConfigError(
                f"{folder} has {found[0]!r} in its name, which addresses of SQLite stores give another meaning, so that MLflow and Prefect "
                f"would write elsewhere: rename the folder, or set {setting}"
            )
    defaults = {
        **DEFAULTS,
        "PREFECT_HOME": str(home),
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(Path(config.paths.data_dir) / "prefect" / "results"),
    }
    if not sys.stderr.isatty():
        defaults["TQDM_DISABLE"] = "1"  # bars of libraries; what matters is logged
    for name, value in {**defaults, **environment}.items():
        os.environ.setdefault(name, value)
    _make_private(config.paths)
    logging.setLogRecordFactory(_record_maker(split_secrets(config)[1].values()))


def _make_private(paths: PathsConfig) -> None:
    """Close the data directories to other users: create missing ones so, and change those of the checkout.

    A directory that the user has made elsewhere keeps its mode, as other users may need access (`slmsearch ops doctor` names it); its
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
    """Return a class of log records without secrets, also in tracebacks of library errors."""
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
"""Loggers whose info messages and deprecation warnings do not help a user."""


class _Terse(logging.Filter):
    """Log filter that drops chatter of libraries and tracebacks of self-explaining errors, and escapes control characters."""

    def __init__(self, without_pages: bool) -> None:
        super().__init__()
        self.without_pages = without_pages

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a record, and shorten it."""
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
    """Limit the terminal's log to what a user needs; call it after Prefect has set up logging.

    Args:
        without_pages: the server has no web pages, so links to them are hidden.
    """
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Terse(without_pages))
