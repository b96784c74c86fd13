"""Start, find and stop the sandbox server of this project.

The server is a process of its own, `slmsearch sandbox up --foreground`, and outlives the command that started it; a record in the data
directory holds its address.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil

from flows.runtime.servers import HOST, Say, wait_until_ready
from slmsearch.config import CorpusConfig, PathsConfig, RunConfig
from slmsearch.config.secrets import join_secrets, split_secrets
from slmsearch.errors import SandboxError, ServiceError
from slmsearch.extensions.sandbox.client import sandbox_address, with_token
from slmsearch.extensions.sandbox.engine import SandboxEngine
from slmsearch.extensions.sandbox.sessions import SessionCorpus, Tools
from slmsearch.http_client import answers
from slmsearch.package_data import package_data
from slmsearch.processes.child import ChildProcess, ProcessSettings, wait_for_end
from slmsearch.processes.ports import require_free_port
from slmsearch.processes.watchdog import die_with_starter
from tasks.owners import START_TOLERANCE_S, started_s

if TYPE_CHECKING:
    from slmsearch.extensions.sandbox.server import Service

COMPOSE_FILE = "deployments/sandbox.yaml"
STOP_SECONDS = 15.0
"""Time limit for the server to end its programs."""
CHECKED_PAGES = 120
"""Size of the world used to check and time the tools."""


@dataclass(frozen=True)
class SandboxRecord:
    """Record of a started server."""

    pid: int
    started_at: float
    """Start time of its process, which tells it from a later process with the same number."""
    address: str
    engine: str
    log: str


def state_dir(paths: PathsConfig) -> Path:
    """Return the directory of the record, the log and the instances' file system."""
    return Path(paths.data_dir) / "sandbox"


def serve_here(config: RunConfig) -> None:
    """Serve in this process until SIGTERM or Ctrl-C.

    Raises:
        SandboxError: this machine can run no program.
        ServiceError: the port is in use.
    """
    import uvicorn

    from slmsearch.extensions.sandbox.server import SHUTDOWN_SECONDS, make_app

    port = config.sandbox.port
    require_free_port(port, "--sandbox.port")
    app = make_app(make_service(config))
    uvicorn.run(app, host=HOST, port=port, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS)


def make_service(config: RunConfig) -> "Service":
    """Make the service of the configured engine; a token keeps other users of this machine out.

    Raises:
        SandboxError: this machine can run no program.
    """
    from slmsearch.extensions.sandbox.server import Service

    settings = with_token(config.sandbox, config.paths)
    assert settings.token is not None
    return Service(settings, configured_engine(config), lambda indexed: open_tools(config, indexed))


def configured_engine(config: RunConfig) -> SandboxEngine:
    """Make the configured engine.

    Raises:
        SandboxError: this machine can run no program.
    """
    from slmsearch.extensions.sandbox.server import make_engine

    return make_engine(config.sandbox, state_dir(config.paths), package_data(COMPOSE_FILE))


def read_settings(stream: IO[str]) -> RunConfig:
    """Read the settings that `start_sandbox` sends, already resolved, so that this process' environment does not change them."""
    told = json.load(stream)
    die_with_starter()
    return join_secrets(told["config"], told["secrets"])


def open_tools(config: RunConfig, indexed: SessionCorpus) -> Tools:
    """Open the tools of a corpus and its index from this project's data directory."""
    from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus

    shown = config.changed({"retrieval.top_k": indexed.top_k, "searcher.programs": False})  # the tools themselves run no programs
    opened = open_indexed_corpus(shown, indexed.corpus, indexed.index)
    opened.toolbox.index.search(["setup"], 1)  # loads the embedder, which is not the first program's time
    return opened.toolbox


def start_sandbox(config: RunConfig, say: Say) -> SandboxRecord:
    """Start the server in the background, wait until it answers, and write its record.

    Raises:
        ServiceError: one is up already, the port is in use, or it does not start; the message has the end of its log.
    """
    if (up := find_sandbox(config.paths)) is not None:
        raise ServiceError(f"the sandbox is up already (process {up.pid}, {up.address}); `slmsearch sandbox down` stops it")
    require_free_port(config.sandbox.port, "--sandbox.port")
    home, address = state_dir(config.paths), f"http://{HOST}:{config.sandbox.port}"
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    log.unlink(missing_ok=True)
    command = ["-m", "flows", "sandbox", "up", "--foreground", "--from-stdin"]
    process = ChildProcess("the sandbox", command, log, ProcessSettings(end_signal=None))
    plain, secrets = split_secrets(config)
    process.tell(json.dumps({"config": plain, "secrets": secrets}).encode())
    process.hang_up()
    say(f"starting the sandbox on port {config.sandbox.port}; its log is {log}")
    try:
        wait_until_ready(process, f"{address}/health")
    except BaseException:
        process.stop(STOP_SECONDS)
        raise
    record = SandboxRecord(process.pid, started_s(psutil.Process(process.pid)), address, config.sandbox.engine, str(process.log))
    _record_path(config.paths).write_text(json.dumps(asdict(record)) + "\n")
    return record


def find_sandbox(paths: PathsConfig) -> SandboxRecord | None:
    """Return the server that was started for this data directory, None if it does not run."""
    with suppress(OSError, ValueError, TypeError, psutil.NoSuchProcess):
        record = SandboxRecord(**json.loads(_record_path(paths).read_text()))
        process = psutil.Process(record.pid)
        if abs(started_s(process) - record.started_at) <= START_TOLERANCE_S and process.status() != psutil.STATUS_ZOMBIE:
            return record
    return None


def stop_sandbox(paths: PathsConfig) -> SandboxRecord | None:
    """Stop the server and wait until it has ended; None if none ran."""
    record = find_sandbox(paths)
    if record is not None:
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)
            if not wait_for_end(record.pid, STOP_SECONDS):
                os.killpg(record.pid, signal.SIGKILL)
                wait_for_end(record.pid, STOP_SECONDS)
        with suppress(ChildProcessError):
            os.waitpid(record.pid, 0)  # a child of this very process
    _record_path(paths).unlink(missing_ok=True)
    return record


@contextmanager
def some_sandbox(config: RunConfig) -> Iterator[str]:
    """Yield the address of the configured server, or of one that lives as long as the context.

    Raises:
        SandboxError: no server can be started.
    """
    address = sandbox_address(config.sandbox)
    if answers(f"{address}/health", elsewhere=True):
        yield address
        return
    if config.sandbox.base_url is not None:
        raise SandboxError(f"no sandbox answers at {address}; start it there, or unset sandbox.base_url")
    from slmsearch.extensions.sandbox.server import live_server

    with live_server(make_service(config)) as address:
        yield address


def small_world(config: RunConfig) -> RunConfig:
    """Return a configuration with a small world if no corpus is configured: enough to check and to time tools."""
    return config if config.corpus != CorpusConfig() else config.changed({"corpus.world.pages": CHECKED_PAGES})


def _record_path(paths: PathsConfig) -> Path:
    return state_dir(paths) / "server.json"
