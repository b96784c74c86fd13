"""The Prefect server of a run: the one the user names, the one `slmsearch up` started, or one of its own.

A server of its own is a full one, not Prefect's ephemeral mode: that mode never frees the slots of a killed run, and lives on as an orphan
when its parent is killed.

Every start of a server has a password of its own. Child processes get it in their environment, other processes through files that their
user alone can read: no command line, output or log holds it.
"""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from flows.runtime.process_environment import prefect_home
from flows.runtime.servers import HOST, start_service, wait_until_ready
from flows.runtime.settings import read_environment
from slmsearch.artifacts.files import replace_text
from slmsearch.config import PathsConfig
from slmsearch.errors import ServiceError
from slmsearch.http_client import answers
from slmsearch.processes.child import ChildProcess
from slmsearch.processes.ports import free_port, reserve_port

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

SERVER = "flows.ops.prefect_server"
"""Module of Prefect's server, closed to other users and other sites."""
UI_ENABLED = "PREFECT_SERVER_UI_ENABLED"
"""Prefect's variable that says whether a server has pages."""


@dataclass(frozen=True)
class Api:
    """A Prefect API that answers."""

    url: str
    kind: Literal["given", "up", "own"]
    """Origin of the API. `given`: PREFECT_API_URL; `up`: started by `slmsearch up`; `own`: lives as long as this process."""
    password: str = field(repr=False)
    """Login as `user:password`, empty if the API asks for none."""


@dataclass(frozen=True)
class UpRecord:
    """Record of the servers of `slmsearch up`."""

    pid: int
    api: str
    ui: str
    mlflow: str


def record_path(paths: PathsConfig) -> Path:
    """Return the path of the record of `slmsearch up`."""
    return prefect_home(paths) / "up.json"


def find_up(paths: PathsConfig) -> UpRecord | None:
    """Return the record of the running `slmsearch up` of this data directory, None if there is none."""
    path = record_path(paths)
    try:
        record = UpRecord(**json.loads(path.read_text()))
        os.kill(record.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return record if answers(f"{record.api}/health") else None


def up_lives(paths: PathsConfig) -> bool:
    """Return whether the process of the recorded `slmsearch up` lives, though its server may be slow, or be started again."""
    path = record_path(paths)
    try:
        record = UpRecord(**json.loads(path.read_text()))
        return bool(psutil.Process(record.pid).create_time() <= path.stat().st_mtime)
    except (OSError, ValueError, TypeError, psutil.Error):
        return False


def find_pages(paths: PathsConfig) -> str | None:
    """Return the address of the pages of the Prefect server in use; None for a server of the run's own, which has none."""
    environment, up = read_environment(), find_up(paths)
    url = environment.get("PREFECT_API_URL")
    if up and url in (None, "", up.api):
        return up.ui
    if not url or os.environ.get(UI_ENABLED) == "False":
        return None
    return environment.get("PREFECT_UI_URL") or url.rstrip("/").removesuffix("/api")


def password_path(paths: PathsConfig) -> Path:
    """Return the path of the `user:password` of `slmsearch up`."""
    return prefect_home(paths) / "up.auth"


def page_path(paths: PathsConfig) -> Path:
    """Return the path of the page that opens the pages of `slmsearch up` with the password."""
    return prefect_home(paths) / "open.html"


def write_record(paths: PathsConfig, record: UpRecord, password: str) -> None:
    """Write the record, the password and the page, each atomically; only their user can read the last two."""
    record_path(paths).parent.mkdir(parents=True, exist_ok=True)
    link = f"{record.ui}/enter#{password}"
    refresh = f'<meta http-equiv="refresh" content="0; url={link}">'
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Prefect</title>{refresh}<a href="{link}">Open Prefect</a>\n'
    replace_text(page_path(paths), page, private=True)
    replace_text(password_path(paths), password, private=True)
    replace_text(record_path(paths), json.dumps(asdict(record)) + "\n")


def record_files(paths: PathsConfig) -> list[Path]:
    """Return the existing files of `write_record`."""
    return [path for path in (record_path(paths), password_path(paths), page_path(paths)) if path.is_file()]


def make_password() -> str:
    """Return a random `user:password`."""
    return f"slmsearch:{secrets.token_urlsafe(32)}"


def password_for(paths: PathsConfig, url: str) -> str:
    """Return the `user:password` for an API: that of `slmsearch up` for its own, else the user's; empty if there is none.

    Raises:
        ServiceError: another user has started it.
    """
    up = find_up(paths)
    if up is None or up.api != url.rstrip("/"):
        return read_environment().get("PREFECT_API_AUTH_STRING") or ""
    try:
        return password_path(paths).read_text()
    except OSError as error:
        raise ServiceError(f"the password of {url} cannot be read ({error}); use it as the user who started `slmsearch up`") from error


@contextmanager
def client_of(paths: PathsConfig, url: str) -> "Iterator[SyncPrefectClient]":
    """Yield a client of an API, independent of the API that this process otherwise uses."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    known = {PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password_for(paths, url)}
    with temporary_settings(known), get_client(sync_client=True) as client:
        yield client


def start_prefect_server(paths: PathsConfig, port: int, password: str, with_ui: bool) -> ChildProcess:
    """Start a Prefect server on loopback that answers only requests with its password."""
    environment = {
        "PREFECT_API_URL": "",
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port}",  # the default lets every page read
        "PREFECT_SERVER_UI_API_URL": "/api",
        UI_ENABLED: str(with_ui),
    }
    log = prefect_home(paths) / "logs" / ("server.log" if with_ui else "own-server.log")
    return start_service("the Prefect server", [SERVER, str(port)], log, environment)


def use_api(url: str, password: str) -> None:
    """Set an API, and its password, for this process and its children; call it before Prefect is imported."""
    # An empty password stands, too: one in `prefect.toml` is for another server.
    os.environ.update(PREFECT_API_URL=url, PREFECT_API_AUTH_STRING=password)


def require_api(paths: PathsConfig) -> str:
    """Return the Prefect API that the user names; for commands that must not start one.

    Raises:
        ServiceError: PREFECT_API_URL is not set, or the API does not answer.
    """
    given = read_environment().get("PREFECT_API_URL")
    if not given:
        raise ServiceError("PREFECT_API_URL is not set; name the Prefect server, such as http://127.0.0.1:4200/api")
    return _use_given(paths, given, "start it, or fix PREFECT_API_URL and PREFECT_API_AUTH_STRING").url


def _use_given(paths: PathsConfig, url: str, remedy: str) -> Api:
    """Use the API that the user names; a proxy in front of it asks for the password even for its health."""
    password = password_for(paths, url)
    if not answers(f"{url.rstrip('/')}/health", auth=password, elsewhere=True):
        raise ServiceError(f"no Prefect API answers at {url}; {remedy}")
    if not answers(f"{url.rstrip('/')}/admin/version", auth=password, elsewhere=True):  # its health is told to everybody
        raise ServiceError(f"the Prefect API at {url} refuses the password; set PREFECT_API_AUTH_STRING to the one of that server")
    use_api(url, password)
    return Api(url, "given", password)


@contextmanager
def prefect_api(paths: PathsConfig) -> Iterator[Api]:
    """Provide a Prefect API and name it in PREFECT_API_URL; enter it before Prefect is imported.

    Raises:
        ServiceError: the API named by the user does not answer, or no server can be started.
    """
    given, up = read_environment().get("PREFECT_API_URL"), find_up(paths)
    if up and given in (None, "", up.api):
        use_api(up.api, password := password_for(paths, up.api))
        yield Api(up.api, "up", password)
    elif given:
        yield _use_given(paths, given, "start it with `slmsearch up`, or unset PREFECT_API_URL")
    else:
        with _own_server(paths) as api:
            yield api


@contextmanager
def _own_server(paths: PathsConfig) -> Iterator[Api]:
    port, password = free_port(), make_password()
    names = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", UI_ENABLED)
    before = {name: os.environ[name] for name in names[1:] if name in os.environ}
    with reserve_port(port, "PREFECT_API_URL"):
        server = start_prefect_server(paths, port, password, with_ui=False)
        api = Api(f"http://{HOST}:{port}/api", "own", password)
        use_api(api.url, password)
        os.environ[UI_ENABLED] = "False"  # what this process and its children know of the server
        try:
            wait_until_ready(server, f"{api.url}/health")
            yield api
        finally:
            for name in names:
                del os.environ[name]
            os.environ.update(before)
            server.stop()
