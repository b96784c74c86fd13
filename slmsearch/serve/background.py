"""A supervisor in the background: the process that `--detach` starts.

Run as a module, it reads one JSON object from standard input and says how it goes in lines of JSON on standard output: `say` while
the server starts, then `ready` or `error`. After that it goes on without anybody who listens; what it has to say stands in the log.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from slmsearch.errors import ConfigError, ServiceError, SlmSearchError
from slmsearch.serve.engine import Say
from slmsearch.serve.engines import make_engine
from slmsearch.serve.request import Endpoint, ServeRequest
from slmsearch.serve.supervisor import SupervisorContext, supervise


def start_in_background(engine: str, request: ServeRequest, folder: Path, start_s: float, say: Say) -> Endpoint:
    """Start a server whose supervisor outlives this process; returns when it answers.

    Args:
        engine: its name.
        request: what to serve.
        folder: directory of states and logs.
        start_s: time the server has to answer.
        say: is told how it goes until then.

    Raises:
        ConfigError: the engine cannot do what is asked.
        ServiceError: the server does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{request.role}-supervisor.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "slmsearch.serve.background"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    told = {"engine": engine, "request": request.to_dict(), "folder": str(folder), "start_s": start_s}
    try:
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.close()
        for fact in _read(process.stdout):
            if "say" in fact:
                say(fact["say"])
            elif "ready" in fact:
                return Endpoint(**fact["ready"])
            else:
                raise (ConfigError if fact["boundary"] == ConfigError.boundary else ServiceError)(fact["error"])
    except BaseException:
        process.terminate()
        process.wait()
        raise
    raise ServiceError(f"the supervisor of the {request.role} server ended without a word; see {folder / f'{request.role}-supervisor.log'}")


def _read(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)


def _tell(**fact: Any) -> None:
    with suppress(OSError, ValueError):  # who started this has what it wanted
        print(json.dumps(fact), flush=True)


def main() -> None:
    """Supervise the server that standard input describes; exit code 1 where it did not start or ended by itself."""
    told = json.loads(sys.stdin.readline())
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    def handle_signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)

    folder, start_s = Path(told["folder"]), told["start_s"]
    around = SupervisorContext(folder, lambda text: _tell(say=text), start_s=start_s, tied=False, on_start=handle_signals)
    request = ServeRequest.from_dict(told["request"])
    try:
        supervise(make_engine(told["engine"]), request, around, stop, lambda endpoint: _tell(ready=asdict(endpoint)))
    except SlmSearchError as error:
        _tell(error=" ".join(str(error).split()), boundary=error.boundary)
        sys.exit(1)


if __name__ == "__main__":
    main()
