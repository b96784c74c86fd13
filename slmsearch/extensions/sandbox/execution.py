"""Execution of one program on the server, from its order to its end.

What comes out of the instance is not trusted. The server counts calls, cuts output and takes time by itself, and the instance is
killed whatever it says.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest

from slmsearch.config import LimitsConfig, ProgramLimits
from slmsearch.environments.searcher.tools import GO_ON, READ, TOOL_NAMES
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.engine import ChannelError, Instance

MAX_ERROR_CHARS = 500
MAX_ARGUMENT_CHARS = 2000
"""Maximum characters of a tool's argument: tools are not made for longer ones, and their time is not the program's."""
SHOWN_CHARS = 30
"""Characters of a line by which a text is known."""
CUT = "\n(the rest of the output is cut off)"

Serve = Callable[[ToolCall], ToolResult]
"""Function that serves one call, or raises the error."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call by a program, and its result; the text stays in the program."""

    name: str
    argument: str
    served: bool
    page_ids: tuple[str, ...]
    section_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """Result of a program; as JSON, the answer of `/execute`."""

    stdout: str = ""
    error: str = ""
    """Error in one line; empty if the program ran to its end."""
    calls: tuple[ProgramCall, ...] = ()
    seconds: float = 0.0
    """Wall time, with that of the tools."""
    tool_seconds: float = 0.0
    received_bytes: int = 0
    """Number of bytes that the instance sent."""


def execute_program(instance: Instance, program: str, serve: Serve, limits: ProgramLimits, longest_s: float = 60.0) -> Execution:
    """Run a program in an instance that is ready, and kill the instance.

    Args:
        instance: used up by this.
        program: Python.
        serve: the tools of the session the program belongs to.
        limits: limits of the program.
        longest_s: time limit for program and tools together.

    Raises:
        SlmSearchError: what `serve` raised, or tools took too long: not the program's doing.
    """
    try:
        return Conversation(instance, serve, limits, longest_s).hold(order_program(program, limits))
    finally:
        instance.kill()


def complete_limits(settings: LimitsConfig) -> ProgramLimits:
    """Return all limits of a program from the configured ones: it may compute for as long as it may run."""
    if isinstance(settings, ProgramLimits):
        return settings
    limits = ProgramLimits(**settings.model_dump())
    return limits.model_copy(update={"cpu_s": max(limits.cpu_s, math.ceil(limits.wall_s))})


def order_program(program: str, limits: ProgramLimits) -> dict[str, object]:
    """Return the message that gives the runner its program."""
    process = {"memory_bytes": limits.memory_mb * 1024 * 1024, "cpu_s": limits.cpu_s}
    return {"program": _clean(program), "tools": TOOL_NAMES, "limits": process, "output_chars": limits.output_chars}


class Conversation:
    """The server's side of a running program."""

    def __init__(self, instance: Instance, serve: Serve, limits: ProgramLimits, longest_s: float) -> None:
        """See `execute_program`."""
        self._instance, self._serve, self._limits = instance, serve, limits
        self._printed: list[str] = []
        self._room = limits.output_chars
        self._calls: list[ProgramCall] = []
        self._texts: list[str] = []
        self._tool_seconds, self._started = 0.0, time.monotonic()
        self._deadline = self._started + limits.wall_s
        # It is not put off beyond this, however long tools take.
        self._latest = self._started + max(limits.wall_s, longest_s)

    def hold(self, order: dict[str, object]) -> Execution:
        """Send the program, answer its requests until it ends, and return its result."""
        error, printed = self._answer_all(order), "".join(self._printed)
        made = zip(self._calls, self._texts, strict=True)
        calls = (replace(call, section_ids=shown_sections(call.section_ids, text, printed)) for call, text in made)
        return Execution(
            stdout=printed + (CUT if self._room < 0 else ""),
            error=error,
            calls=tuple(calls),
            seconds=time.monotonic() - self._started,
            tool_seconds=self._tool_seconds,
            received_bytes=self._instance.channel.received_bytes,
        )

    def _answer_all(self, order: dict[str, object]) -> str:
        """Answer the program's requests until it ends; return its error."""
        channel = self._instance.channel
        try:
            channel.send(order, self._deadline)
            while True:
                match channel.receive(self._deadline):
                    case {"printed": str(text)}:
                        self._printed.append(_clean(text[: max(0, self._room)]))
                        self._room -= len(text)
                    case {"call": str(name), "argument": str(argument)}:
                        channel.send(self._answer(ToolCall(_clean(name), _clean(argument))), self._deadline)
                    case {"error": str(error)}:
                        return " ".join(_clean(error).split())[:MAX_ERROR_CHARS]
                    case _:
                        raise ChannelError("stopped: it wrote to the sandbox's own channel")
        except ChannelError as ended:
            if self._deadline == self._latest <= time.monotonic() and self._tool_seconds > self._limits.wall_s:
                told = f"the tools of a program took {self._tool_seconds:.0f} s, longer than a program and its tools may take together"
                raise SandboxError(f"{told}; look at the load of this machine") from ended
            return str(ended)

    def _answer(self, call: ToolCall) -> dict[str, object]:
        if len(self._calls) >= self._limits.calls:
            return {"refused": f"no calls left: a program may make {self._limits.calls}"}
        if len(call.argument) > MAX_ARGUMENT_CHARS or len(call.name) > MAX_ARGUMENT_CHARS:
            return {"refused": f"argument too long: {MAX_ARGUMENT_CHARS} characters are allowed"}
        started = time.monotonic()
        result = self._serve(call)
        seconds = time.monotonic() - started
        self._tool_seconds += seconds
        self._deadline = min(self._deadline + seconds, self._latest)
        self._calls.append(ProgramCall(call.name, call.argument, result.served, result.page_ids, result.section_ids))
        self._texts.append(result.text if call.name == READ else "")
        return {"value": as_value(call.name, result)} if result.served else {"refused": result.text}


def shown_sections(ids: tuple[str, ...], text: str, printed: str) -> tuple[str, ...]:
    """Return the sections of a call that its program showed.

    Args:
        ids: the section that it read, and those within; or what another call listed.
        text: text that it read; empty for another call.
        printed: output of the program. All of the text shows all of them; a line of it, or a printed line that stands in it, the first.
    """
    if not text or text.strip() in printed:
        return ids
    least = min(SHOWN_CHARS, len(text.strip()))
    pairs = ((line.strip(), other) for one, other in ((text, printed), (printed, text)) for line in one.split("\n"))
    return ids[:1] if any(len(line) >= least and line in other for line, other in pairs) else ()


def _clean(text: str) -> str:
    """Replace characters that UTF-8 cannot hold: JSON can write a lone surrogate, which could be neither sent nor stored."""
    return text.encode("utf-8", "replace").decode()


def as_value(tool: str, result: ToolResult) -> str | list[tuple[str, str]]:
    """Turn a result into a value for a program: the section's text, or pairs of id and title or heading."""
    if tool == READ:
        return result.text
    ids = result.section_ids or result.page_ids
    pairs, rest = [], GO_ON.sub("", result.text).removeprefix(f"{ids[0]}: " if ids else "")
    for item, following in zip_longest(ids, ids[1:]):
        title, _, rest = (rest, "", "") if following is None else rest.partition(f"\n{following}: ")
        pairs.append((item, title))
    return pairs
