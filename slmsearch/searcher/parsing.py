"""Text of one assistant message to a call, a program or an answer.

Arguments are string literals that are parsed, never evaluated; a program is only found here, and looked at nowhere but in the sandbox.
No text makes this raise: what holds none of the three is malformed, and `problem` says in one line what is wrong with it. Calls whose
meaning is certain are taken although they are not written as asked: other quotes or none, and the JSON of models' own tool-call formats.
What stands in `<think>` is never read.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from slmsearch.searcher.episode import ToolCall

_STRING = r"\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'"
_CALL = re.compile(rf"\s*(?P<name>[A-Za-z_]\w*)\s*\(\s*(?:[A-Za-z_]\w*\s*=\s*)?(?:{_STRING})\s*\)\s*</tool>", re.DOTALL)
_LOOSE = re.compile(r"(?:\w+\.)?(?P<name>[A-Za-z_]\w*)\s*\((?P<argument>.*)\)", re.DOTALL)
_QUOTES = "\"'`“”„‟«»\u2018\u2019\u201a\u201b"
_KEYWORD = re.compile(rf"\A[A-Za-z_]\w*\s*[=:]\s*(?=[{_QUOTES}])")
_SEVERAL = re.compile(rf"[{_QUOTES}]\s*,|,\s*[A-Za-z_]\w*\s*=")
_OPENING = re.compile(r"<(?P<tag>tool|answer|code|tool_call)>")
_NAME = re.compile(r"[A-Za-z_]\w*")
_BARE = re.compile(r"\b(?:search_pages|view_sections|read_section)\s*\(")
_BLANK_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+|\s+\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}

THINK, THOUGHT = "<think>", "</think>"
"""Around what a thinking model writes before it says anything."""
TOOL_STOPS = ("</tool>", "</answer>", "</tool_call>")
PROGRAM_STOP = "</code>"

NOTHING = 'write one call such as <tool>search_pages("query")</tool>, or <answer>your answer</answer>'
EMPTY = "the message is empty: " + NOTHING
CUT_OFF = "the message was too long and was cut off: " + NOTHING
UNTAGGED = "a call stands between <tool> and </tool>"
UNCLOSED = "<{tag}> is not closed: end it with </{tag}>"
NO_CALL = 'this is no call: write <tool>search_pages("query")</tool>, view_sections or read_section with one string'
NO_ARGUMENT = 'the call has no argument: give it one string in double quotes, as in search_pages("query")'
SEVERAL = "a call takes one argument: a single string in double quotes"
BAD_QUOTES = "the argument is not one string in double quotes"
BAD_JSON = 'this is no call: between <tool_call> and </tool_call> stands {"name": "search_pages", "arguments": {"query": "text"}}'
NO_PROGRAM = "the program is empty"
THINKING = "<think> is not closed, and nothing in it counts: end it with </think>, then " + NOTHING


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What a message asks for; malformed if it is neither call nor answer nor program."""

    call: ToolCall | None = None
    answer: str | None = None
    program: str | None = None
    problem: str = ""
    """What is wrong with a malformed message, in one line; it repeats nothing of the message."""

    @property
    def malformed(self) -> bool:
        """True if the text held neither a call nor a program nor an answer."""
        return self.call is None and self.answer is None and self.program is None


def parse_turn(text: str, programs: bool = False) -> ParsedTurn:
    """Find the first call, answer or, with `programs`, program in a message; the earliest counts, what follows is ignored.

    Without `programs`, `<code>` is text like any other. A program without a line of code does not count.
    """
    said = after_thinking(text)
    first = ParsedTurn()
    for parsed in _elements(said, programs):
        if not parsed.malformed:
            return parsed
        first = first if first.problem else parsed
    call = _native_call(said)
    if call:
        return ParsedTurn(call=call)
    return first if first.problem else ParsedTurn(problem=_missing(text, said))


def after_thinking(text: str) -> str:
    """Return what is said: the text after the last `</think>`, and up to a `<think>` that is never closed."""
    return text.rpartition(THOUGHT)[2].partition(THINK)[0]


def _elements(text: str, programs: bool) -> Iterator[ParsedTurn]:
    """Read what follows each opening tag, in order; what lies inside of a well-formed element is not looked at again."""
    for opening in _OPENING.finditer(text):
        tag, start = opening["tag"], opening.end()
        if tag == "tool":
            strict = _CALL.match(text, start)
            if strict:
                literal = strict["double"] if strict["double"] is not None else strict["single"]
                yield ParsedTurn(call=ToolCall(strict["name"], _unescape(literal).strip()))
                continue
        elif tag == "code" and not programs:
            continue
        body, closed, _ = text[start:].partition(f"</{tag}>")
        if tag == "tool_call":  # complete JSON needs no closing tag
            call = _native_call(body)
            yield ParsedTurn(call=call, problem="" if call else BAD_JSON)
        elif not closed:
            yield ParsedTurn(problem=UNCLOSED.format(tag=tag))
        elif tag == "answer":
            yield ParsedTurn(answer=" ".join(body.split()))
        elif tag == "code":
            program = _BLANK_LINES.sub("", body) if body.strip() else None
            yield ParsedTurn(program=program, problem="" if program else NO_PROGRAM)
        else:
            yield _read_loose(body)


def _read_loose(body: str) -> ParsedTurn:
    """Read what stands between `<tool>` and `</tool>` and is not written as asked."""
    call = _native_call(body)
    if call:
        return ParsedTurn(call=call)
    loose = _LOOSE.fullmatch(body.strip().strip("`").strip())
    if not loose:
        return ParsedTurn(problem=NO_CALL)
    argument = _KEYWORD.sub("", loose["argument"].strip(), count=1).strip()
    if not argument.strip(_QUOTES).strip():
        return ParsedTurn(problem=NO_ARGUMENT)
    if _SEVERAL.search(argument):
        return ParsedTurn(problem=SEVERAL)
    quoted = argument[0] in _QUOTES, argument[-1] in _QUOTES
    inside = argument[quoted[0] : len(argument) - quoted[1]]
    # Unquoted text is taken as it stands; quotes, calls or sums inside of it could mean anything.
    doubtful = '"' in inside or "“" in inside if all(quoted) else any(mark in inside for mark in '"“”()=') or any(quoted)
    if doubtful:
        return ParsedTurn(problem=BAD_QUOTES)
    return ParsedTurn(call=ToolCall(loose["name"], " ".join(_unescape(inside).split())))


def _native_call(text: str) -> ToolCall | None:
    """Read `{"name": ..., "arguments": {...}}`, as Qwen, Llama and others write calls; arguments may be called parameters."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    try:
        found, end = json.JSONDecoder().raw_decode(stripped)
        arguments = found.get("arguments", found.get("parameters"))
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    name = found.get("name")
    if stripped[end:].strip() or not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(arguments, dict):
        return None
    values = list(arguments.values())
    return ToolCall(name, values[0].strip()) if len(values) == 1 and isinstance(values[0], str) else None


def _missing(text: str, said: str) -> str:
    """Say what a message without any tag lacks."""
    if THINK in text.rpartition(THOUGHT)[2]:
        return THINKING
    if not said.strip():
        return EMPTY
    return UNTAGGED if _BARE.search(said) else NOTHING


def render_call(call: ToolCall) -> str:
    """Write a call as the policy writes it; `parse_turn` reads it back."""
    literal = call.argument.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    # A closing tag in the argument would end the turn, and thinking tags mean something, too.
    literal = literal.replace("</", "<\\/").replace(THINK, THINK.replace("i", "\\i"))
    return f'<tool>{call.name}("{literal}")</tool>'


def render_answer(answer: str) -> str:
    """Write an answer as the policy writes it."""
    return f"<answer>{answer}</answer>"


def _unescape(literal: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), literal)
