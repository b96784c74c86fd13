"""Text of one assistant message to a call, a program or an answer.

Arguments are string literals that are parsed, never evaluated; a program is only found here, and looked at nowhere but in the sandbox.
No text makes this raise: what holds none of the three is malformed, which the rollout turns into a stop reason. Native tool-call
formats of other models are not read here.
"""

import re
from dataclasses import dataclass

from slmsearch.searcher.episode import ToolCall

_STRING = r"\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'"
_CALL = re.compile(rf"<tool>\s*(?P<name>[A-Za-z_]\w*)\s*\(\s*(?:[A-Za-z_]\w*\s*=\s*)?(?:{_STRING})\s*\)\s*</tool>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(?P<answer>.*?)</answer>", re.DOTALL)
_PROGRAM = re.compile(r"<code>(?P<program>.*?)</code>", re.DOTALL)
_BLANK_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+|\s+\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What a message asks for; all fields None means malformed."""

    call: ToolCall | None = None
    answer: str | None = None
    program: str | None = None

    @property
    def malformed(self) -> bool:
        """True if the text held neither a call nor a program nor an answer."""
        return self.call is None and self.answer is None and self.program is None


def parse_turn(text: str, programs: bool = False) -> ParsedTurn:
    """Find the first call, program or answer in a message; the earliest counts, what follows is ignored.

    Args:
        text: the message.
        programs: programs count, too; without it `<code>` is text like any other. One without a line of code does not count.
    """
    call = _CALL.search(text)
    answer = _ANSWER.search(text)
    program = next((found for found in _PROGRAM.finditer(text) if found["program"].strip()), None) if programs else None
    others = [found.start() for found in (call, answer) if found]
    if program and all(program.start() < start for start in others):
        return ParsedTurn(program=_BLANK_LINES.sub("", program["program"]))
    if call and (not answer or call.start() < answer.start()):
        literal = call["double"] if call["double"] is not None else call["single"]
        return ParsedTurn(call=ToolCall(call["name"], _unescape(literal).strip()))
    if answer:
        return ParsedTurn(answer=" ".join(answer["answer"].split()))
    return ParsedTurn()


def render_call(call: ToolCall) -> str:
    """Write a call as the policy writes it; `parse_turn` reads it back."""
    literal = call.argument.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'<tool>{call.name}("{literal}")</tool>'


def render_answer(answer: str) -> str:
    """Write an answer as the policy writes it."""
    return f"<answer>{answer}</answer>"


def render_program(program: str) -> str:
    """Write a program as the policy writes it; `parse_turn` reads it back if it does not hold `</code>` itself."""
    return f"<code>\n{program}\n</code>"


def _unescape(literal: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), literal)
