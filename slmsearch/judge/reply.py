"""Replies of a judge's model, and the parser of their verdicts.

A reply counts only if it has a single meaning: the requested object, also with further keys, or a separate yes or no, first or last. Any
other reply is no verdict, never a no: the reply may quote the answer, so a yes in the middle of a text proves nothing. Thoughts are never
read.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slmsearch.errors import JudgeError
from slmsearch.judge.exact import SEEN

MAX_CHARS = 40_000
"""Maximum length of a reply, in characters; longer ones are not read."""
EMPTY, ONLY_THOUGHTS = "an empty reply", "nothing after its thoughts"
NEITHER, BOTH = "neither yes nor no", "both yes and no"
CUT_OFF, IN_THOUGHTS = "cut off after {} tokens", " inside its thoughts"

# ASCII: otherwise, ignoring case matches a long s with an s, and "ye\u017f" would be neither yes nor refused.
_FLAGS = re.IGNORECASE | re.ASCII
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>|\[/THINK\]|<\|channel\|>final<\|message\|>", re.IGNORECASE)
_THOUGHT = re.compile(r"<(?:think|thinking|reasoning)>|\[THINK\]|<\|channel\|>analysis<\|message\|>", re.IGNORECASE)
_WORDS = {"yes": True, "true": True, "correct": True, "no": False, "false": False, "incorrect": False, "not correct": False, "wrong": False}
_MARKS = r"[\s*_`\"'\u201c\u201d]*"
_WORD = r"(?P<word>not correct|incorrect|correct|yes|no|true|false|wrong)\b"
_VERDICT = rf"[#>-]*{_MARKS}(?:(?:final )?(?:correct|verdict|grade|judge?ment){_MARKS}[:=]{_MARKS})?{_WORD}{_MARKS}"
_ALONE = re.compile(rf"{_VERDICT}[.!]?{_MARKS}", _FLAGS)
_ALMOST_JSON = re.compile(rf"\{{{_MARKS}correct{_MARKS}:{_MARKS}{_WORD}{_MARKS},?\s*\}}", _FLAGS)
_FIRST = re.compile(rf"{_VERDICT}(?:[.,;:!](?=\s)|\s[-\u2013\u2014](?=\s))\s*(?!\d)", _FLAGS)
_FENCE = re.compile(r"```[a-z]*", re.IGNORECASE)
_TURN = r"but|however|although|though|except|wait|actually|unless|partly|partially|maybe|perhaps|hmm|reconsider\w*"
_AGAINST = {
    True: re.compile(
        rf"\b(?:{_TURN}|no|not|never|nor|neither|incorrect\w*|wrong\w*|false|inaccurate|cannot|without|unclear|unsure|vague|hedg\w*|"
        r"differ\w*|mismatch\w*)\b|n['\u2019]t\b",
        _FLAGS,
    ),
    False: re.compile(rf"\b(?:{_TURN}|yes|true|is (?:\w+ )?(?:correct|right)|correctly)\b", _FLAGS),
}
"""Words after a verdict that may take it back."""


class UnparsableReplyError(JudgeError):
    """Error of a reply without a verdict."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Text that a model wrote."""

    text: str
    thoughts: str = ""
    """Reasoning that the server returned separately."""
    cut_off: bool = False
    """True if the token limit ended the reply."""
    tokens: int = 0
    """Number of tokens, thoughts included."""

    @property
    def said(self) -> str:
        """Text without thoughts that the server left in it."""
        rest = self.text[max((found.end() for found in _THOUGHT_END.finditer(self.text)), default=0) :]
        return _THOUGHT.split(rest, maxsplit=1)[0].strip()

    @property
    def thinks(self) -> bool:
        """True if the model wrote thoughts."""
        return bool(self.thoughts.strip() or _THOUGHT.search(self.text) or _THOUGHT_END.search(self.text))


def parse_reply(reply: Reply) -> bool:
    """Parse a yes or a no.

    Raises:
        UnparsableReplyError: the reply is anything else; "yes, but ..." is no verdict, nor is a truncated reply.
    """
    said = reply.said
    whole = said.endswith("}") or not reply.cut_off  # what follows a fence is unknown where the reply was cut off
    verdict = _read(_FENCE.sub("", said).strip(), reply.cut_off) if said and whole and len(said) <= MAX_CHARS else None
    if isinstance(verdict, bool):
        return verdict
    inside = IN_THOUGHTS if reply.thinks and not said else ""
    cause = CUT_OFF.format(reply.tokens) + inside if reply.cut_off else verdict or (ONLY_THOUGHTS if inside else EMPTY)
    seen = " ".join((said or reply.thoughts or reply.text).split())
    raise UnparsableReplyError(f"no verdict: {cause}{SEEN}{seen[:80]!r}" if seen else f"no verdict: {cause}")


def _read(said: str, cut_off: bool) -> bool | str:
    """Return the verdict, or the reason why there is none."""
    blocks = list(_objects(said))
    if cut_off:  # the rest is unknown; some grammars add blanks after the whole object
        whole = len(blocks) == 1 and blocks[0][0] == 0 and not said[blocks[0][1] :].strip()
        return _agree([blocks[0][2]]) if whole else NEITHER
    if alone := _ALONE.fullmatch(said) or _ALMOST_JSON.fullmatch(said):
        return _agree([_word(alone["word"])])
    blocks += [(*line.span(), _word(alone["word"])) for line in re.finditer(r"[^\n]+", said) if (alone := _ALONE.fullmatch(line[0]))]
    first = _FIRST.match(said)
    verdict = _agree([given for _, _, given in blocks] + ([_word(first["word"])] if first else []))
    if not isinstance(verdict, bool):
        return verdict
    ends = [end for _, end, _ in blocks]
    if ends and not said[max(ends) :].strip(" \n.,"):
        return verdict  # a reason may come first
    if first:
        rest = said[first.end() :]
    elif min(start for start, _, _ in blocks) == 0:
        rest = said[max(ends) :]
    else:
        return NEITHER
    found = _AGAINST[verdict].search(rest)
    return verdict if not found else BOTH if found[0].lower() in _WORDS else NEITHER


def _objects(said: str) -> Iterator[tuple[int, int, bool | None]]:
    """Yield start, end and verdict of the JSON objects that begin a line or follow another one."""
    decoder, position = json.JSONDecoder(object_pairs_hook=_Pairs, strict=False), 0
    for line in re.finditer(r"^[ \t]*(?=\{)", said, re.MULTILINE):
        start = line.end()
        while start >= position and said[start : start + 1] == "{":
            try:
                found, position = decoder.raw_decode(said, start)
            except (ValueError, RecursionError):
                break
            yield start, position, found.verdict
            start = position + len(said[position:]) - len(said[position:].lstrip(" ,\t\n"))


class _Pairs(list[tuple[str, Any]]):
    """JSON object that may repeat keys."""

    @property
    def verdict(self) -> bool | None:
        """Verdict of the object if it is unique: other keys may hold a reason, but no other verdict."""
        given = {_word(value) for key, value in self if key.lower() == "correct"}
        others = {_word(value) for key, value in self if key.lower() != "correct"} - {None}
        return given.pop() if len(given) == 1 and others <= given else None


def _word(value: Any) -> bool | None:
    return value if isinstance(value, bool) else _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _agree(given: list[bool | None]) -> bool | str:
    if {True, False} <= set(given):
        return BOTH
    return NEITHER if not given or None in given else bool(given[0])
