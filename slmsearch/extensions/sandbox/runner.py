"""The runner inside the sandbox: it waits for one program, executes it, and talks to the server over file descriptors 0 and 1.

It uses only the standard library and protects nothing: the program shares its process and may change it in any way. The server does not
trust the output of descriptor 1; it counts, measures and limits by itself.

A message follows its length in four bytes. The server's are marshalled, because reading that takes no import: an order, then an answer
to each call. The runner's are JSON, because marshalled untrusted data must not be read: `ready`, `printed`, `call` and, at the
end, `error` (empty if there was none). Every import here costs time once per program: a program imports its own modules.
"""

from __future__ import annotations

import builtins
import io
import marshal
import os
import resource
import sys
from _json import encode_basestring_ascii as quote

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` alone takes longer to import than everything above
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

INPUT, OUTPUT, STARTUP_LOG = 0, 1, 2
HEADER_BYTES = 4
MAX_OPEN_FILES = 64


class ToolError(LookupError):
    """A tool could not serve a call: no such page, an empty query, no calls left."""


class Printed(io.TextIOBase):
    """Buffer of printed text, up to a limit, until it is sent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._kept = 0

    def writable(self) -> bool:
        """Return True: it takes text."""
        return True

    def write(self, text: str) -> int:
        """Store text; drop text past the limit, but for the one character that shows the excess."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        room = max(0, self._limit + 1 - self._kept)
        self._parts.append(text[:room])
        self._kept += min(len(text), room)
        return len(text)

    def take(self) -> str:
        """Return the text printed since the last call."""
        text = "".join(self._parts)
        self._parts.clear()
        return text


def receive() -> dict[str, Any]:
    """Read one message of the server."""
    message: dict[str, Any] = marshal.loads(_read(int.from_bytes(_read(HEADER_BYTES), "big")))
    return message


def send(**message: str) -> None:
    """Write one message; all its values are strings."""
    body = ("{" + ", ".join(f"{quote(name)}: {quote(value)}" for name, value in message.items()) + "}").encode()
    data = memoryview(len(body).to_bytes(HEADER_BYTES, "big") + body)
    while data:
        data = data[os.write(OUTPUT, data) :]


def _read(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(INPUT, count)
        if not part:  # the server has ended
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def limit_process(limits: Mapping[str, int]) -> None:
    """Lower the limits of this process for good."""
    fixed = {
        resource.RLIMIT_NPROC: 1,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_CPU: limits["cpu_s"],
    }
    for name, value in fixed.items():
        resource.setrlimit(name, (value, value))


def make_tool(name: str, printed: Printed) -> Callable[[str], Any]:
    """Make the function by which a program calls a tool of the server."""

    def tool(argument: str) -> Any:
        if not isinstance(argument, str):
            raise TypeError(f"{name} takes a string, not {type(argument).__name__}")
        send(printed=printed.take())
        send(call=name, argument=argument)
        answer = receive()
        if "refused" in answer:
            raise ToolError(answer["refused"])
        return answer["value"]

    tool.__name__ = tool.__qualname__ = name
    return tool


def execute(program: str, tools: Sequence[str], printed: Printed) -> str:
    """Execute a program and return its error in one line, empty if there is none."""
    names: dict[str, object] = {"__name__": "__main__", "__builtins__": builtins, "ToolError": ToolError}
    names |= {name: make_tool(name, printed) for name in tools}
    try:
        exec(compile(program, "program", "exec", dont_inherit=True), names)
    except SystemExit:
        return ""
    except BaseException as error:
        return describe(error)
    return ""


def describe(error: BaseException) -> str:
    """Describe the error and its line of the program."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    try:
        text = str(error.msg or "") if isinstance(error, SyntaxError) else str(error)
    except BaseException:  # a class of the program's own
        text = ""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "program":
            line = step.tb_lineno
        step = step.tb_next
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {text[:300]}{where}" if text else f"{type(error).__name__}{where}"


def main() -> None:
    """Serve one program."""
    send(ready="yes")
    os.close(STARTUP_LOG)
    order = receive()
    if order["limits"] is not None:
        limit_process(order["limits"])
    printed = Printed(order["output_chars"])
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), printed, printed
    error = execute(order["program"], order["tools"], printed)
    send(printed=printed.take())
    send(error=error)
    receive()  # until the server ends this process


if __name__ == "__main__":
    main()
