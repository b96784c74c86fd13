"""Parser of one assistant message into a call, a program or an answer, which may be a quotation.

Arguments are string literals that are parsed, never evaluated; this module only finds a program, and only the sandbox reads it. The parser
never raises: a message with none of these is malformed, and `problem` describes the fault in one line. Calls with a certain meaning are
accepted in other notations: other quotes or none, and the formats that chat templates teach models: JSON (Qwen, Llama, in a fence, too),
XML (Qwen3-Coder, Qwen3.5), a list of Python's (LFM2, Llama) and `<|python_tag|>` (Llama). Text in `<think>` is never read.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from slmsearch.episodes.episode import Quotation, ToolCall
from slmsearch.episodes.thinking import THINK, THOUGHT, after_thinking

_STRING = r"\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'"
_STRICT = rf"\s*(?P<name>[A-Za-z_]\w*)(?:\.call)?\s*\(\s*(?:[A-Za-z_]\w*\s*=\s*)?(?:{_STRING})\s*\)\s*"
_CALL, _WHOLE_CALL = re.compile(rf"{_STRICT}</tool>", re.DOTALL), re.compile(_STRICT, re.DOTALL)
_LOOSE = re.compile(r"(?:\w+\.)?(?P<name>(?!call\s*\()[A-Za-z_]\w*)(?:\.call)?\s*\((?P<argument>.*)\)", re.DOTALL)
_QUOTES = "\"'`“”„‟«»\u2018\u2019\u201a\u201b"
_KEYWORD = re.compile(rf"\A[A-Za-z_]\w*\s*[=:]\s*(?=[{_QUOTES}])")
_SEVERAL = re.compile(rf"[{_QUOTES}]\s*,|,\s*[A-Za-z_]\w*\s*=|[{_QUOTES}]\s*\)\s*[,;]")
_OPENING = re.compile(
    r"<(?P<tag>tool|answer|code|tool_call)>|(?P<fence>```(?:json|tool_call)?[ \t]*\r?\n)|(?P<xml>(?=<function=))"
    r"|<\|(?P<special>python_tag|tool_call_start)\|>|<answer(?P<quotes>(?=\s+(?:section|line)))"
)
_ATTRIBUTE = re.compile(rf"\s*(?P<key>section|line)(?:s|_id)?\s*=\s*(?:{_STRING}|(?P<bare>[^\s\"'<>]+?)(?=\s|/?>))", re.DOTALL)
_LINES = re.compile(r"\s*(\d{1,6})(?:\s*[-\u2013\u2014]\s*(\d{1,6}))?\s*")
_TAG_END = re.compile(r"\s*/?>")
_XML = re.compile(
    r"\s*<function=(?P<name>[A-Za-z_]\w*)>\s*<parameter=[A-Za-z_]\w*>(?P<value>(?:(?!</?(?:parameter|function|tool_call)\b).)*)"
    r"</parameter>\s*</function>\s*",
    re.DOTALL,
)
_UNMARKED = re.compile(
    rf"\[\s*(?P<listed>[A-Za-z_]\w*\s*\(\s*(?:[A-Za-z_]\w*\s*=\s*)?[{_QUOTES}].*\))\s*\]|(?P<called>[A-Za-z_]\w*\.call\s*\(.*\))", re.DOTALL
)
"""Calls whose marking tokens are left out of the text: only their brackets, or `.call`, are left."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_BARE = re.compile(r"\b(?:search_pages|view_sections|read_section)\s*\(")
_BLANK_LINES = re.compile(r"\A(?:[ \t]*\r?\n)+|\s+\Z")
"""Blank lines at the beginning and space at the end of a program."""
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
TOOL_STOPS = ("</tool>", "</answer>", "</tool_call>")
PROGRAM_STOP = "</code>"

NOTHING = 'write one call such as <tool>search_pages("query")</tool>, or <answer>your answer</answer>'
NO_TAGS = "make one call of a tool, or answer with a few words"
EMPTY = "the message is empty: " + NOTHING
CUT_OFF = "the message was too long and was cut off: " + NOTHING
UNTAGGED = "a call stands between <tool> and </tool>"
UNCLOSED = "<{tag}> is not closed: end it with </{tag}>"
NO_CALL = 'this is no call: write <tool>search_pages("query")</tool>, view_sections or read_section with one string'
NO_ARGUMENT = 'the call has no argument: give it one string in double quotes, as in search_pages("query")'
SEVERAL = "a call takes one argument: a single string in double quotes"
BAD_QUOTES = "the argument is not one string in double quotes"
BAD_JSON = 'this is no call: between <tool_call> and </tool_call> stands {"name": "search_pages", "arguments": {"query": "text"}}'
BAD_XML = "this is no call: <function=search_pages> holds one <parameter=query>text</parameter>, and ends in </function>"
NO_PROGRAM = "the program is empty"
BAD_QUOTATION = 'an answer that quotes is <answer section="section_id"></answer> or <answer section="section_id" lines="3-7"></answer>'
THINKING = "<think> is not closed, and nothing in it counts: end it with </think>, then " + NOTHING


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """The content of a message; malformed if it is neither call nor answer nor program nor quotation."""

    call: ToolCall | None = None
    answer: str | None = None
    program: str | None = None
    quotation: Quotation | None = None
    """Answer that is a part of the corpus, as the policy names it."""
    problem: str = ""
    """Fault of a malformed message, in one line; it repeats nothing of the message."""

    @property
    def malformed(self) -> bool:
        """True if the text held neither a call nor a program nor an answer."""
        return self.call is None and self.answer is None and self.program is None and self.quotation is None


def parse_turn(text: str, programs: bool = False, plain: bool = False) -> ParsedTurn:
    """Find the first call, answer or, with `programs`, program in a message; later text is ignored.

    Without `programs`, `<code>` is text like any other. A program without a line of code does not count. With `plain`, a message without a
    tag is an answer as it stands: where no tool can be called, text can mean nothing else.
    """
    said = after_thinking(text)
    first = ParsedTurn()
    for parsed in _elements(said, programs):
        if not parsed.malformed:
            return parsed
        first = first if first.problem else parsed
    whole = _read_unmarked(said)
    if not whole.malformed:
        return whole
    if first.problem or whole.problem:
        return first if first.problem else whole
    return ParsedTurn(answer=" ".join(said.split())) if plain and said.strip() else ParsedTurn(problem=_missing(text, said))


def _elements(text: str, programs: bool) -> Iterator[ParsedTurn]:
    """Read the text after each opening tag, in order; the content of a well-formed element is not read again."""
    for opening in _OPENING.finditer(text):
        tag, start = opening["tag"], opening.end()
        if not tag:
            yield from _native_elements(text, opening)
            continue
        if tag == "tool":
            strict = _CALL.match(text, start)
            if strict:
                yield ParsedTurn(call=_strict_call(strict))
                continue
        elif tag == "code" and not programs:
            continue
        body, closed, _ = text[start:].partition(f"</{tag}>")
        if tag == "tool_call":  # complete JSON needs no closing tag
            call = _native_call(body) or _xml_call(_XML.fullmatch(body))
            yield ParsedTurn(call=call, problem="" if call else BAD_XML if "<function=" in body else BAD_JSON)
        elif not closed:
            yield ParsedTurn(problem=UNCLOSED.format(tag=tag))
        elif tag == "answer":
            yield ParsedTurn(answer=" ".join(body.split()))
        elif tag == "code":
            program = _BLANK_LINES.sub("", body) if body.strip() else None
            yield ParsedTurn(program=program, problem="" if program else NO_PROGRAM)
        else:
            yield _read_loose(body)


def _native_elements(text: str, opening: re.Match[str]) -> Iterator[ParsedTurn]:
    """Read the text after a mark that is not one of our plain tags; a fence that holds no call is text like any other."""
    if opening["quotes"] is not None:
        yield _read_quotation(text, opening.end())
    elif opening["xml"] is not None:
        call = _xml_call(_XML.match(text, opening.start()))
        yield ParsedTurn(call=call, problem="" if call else BAD_XML)
    elif opening["fence"]:
        if call := _native_call(text[opening.end() :].partition("```")[0]):
            yield ParsedTurn(call=call)
    else:
        body = re.split(r"<\|\w+\|>", text[opening.end() :], maxsplit=1)[0].strip()
        yield _read_loose(body[1:-1] if body[:1] == "[" and body[-1:] == "]" and body[1:2] != "{" else body)


def _read_unmarked(said: str) -> ParsedTurn:
    """Read a message that consists of a call in a native format; other messages hold none, and no fault."""
    if call := _native_call(said):
        return ParsedTurn(call=call)
    found = _UNMARKED.fullmatch(said.strip())
    return _read_loose(found["listed"] or found["called"]) if found else ParsedTurn()


def _strict_call(found: re.Match[str]) -> ToolCall:
    literal = found["double"] if found["double"] is not None else found["single"]
    return ToolCall(found["name"], _unescape(literal).strip())


def _read_quotation(text: str, start: int) -> ParsedTurn:
    """Read the attributes of an answer that quotes; a text inside of it does not count, and it needs no closing tag."""
    given: dict[str, str] = {}
    while found := _ATTRIBUTE.match(text, start):
        literal = found["double"] if found["double"] is not None else found["single"]
        given.setdefault(found["key"], found["bare"].strip(_QUOTES) if literal is None else _unescape(literal).strip())
        start = found.end()
    lines = _LINES.fullmatch(given.get("line", ""))
    if not given.get("section") or ("line" in given and lines is None) or not _TAG_END.match(text, start):
        return ParsedTurn(problem=BAD_QUOTATION)
    return ParsedTurn(quotation=Quotation(given["section"], (int(lines[1]), int(lines[2] or lines[1])) if lines else None))


def _xml_call(found: re.Match[str] | None) -> ToolCall | None:
    return ToolCall(found["name"], found["value"].strip()) if found else None


def _read_loose(body: str) -> ParsedTurn:
    """Read one call in another notation than the prompt's."""
    strict = _WHOLE_CALL.fullmatch(body)
    if call := _strict_call(strict) if strict else _native_call(body):
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
    # Unquoted text is taken literally; quotes, calls or sums inside of it are ambiguous.
    doubtful = '"' in inside or "“" in inside if all(quoted) else any(mark in inside for mark in '"“”()=') or any(quoted)
    if doubtful:
        return ParsedTurn(problem=BAD_QUOTES)
    return ParsedTurn(call=ToolCall(loose["name"], " ".join(_unescape(inside).split())))


def _native_call(text: str) -> ToolCall | None:
    """Read `{"name": ..., "arguments": {...}}`, alone or in a list; arguments may be called parameters, nulls do not count."""
    try:
        found = json.loads(text)
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        arguments = found.get("arguments", found.get("parameters")) if isinstance(found, dict) else None
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict) or not isinstance(found.get("name"), str):
        return None
    values = [str(value) if type(value) is int else value for value in arguments.values() if value is not None]
    if not _NAME.fullmatch(found["name"]) or len(values) != 1 or not isinstance(values[0], str):
        return None
    return ToolCall(found["name"], values[0].strip())


def _missing(text: str, said: str) -> str:
    """Describe what a message without any tag lacks."""
    if THINK in text.rpartition(THOUGHT)[2]:
        return THINKING
    if not said.strip():
        return EMPTY
    return UNTAGGED if _BARE.search(said) else NOTHING


def render_call(call: ToolCall) -> str:
    """Write a call as the policy writes it; `parse_turn` reads it back."""
    return f'<tool>{call.name}("{_escape(call.argument)}")</tool>'


def render_answer(answer: str) -> str:
    """Write an answer as the policy writes it."""
    return f"<answer>{answer}</answer>"


def render_quotation(quotation: Quotation) -> str:
    """Write an answer that quotes as the policy writes it; `parse_turn` reads it back."""
    lines = ' lines="{}-{}"'.format(*quotation.lines) if quotation.lines else ""
    return f'<answer section="{_escape(quotation.section_id)}"{lines}></answer>'


def _escape(text: str) -> str:
    literal = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    # A closing tag in the text would end the turn, and thinking tags mean something, too.
    return literal.replace("</", "<\\/").replace(THINK, THINK.replace("i", "\\i"))


def _unescape(literal: str) -> str:
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2]), literal)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two \u may be one character
