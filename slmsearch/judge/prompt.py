"""What a language model judge is asked, and what of its reply counts as a verdict.

The text is `prompt.txt`, whose first line is its version. An answer that cannot be read as yes or no is no verdict, never a no.
"""

import json
import re
from functools import cache
from importlib.resources import files

from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError
from slmsearch.keys import content_key

MAX_ANSWER_CHARS = 500
"""Longer answers are cut before a judge reads them: no right answer is that long, and length is a way to talk a judge round."""
MAX_REPLY_TOKENS = 32
REPLY_SCHEMA = {
    "type": "object",
    "properties": {"correct": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["correct"],
    "additionalProperties": False,
}
"""What servers with structured output are told to write."""
_WORD = r"(?P<word>yes|no)"
# ASCII: without it, ignoring case takes a long s for an s, and "ye\u017f" would be neither yes nor refused.
_FLAGS = re.IGNORECASE | re.ASCII
_OBJECT = re.compile(rf'(?P<fence>```(?:json)?\s*)?\{{\s*"correct"\s*:\s*"{_WORD}"\s*\}}(?(fence)\s*```)', _FLAGS)
_BARE = re.compile(rf'(?P<quote>")?{_WORD}(?(quote)")\.?', _FLAGS)


class UnparsableReplyError(JudgeError):
    """The judge answered, but not with a verdict."""


def parse_reply(text: str) -> bool:
    """Read a yes or a no, bare or as the JSON object asked for.

    Raises:
        UnparsableReplyError: the reply is anything else; "yes, but ..." is no verdict, nor is the beginning of one.
    """
    match = _OBJECT.fullmatch(text.strip()) or _BARE.fullmatch(text.strip())
    if match is None:
        raise UnparsableReplyError(f"reply {text.strip()[:80]!r} is neither yes nor no; use a model that follows the judge prompt")
    return match["word"].lower() == "yes"


@cache
def load_prompt() -> str:
    """Load the prompt template, its version line included; the text is part of every evaluation key."""
    return files("slmsearch.judge").joinpath("prompt.txt").read_text(encoding="utf-8")


def prompt_version() -> str:
    """Return the version that the prompt's first line names."""
    return load_prompt().partition("\n")[0].removeprefix("judge-prompt version ").strip()


@cache
def prompt_key() -> str:
    """Name the prompt by its text, and by what else the same answer's verdict depends on."""
    return content_key(text=load_prompt(), max_answer_chars=MAX_ANSWER_CHARS, max_reply_tokens=MAX_REPLY_TOKENS, schema=REPLY_SCHEMA)


def as_read(question: Question, answer: str | None) -> tuple[str, tuple[str, ...], str]:
    """Return question, accepted answers and answer as a judge reads them: the answer cut, everything as text that can be sent."""
    answers = tuple(map(_sendable, question.answers))
    return _sendable(" ".join(question.question.split())), answers, _sendable((answer or "")[:MAX_ANSWER_CHARS])


def render_prompt(question: Question, answer: str | None) -> str:
    """Fill the prompt; the answer is quoted as JSON, so that it cannot pass for a part of the prompt."""
    _version, _, template = load_prompt().partition("\n")
    asked, answers, given = as_read(question, answer)
    quoted = json.dumps(answers, ensure_ascii=False), json.dumps(given, ensure_ascii=False)
    return template.format(question=asked, answers=quoted[0], answer=quoted[1])


def _sendable(text: str) -> str:
    # Lone surrogates, which a served model may write, are no UTF-8.
    return text.encode("utf-8", "replace").decode()
