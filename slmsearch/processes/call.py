"""A child process that computes for this one: it loads a model or an embedder, and frees its memory at its end.

A function and its arguments go over a socket that only the two share, and its result or its error comes back, by its own class.
Functions among the arguments stay here: the child calls them across, for progress. The child dies with the thread that started it,
in every case, and is kept between two calls, because it takes seconds to load torch.
"""

import gc
import importlib
import logging
import logging.handlers
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self, TypeVar

from slmsearch.errors import ServiceError, SlmSearchError
from slmsearch.processes.allocator import preload_variables
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.processes.noise import silence_noise
from slmsearch.processes.processor import settle, trim_heap
from slmsearch.processes.watchdog import die_with_starter

T = TypeVar("T")

_CALLED, _LOGGED, _DONE, _FAILED = "called", "logged", "done", "failed"
"""Messages of the child: a call of a function on the other side, a log record, the result, the error."""


class Child:
    """A child process; used by one thread."""

    def __init__(self) -> None:
        """Set up the child without starting it."""
        self._process: ChildProcess | None = None
        self._line: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Return its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.is_alive else None

    def call(self, function: Callable[..., T] | str, *args: Any, **kwargs: Any) -> T:
        """Call a function of a module in the child and return its result; start the child if it does not run.

        Args:
            function: found by its name there; as `module:function` if its import here would load torch.
            args: copied to the child.
            kwargs: copied to the child; functions among them are called here, in this thread, and return nothing.

        Raises:
            ServiceError: the child has ended before it answered.
            Exception: the error that the function raised.
        """
        if self.pid is None:
            self.start()
        assert self._line is not None
        place = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
        here = {name: value for name, value in kwargs.items() if callable(value)}
        sent = {name: value for name, value in kwargs.items() if name not in here}
        try:
            self._line.send((place, args, sent, list(here)))
            while True:
                kind, *content = self._line.recv()
                if kind == _CALLED:
                    here[content[0]](*content[1:])
                elif kind == _LOGGED:
                    logging.getLogger(content[0].name).handle(content[0])
                else:
                    break
        except (EOFError, ConnectionError) as error:
            raise self._lost(place) from error
        except BaseException:
            self.stop()  # its answer would have no reader
            raise
        if kind == _FAILED:
            raise content[0]
        result: T = content[0]
        return result

    def interrupt(self) -> None:
        """Kill the child from another thread; the call that waits for it raises `ServiceError`."""
        if (process := self._process) is not None:
            process.process.kill()

    def stop(self) -> None:
        """Kill the child, and all its children, if it runs; the next call starts another."""
        if self._process is not None:
            self._process.kill()
        if self._line is not None:
            self._line.close()
        self._process = self._line = None

    def start(self, imports: Sequence[str] = ()) -> None:
        """Start the child now, and let it import modules until the first call, which waits for that."""
        self.stop()
        self._line, theirs = Pipe()
        with theirs:
            settings = ProcessSettings(preload_variables(), same_code=True, pass_fds=(theirs.fileno(),))
            self._process = ChildProcess("a computation", ["-m", __name__, str(theirs.fileno()), *imports], settings=settings)
        self._process.hang_up()

    def _lost(self, place: str) -> ServiceError:
        assert self._process is not None
        code = self._process.process.wait()
        self.stop()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = ": out of memory? Lower evaluate.batch_size, or take a smaller model" if code == -signal.SIGKILL else "; see what it printed"
        return ServiceError(f"the process that computed {place.rpartition(':')[2]} {how}{hint}")


class _Line:
    """The child's end of the socket: messages of several threads go out one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def say(self, *words: Any) -> None:
        with self._lock:
            self._connection.send(words)

    def put_nowait(self, record: logging.LogRecord) -> None:
        """Take a log record, as `QueueHandler` hands it over."""
        self.say(_LOGGED, record)

    def answer(self, message: bytes) -> None:
        """Call the requested function, and send its result or error."""
        try:
            place, args, kwargs, there = pickle.loads(message)
            module, _, name = place.partition(":")
            function = getattr(importlib.import_module(module), name)
            answer = (_DONE, function(*args, **kwargs, **{name: partial(self.say, _CALLED, name) for name in there}))
        except Exception as error:
            answer = (_FAILED, _portable(error))
        release_memory()
        self.say(*answer)


def _portable(error: Exception) -> Exception:
    """Return an error that can be pickled; an unforeseen one with the child's traceback as a note."""
    if not isinstance(error, SlmSearchError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            plain.add_note(note)
        return plain


def release_memory() -> None:
    """Free unused memory of the device, and on Linux return it to the kernel."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    trim_heap(kept=True)


def main(descriptor: int, imports: Sequence[str]) -> None:
    """Import modules, then answer calls over the shared socket with this descriptor until the starter closes it."""
    die_with_starter()
    settle()
    silence_noise()
    for module in imports:
        importlib.import_module(module)
    connection = Connection(descriptor)
    line = _Line(connection)
    logging.getLogger().addHandler(logging.handlers.QueueHandler(line))  # type: ignore[arg-type]
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, ConnectionError):
            return
        line.answer(message)


if __name__ == "__main__":
    # Under its own name, so that what it loads by this name is this module.
    importlib.import_module("slmsearch.processes.call").main(int(sys.argv[1]), sys.argv[2:])
