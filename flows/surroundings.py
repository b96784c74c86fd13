"""The process environment that Prefect, MLflow and the other libraries read, set before they are imported.

What the user has set stands; these are defaults. Nothing is phoned home, Prefect keeps its database and results under the
data directory, and a lost server is noticed in seconds.
"""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flows.settings import read_environment
from slmsearch.config import RunConfig
from slmsearch.errors import SlmSearchError
from slmsearch.foreign import visible

QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""Switches of telemetry: Chroma, the general one, Great Expectations, Hugging Face, MLflow, Prefect."""
MANNERS = {
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
    "TOKENIZERS_PARALLELISM": "false",
}


def prefect_home(config: RunConfig, environment: Mapping[str, str] | None = None) -> Path:
    """Return where Prefect keeps its database: the user's own choice, or `prefect/` in the data directory."""
    chosen = (read_environment() if environment is None else environment).get("PREFECT_HOME")
    return Path(chosen) if chosen else Path(config.paths.data_dir) / "prefect"


def prepare_surroundings(config: RunConfig, environment: Mapping[str, str]) -> None:
    """Set what is not set yet in `os.environ`; call it before Prefect or MLflow is imported.

    The databases that are there are made private to the user.

    Args:
        config: run; says where data lies.
        environment: variables of `.env` and the process, as `read_environment()` returns them; they count as set by the user.
    """
    defaults = {
        **QUIET,
        **MANNERS,
        "PREFECT_HOME": str(prefect_home(config, environment)),
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(Path(config.paths.data_dir) / "prefect" / "results"),
    }
    if not sys.stderr.isatty():
        defaults["TQDM_DISABLE"] = "1"  # bars of libraries; what matters is logged
    for name, value in {**defaults, **environment}.items():
        os.environ.setdefault(name, value)
    for path in (Path(os.environ["PREFECT_HOME"]) / "prefect.db", Path(config.paths.mlruns_dir) / "mlflow.db"):
        with suppress(OSError):  # not there yet, or another user's
            path.chmod(path.stat().st_mode & 0o700)
    with suppress(OSError):  # Prefect makes its home, but not what that lies in
        Path(os.environ["PREFECT_HOME"]).parent.mkdir(parents=True, exist_ok=True)


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
