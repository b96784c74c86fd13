"""A supervisor in the background: the process that `--detach` starts.

Run as a module, it reads one JSON object from standard input and says how it goes in lines of JSON on the descriptor that its argument
names: `say` while the server starts, then `ready` or `error`. After that it goes on without anybody who listens.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.errors import ConfigError, ServiceError, SlmSearchError
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.serve.engine import Say
from slmsearch.serve.engines import make_engine
from slmsearch.serve.request import Endpoint, ServeRequest
from slmsearch.serve.state import STOP_SECONDS
from slmsearch.serve.supervisor import SupervisorContext, supervise


@dataclass(frozen=True, slots=True)
class Order:
    """A server to start: what a supervisor is told."""

    engine: str
    """Its name."""
    request: ServeRequest
    folder: Path
    """Directory of states and logs."""
    start_s: float
    """Time the server has to answer."""


@dataclass(frozen=True, slots=True)
class _Report:
    """One thing that it says."""

    say: str = ""
    ready: Endpoint | None = None
    error: str = ""
    boundary: str = ""
    """Of the error."""


ORDERS, _REPORTS = TypeAdapter(Order), TypeAdapter(_Report)


def start_in_background(order: Order, say: Say) -> Endpoint:
    """Start a server whose supervisor outlives this process; returns when it answers.

    Args:
        order: what to serve, and how.
        say: is told how it goes until then.

    Raises:
        ConfigError: the engine cannot do what is asked.
        ServiceError: the server does not start.
    """
    order.folder.mkdir(parents=True, exist_ok=True)
    log = order.folder / f"{order.request.role}-supervisor.log"
    log.unlink(missing_ok=True)
    reading, writing = os.pipe()
    with open(reading, "rb") as reports:
        try:
            settings = ProcessSettings(end_signal=None, pass_fds=(writing,))
            process = ChildProcess("the supervisor", ["-m", __name__, str(writing)], log, settings)
        finally:
            os.close(writing)
        try:
            process.tell(ORDERS.dump_json(order))
            process.hang_up()
            for report in map(_REPORTS.validate_json, reports):
                if report.ready is not None:
                    return report.ready
                if report.error:
                    raise (ConfigError if report.boundary == ConfigError.boundary else ServiceError)(report.error)
                say(report.say)
        except BaseException:
            process.stop(STOP_SECONDS)
            raise
    raise ServiceError(f"the supervisor of the {order.request.role} server ended without a word; see {log}")


def main(writing: int) -> None:
    """Supervise the server that standard input describes; exit code 1 where it did not start or ended by itself."""
    order = ORDERS.validate_json(sys.stdin.read())
    stop = threading.Event()

    def send(report: _Report) -> None:
        with suppress(OSError):  # who started this has what it wanted
            os.write(writing, _REPORTS.dump_json(report) + b"\n")

    def handle_signals() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())

    around = SupervisorContext(
        order.folder, lambda text: send(_Report(say=text)), start_s=order.start_s, tied=False, on_start=handle_signals
    )
    try:
        supervise(make_engine(order.engine), order.request, around, stop, lambda endpoint: send(_Report(ready=endpoint)))
    except SlmSearchError as error:
        send(_Report(error=" ".join(str(error).split()), boundary=error.boundary))
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
