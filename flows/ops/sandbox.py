"""Start, find and stop the sandbox server of this project.

The server is a process of its own, `slmsearch sandbox up --foreground`, and outlives the command that started it; a record in the data
directory holds its address.
"""

import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from flows.runtime.servers import HOST, Say, wait_until_ready
from slmsearch.config import CorpusConfig, PathsConfig, RunConfig
from slmsearch.config.secrets import join_secrets, split_secrets
from slmsearch.errors import ServiceError
from slmsearch.processes.child import ChildProcess, ProcessSettings, wait_for_end
from slmsearch.processes.ports import require_free_port
from slmsearch.processes.watchdog import die_with_starter
from tasks.owners import START_TOLERANCE_S, started_s

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


def read_settings(stream: IO[str]) -> RunConfig:
    """Read the settings that `start_sandbox` sends, already resolved, so that this process' environment does not change them."""
    told = json.load(stream)
    die_with_starter()
    return join_secrets(told["config"], told["secrets"])


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


def small_world(corpus: CorpusConfig) -> CorpusConfig:
    """Return a corpus, or a small world in place of the default one: enough to check tools and to time them."""
    return corpus if corpus != CorpusConfig() else corpus.changed({"world.pages": CHECKED_PAGES})


def _record_path(paths: PathsConfig) -> Path:
    return state_dir(paths) / "server.json"
