"""Which Prefect server a run talks to: the one the user names, the one `slmsearch up` started, or its own for the moment.

The own server is a full one, not Prefect's ephemeral mode: that mode never gives back the slots of a killed run, and
lives on as an orphan when its parent is killed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from flows.servers import HOST, Service, answers, start_service, stop_service, wait_until_ready
from flows.settings import read_environment
from flows.surroundings import prefect_home
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from slmsearch.serve.ports import free_port

RECORD = "up.json"
"""File in Prefect's home that says what `slmsearch up` serves."""


@dataclass(frozen=True)
class Api:
    """A Prefect API that answers."""

    url: str
    kind: Literal["given", "up", "own"]
    """`given`: named by PREFECT_API_URL; `up`: started by `slmsearch up`; `own`: lives as long as this process."""


@dataclass(frozen=True)
class UpRecord:
    """What `slmsearch up` serves."""

    pid: int
    api: str
    ui: str
    mlflow: str


def record_path(config: RunConfig) -> Path:
    """Return where `slmsearch up` writes its record."""
    return prefect_home(config) / RECORD


def find_up(config: RunConfig) -> UpRecord | None:
    """Return what a living `slmsearch up` serves for this data directory, None if there is none."""
    path = record_path(config)
    try:
        record = UpRecord(**json.loads(path.read_text()))
        os.kill(record.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return record if answers(f"{record.api}/health") else None


def write_record(config: RunConfig, record: UpRecord) -> None:
    """Write the record in one piece."""
    path = record_path(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(record)) + "\n")
    temporary.replace(path)


def start_prefect_server(config: RunConfig, port: int, with_ui: bool) -> Service:
    """Start a Prefect server on loopback; only its own pages may call it from a browser."""
    origins = f"http://{HOST}:{port},http://localhost:{port}"
    environment = {
        "PREFECT_API_URL": "",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": origins,
        "PREFECT_SERVER_UI_API_URL": f"http://{HOST}:{port}/api",
    }
    arguments = ["prefect", "server", "start", "--host", HOST, "--port", str(port), *([] if with_ui else ["--no-ui"])]
    log = prefect_home(config) / "logs" / ("server.log" if with_ui else "own-server.log")
    return start_service("the Prefect server", arguments, log, environment)


def require_api() -> str:
    """Return the Prefect API that the user names; for commands that must not start one.

    Raises:
        ServiceError: none is named, or it does not answer.
    """
    given = read_environment().get("PREFECT_API_URL")
    if not given:
        raise ServiceError("PREFECT_API_URL is not set; name the Prefect server, such as http://127.0.0.1:4200/api")
    if not _answers(given):
        raise ServiceError(f"no Prefect API answers at {given}; start it, or mend PREFECT_API_URL and PREFECT_API_AUTH_STRING")
    os.environ["PREFECT_API_URL"] = given
    return given


def _answers(url: str) -> bool:
    """Say whether an API is there; a proxy before it asks for the password even of this."""
    return answers(f"{url.rstrip('/')}/health", auth=read_environment().get("PREFECT_API_AUTH_STRING"))


@contextmanager
def prefect_api(config: RunConfig) -> Iterator[Api]:
    """Provide a Prefect API and name it in PREFECT_API_URL; enter it before Prefect is imported.

    Raises:
        ServiceError: the API named by the user does not answer, or no server can be started.
    """
    given, up = read_environment().get("PREFECT_API_URL"), find_up(config)
    if up and given in (None, "", up.api):
        os.environ["PREFECT_API_URL"] = up.api
        yield Api(up.api, "up")
    elif given:
        if not _answers(given):
            raise ServiceError(f"no Prefect API answers at {given}; start it with `slmsearch up`, or unset PREFECT_API_URL")
        yield Api(given, "given")
    else:
        with _own_server(config) as url:
            yield Api(url, "own")


@contextmanager
def _own_server(config: RunConfig) -> Iterator[str]:
    port = free_port()
    server = start_prefect_server(config, port, with_ui=False)
    url = f"http://{HOST}:{port}/api"
    os.environ["PREFECT_API_URL"] = url
    try:
        wait_until_ready(server, f"{url}/health")
        yield url
    finally:
        del os.environ["PREFECT_API_URL"]
        stop_service(server)
