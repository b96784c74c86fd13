"""One program, from its order to its end, as the server sees it.

What comes out of the instance is not trusted. The server counts calls, cuts output and takes time by itself, and the instance is
killed whatever it says.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slmsearch.config import ProgramLimits
from slmsearch.errors import SandboxError
from slmsearch.sandbox.channel import ChannelError
from slmsearch.sandbox.engine import Instance, Usage
from slmsearch.searcher.episode import CallMade, ToolCall, ToolResult
from slmsearch.searcher.tools import GO_ON, READ, TOOL_NAMES

MAX_ERROR_CHARS = 500
MAX_ARGUMENT_CHARS = 2000
"""Tools are not made for longer ones, and the time they take is not the program's."""
CUT = "\n(the rest of the output is cut off)"

Serve = Callable[[ToolCall], ToolResult]
"""Serves one call, or raises what broke."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What a program came to."""

    stdout: str
    error: str
    """In one line; empty if it ran to its end."""
    calls: tuple[CallMade, ...]
    seconds: float
    """Wall time, that of the tools included."""
    tool_seconds: float
    cpu_s: float
    """CPU time of the interpreter after the program came; 0 where it cannot be measured."""
    memory_bytes: int
    """The most memory that the interpreter had; 0 where it cannot be measured."""
    received_bytes: int = 0
    """Bytes the instance sent."""


@dataclass(slots=True)
class _Account:
    """What the server knows of a running program."""

    deadline: float
    latest: float
    """The deadline is not put off beyond it, however long tools take."""
    room: int
    printed: list[str] = field(default_factory=list)
    cut: bool = False
    made: list[CallMade] = field(default_factory=list)
    tool_seconds: float = 0.0

    def keep(self, text: str) -> None:
        """Keep what was printed, as far as there is room."""
        kept = text[: self.room]
        self.cut = self.cut or len(kept) < len(text)
        self.room -= len(kept)
        if kept:
            self.printed.append(kept)


def execute_program(instance: Instance, program: str, serve: Serve, limits: ProgramLimits, longest_s: float = 60.0) -> Execution:
    """Run a program in an instance that is ready, and kill the instance.

    Args:
        instance: used up by this.
        program: Python.
        serve: the tools of the session the program belongs to.
        limits: what it may take.
        longest_s: what program and tools may take together.

    Raises:
        SlmSearchError: what `serve` raised, or tools took too long: not the program's doing.
    """
    before, started = instance.usage(), time.monotonic()
    account = _Account(started + limits.wall_s, started + max(limits.wall_s, longest_s), room=limits.output_chars)
    try:
        error = _converse(instance, order_program(program, limits), account, serve, limits)
        after = instance.usage()
    finally:
        instance.kill()
    return _report(account, error, before, after, time.monotonic() - started, instance.channel.received_bytes)


def order_program(program: str, limits: ProgramLimits) -> dict[str, Any]:
    """Return the message that gives the runner its program."""
    process = {"memory_bytes": limits.memory_mb * 1024 * 1024, "cpu_s": limits.cpu_s}
    return {"program": _clean(program), "tools": TOOL_NAMES, "limits": process, "output_chars": limits.output_chars}


def _converse(instance: Instance, order: dict[str, Any], account: _Account, serve: Serve, limits: ProgramLimits) -> str:
    """Answer what the program asks until it ends; return its error."""
    channel = instance.channel
    try:
        channel.send(order, account.deadline)
        while True:
            message = channel.receive(account.deadline)
            match message:
                case {"printed": str(text)}:
                    account.keep(_clean(text))
                case {"call": str(name), "argument": str(argument)}:
                    answer = _answer(ToolCall(_clean(name), _clean(argument)), account, serve, limits.calls)
                    channel.send(answer, account.deadline)
                case {"error": str(error)}:
                    return " ".join(_clean(error).split())[:MAX_ERROR_CHARS]
                case _:
                    raise ChannelError("stopped: it wrote to the sandbox's own channel")
    except ChannelError as error:
        if account.deadline == account.latest <= time.monotonic() and account.tool_seconds > limits.wall_s:
            told = f"the tools of a program took {account.tool_seconds:.0f} s, longer than a program and its tools may take together"
            raise SandboxError(f"{told}; look at the load of this machine") from error
        return str(error)


def _clean(text: str) -> str:
    """Replace what UTF-8 cannot hold: JSON can write a lone surrogate, and nothing behind this could be sent or stored."""
    return text.encode("utf-8", "replace").decode()


def _answer(call: ToolCall, account: _Account, serve: Serve, calls: int) -> dict[str, Any]:
    if len(account.made) >= calls:
        return {"refused": f"no calls left: a program may make {calls}"}
    if len(call.argument) > MAX_ARGUMENT_CHARS or len(call.name) > MAX_ARGUMENT_CHARS:
        return {"refused": f"argument too long: {MAX_ARGUMENT_CHARS} characters are allowed"}
    started = time.monotonic()
    result = serve(call)
    seconds = time.monotonic() - started
    account.tool_seconds += seconds
    account.deadline = min(account.deadline + seconds, account.latest)
    account.made.append(CallMade(call, result))
    return {"value": as_value(call.name, result)} if result.served else {"refused": result.text}


def as_value(tool: str, result: ToolResult) -> str | list[tuple[str, str]]:
    """Turn a result into what a program works with: the section's text, or pairs of id and title or heading."""
    if tool == READ:
        return result.text
    ids: Sequence[str] = result.section_ids or result.page_ids
    pairs, rest = [], GO_ON.sub("", result.text)
    for position, item in enumerate(ids):
        rest = rest.removeprefix(f"{item}: ")
        following = f"\n{ids[position + 1]}: " if position + 1 < len(ids) else None
        title, _, rest = rest.partition(following) if following else (rest, "", "")
        rest = f"{following[1:]}{rest}" if following else rest
        pairs.append((item, title))
    return pairs


def _report(account: _Account, error: str, before: Usage, after: Usage, seconds: float, received: int) -> Execution:
    stdout = "".join(account.printed) + (CUT if account.cut else "")
    cpu_s = max(0.0, after.cpu_s - before.cpu_s)
    return Execution(stdout, error, tuple(account.made), seconds, account.tool_seconds, cpu_s, after.memory_bytes, received)
