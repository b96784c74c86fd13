"""A server's life under its supervisor: in this process, or in one of its own, which `--detach` starts.

Run as a module, it reads an `Order` from standard input and reports on its output. The process that started it reads these reports, and
the state that the supervisor writes, until the server answers; after that it runs on without a reader.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.processes.signals import stopping_by_signal
from slmsearch.serving.engines.engine import Say
from slmsearch.serving.engines.engines import make_engine
from slmsearch.serving.engines.request import Endpoint, ServeRequest
from slmsearch.serving.engines.state import STOP_SECONDS, read_state
from slmsearch.serving.engines.supervisor import POLL_SECONDS, SupervisorContext, endpoint_of, supervise

_SAY, _ERROR = "say: ", "error: "
"""Prefix of a supervisor's lines for the process that started it; libraries write other lines."""


@dataclass(frozen=True, slots=True)
class Order:
    """Order to a supervisor: a server to start."""

    engine: str
    """Name of the engine."""
    request: ServeRequest
    folder: Path
    """Directory of states and logs."""
    start_s: float
    """Time limit for the server to answer."""


ORDERS = TypeAdapter(Order)


def serve_here(order: Order, say: Say, on_ready: Callable[[Endpoint], None], show: Say | None = None, tied: bool = True) -> None:
    """Start a server and stay with it until Ctrl-C, SIGTERM, SIGHUP or `--stop`.

    Args:
        order: server to start, and how.
        say: receives messages about the start.
        on_ready: called once, when the server answers.
        show: receives the server's output; None leaves it in the log.
        tied: end also with the process that started this one.

    Raises:
        SlmSearchError: see `supervise`.
    """
    stop = threading.Event()
    with ExitStack() as handled:
        # Not before: while weights are fetched, Ctrl-C breaks off.
        around = SupervisorContext(order.folder, say, show, order.start_s, tied, lambda: handled.enter_context(stopping_by_signal(stop)))
        supervise(make_engine(order.engine), order.request, around, stop, on_ready)


def start_in_background(order: Order, say: Say) -> Endpoint:
    """Start a server whose supervisor outlives this process; report its start, and return when it answers.

    Raises:
        ServiceError: the server does not start.
    """
    role = order.request.role
    order.folder.mkdir(parents=True, exist_ok=True)
    log = order.folder / f"{role}-supervisor.log"
    log.unlink(missing_ok=True)
    process = ChildProcess("the supervisor", ["-m", __name__], log, ProcessSettings(end_signal=None))
    try:
        process.tell(ORDERS.dump_json(order))
        process.hang_up()
        with log.open(encoding="utf-8", errors="replace") as said:
            while True:
                alive = process.is_alive
                state = read_state(order.folder, role)
                for line in said:
                    if line.startswith(_ERROR):
                        raise ServiceError(line.removeprefix(_ERROR).strip())
                    if line.startswith(_SAY):
                        say(line.removeprefix(_SAY).strip())
                if state is not None and state.supervisor == process.pid and state.phase == "ready":
                    return endpoint_of(make_engine(order.engine), order.request, state.server, Path(state.log))
                if not alive:
                    raise ServiceError(f"the supervisor of the {role} server exited without an error message; see {log}")
                time.sleep(POLL_SECONDS)
    except BaseException:
        process.stop(STOP_SECONDS)
        raise


def main() -> None:
    """Supervise the server that standard input describes; exit code 1 if it did not start or ended by itself."""
    order = ORDERS.validate_json(sys.stdin.read())
    try:
        serve_here(order, lambda text: print(_SAY + text, flush=True), lambda endpoint: None, tied=False)
    except SlmSearchError as error:
        print(f"{_ERROR}{error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
