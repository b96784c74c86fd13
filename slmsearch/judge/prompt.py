"""Prompt of a language model judge, loaded from `prompt.txt`, whose first line is its version."""

import json
from functools import cache
from importlib.resources import files

from slmsearch.corpus.questions import Question
from slmsearch.keys import content_key

MAX_ANSWER_CHARS = 500
"""Length to which answers are cut for a judge: no right answer is longer, and length can sway a judge."""
MAX_REPLY_TOKENS = 128
THOUGHT_TOKENS = 2048
"""Further tokens for a model that always thinks: with the prompt, half of Ollama's default context."""
REPLY_SCHEMA = {
    "type": "object",
    "properties": {"correct": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["correct"],
    "additionalProperties": False,
}
"""Schema of the reply, for servers with structured output."""


@cache
def load_prompt() -> str:
    """Load the prompt template, its version line included; the text is part of every evaluation key."""
    return files("slmsearch.judge").joinpath("prompt.txt").read_text(encoding="utf-8")


def prompt_version() -> str:
    """Return the version in the prompt's first line."""
    return load_prompt().partition("\n")[0].removeprefix("judge-prompt version ").strip()


@cache
def prompt_key() -> str:
    """Return a key of the prompt's text and the other settings on which a verdict depends."""
    asked = {"max_reply_tokens": MAX_REPLY_TOKENS, "thought_tokens": THOUGHT_TOKENS, "schema": REPLY_SCHEMA}
    return content_key(text=load_prompt(), max_answer_chars=MAX_ANSWER_CHARS, **asked)


def as_read(question: Question, answer: str | None) -> tuple[str, tuple[str, ...], str]:
    """Return question, accepted answers and answer as sent to a judge: the answer cut, all as valid UTF-8."""
    answers = tuple(map(_sendable, question.answers))
    return _sendable(" ".join(question.question.split())), answers, _sendable((answer or "")[:MAX_ANSWER_CHARS])


def render_prompt(question: Question, answer: str | None) -> str:
    """Fill in the prompt; the answer is quoted as JSON, so that it cannot pose as a part of the prompt."""
    _version, _, template = load_prompt().partition("\n")
    asked, answers, given = as_read(question, answer)
    quoted = json.dumps(answers, ensure_ascii=False), json.dumps(given, ensure_ascii=False)
    return template.format(question=asked, answers=quoted[0], answer=quoted[1])


def _sendable(text: str) -> str:
    # A served model may write lone surrogates, which are not UTF-8.
    return text.encode("utf-8", "replace").decode()
