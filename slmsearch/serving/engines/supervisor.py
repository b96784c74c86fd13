"""One supervisor for all engines: it starts a server, waits until it answers, and stays with it until the end."""

import codecs
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from slmsearch.errors import ServiceError
from slmsearch.processes.child import ServerProcess
from slmsearch.processes.ports import require_free_port
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.failures import explain_end, find_remedy, read_tail
from slmsearch.serving.engines.request import Endpoint, ServeRequest
from slmsearch.serving.engines.state import ServerState, clear_state, held, state_file, write_state

START_SECONDS = 600.0
"""Time limit for a server to answer; it reads a large model from the disk, and compiles it for the GPU, in that time."""
POLL_SECONDS = 0.2

OnReady = Callable[[Endpoint], None]


@dataclass(frozen=True, slots=True)
class SupervisorContext:
    """Context of a supervisor, besides the engine and the request."""

    folder: Path
    """Directory of states and logs."""
    say: Say
    """Function that shows messages to a person."""
    show: Say | None = None
    """Function that receives the server's output as it comes; None leaves it in the log."""
    start_s: float = START_SECONDS
    tied: bool = True
    """True to end with the process that started this one."""
    on_start: Callable[[], None] = lambda: None
    """Called when weights are fetched and the server is about to start: from here on `stop` ends it in order."""


def endpoint_of(engine: ServerEngine, request: ServeRequest, pid: int | None = None, log: Path | None = None) -> Endpoint:
    """Return the endpoint of a request's server."""
    kind = engine.kind if request.role == "judge" else "openai"
    return Endpoint(
        request.role, engine.name, engine.base_url(request), engine.client_name(request), kind, pid, None if log is None else str(log)
    )


def find_running(engine: ServerEngine, request: ServeRequest, say: Say, stop: threading.Event) -> Endpoint | None:
    """Return a server that answers already at the requested address, ready for the model; None if there is none.

    Raises:
        ServiceError: it serves another model, or cannot serve this one.
    """
    if not engine.recognise(request):
        return None
    engine.settle(request, say, stop)
    return endpoint_of(engine, request)


def supervise(engine: ServerEngine, request: ServeRequest, around: SupervisorContext, stop: threading.Event, on_ready: OnReady) -> None:
    """Start a server and keep it until `stop` is set.

    Args:
        engine: kind of server.
        request: model to serve, and options.
        around: directory, messages and output.
        stop: event that ends it, at any moment.
        on_ready: called once, when it answers.

    Raises:
        ConfigError: the engine cannot serve the request.
        ServiceError: it is not installed, its port is in use, it does not start or answer, or it ended by itself. The state
            file then keeps the reason.
    """
    parent = os.getppid() if around.tied else None
    engine.check(request)
    program = engine.find(request)
    with held(around.folder, request.role):
        clear_state(around.folder, request.role)
        engine.prepare(request, around.say)
        require_free_port(request.port, "--port", request.host)
        log = _new_log(around.folder / "logs" / f"{request.role}-{engine.name}.log")
        around.on_start()
        first = _first_state(engine, request, log, detached=not around.tied)
        with _described(around.folder, first) as state:
            around.say(f"starting {engine.title} on port {request.port}; its log is {log}")
            process = ServerProcess(engine.command(program, request), engine.environment(request), log)
            state = replace(state, watchdog=process.watchdog_pid, server=process.pid, mark=process.mark)
            with _stopped(process, log, around.show) as pass_on:
                write_state(around.folder, state)
                watch = _Watch(engine, request, process, log, stop, parent, pass_on)
                watch.wait_until_healthy(around.start_s)
                if not watch.is_over():
                    engine.settle(request, around.say, stop)
                if not watch.is_over():
                    write_state(around.folder, replace(state, phase="ready"))
                    on_ready(endpoint_of(engine, request, process.pid, log))
                    watch.wait()


def _first_state(engine: ServerEngine, request: ServeRequest, log: Path, detached: bool) -> ServerState:
    return ServerState(
        role=request.role,
        engine=engine.name,
        model=request.model,
        name=engine.client_name(request),
        base_url=engine.base_url(request),
        log=str(log),
        supervisor=os.getpid(),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        detached=detached,
    )


@contextmanager
def _described(folder: Path, state: ServerState) -> Iterator[ServerState]:
    """Keep a state while a server runs, and afterwards only if it failed, with the reason."""
    write_state(folder, state)
    try:
        yield state
    except ServiceError as error:
        write_state(folder, replace(state, phase="failed", error=str(error)))
        raise
    except BaseException:
        state_file(folder, state.role).unlink(missing_ok=True)
        raise
    state_file(folder, state.role).unlink(missing_ok=True)


@contextmanager
def _stopped(process: ServerProcess, log: Path, show: Say | None) -> Iterator[Callable[[], None]]:
    """Stop a server at the end; until then yield a function that passes on new output."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with log.open("rb") as printed:

        def pass_on() -> None:
            if show and (text := decode(printed.read())):
                show(text)

        try:
            yield pass_on
        finally:
            process.stop()
            pass_on()


@dataclass(frozen=True, slots=True)
class _Watch:
    """Watch over a running server."""

    engine: ServerEngine
    request: ServeRequest
    process: ServerProcess
    log: Path
    stop: threading.Event
    parent: int | None
    """Process whose end also ends the server."""
    pass_on: Callable[[], None]

    def is_over(self) -> bool:
        """Return whether to end.

        Raises:
            ServiceError: the server has ended by itself.
        """
        self.pass_on()
        if (code := self.process.poll()) is not None:
            raise ServiceError(explain_end(self.engine.title, code, self.log, self.engine.remedies, self.engine.memory_advice))
        if self.parent is not None and os.getppid() != self.parent:  # the starter of this process has ended
            self.stop.set()
        return self.stop.is_set()

    def wait(self) -> None:
        """Wait for a reason to end the server."""
        while not self.is_over():
            self.stop.wait(POLL_SECONDS)

    def wait_until_healthy(self, timeout_s: float) -> None:
        """Wait until the server answers, or for a reason to end it."""
        deadline = time.monotonic() + timeout_s
        while not self.is_over() and not self.engine.is_healthy(self.request):
            if time.monotonic() > deadline:
                advice, words = find_remedy(read_tail(self.log), 0, self.engine.remedies, self.engine.memory_advice)
                raise ServiceError(
                    f"{self.engine.title} did not answer at {self.request.origin}{self.engine.health_path} within {timeout_s:g} s: "
                    f"{words or 'it said nothing'}; {advice or 'give it longer with --start-timeout'}; log: {self.log}"
                )
            self.stop.wait(POLL_SECONDS)


def _new_log(log: Path) -> Path:
    """Make an empty log; the last one stays beside it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    log.touch()
    return log
