"""What a language model judge is asked; the text is `prompt.txt`, whose first line is its version."""

import json
from functools import cache
from importlib.resources import files

from slmsearch.corpus.questions import Question
from slmsearch.keys import content_key

MAX_ANSWER_CHARS = 500
"""Longer answers are cut before a judge reads them: no right answer is that long, and length is a way to talk a judge round."""
MAX_REPLY_TOKENS = 128
THOUGHT_TOKENS = 2048
"""Further ones of a model that thinks although it is told not to: with the prompt, half of what Ollama holds by default."""
REPLY_SCHEMA = {
    "type": "object",
    "properties": {"correct": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["correct"],
    "additionalProperties": False,
}
"""What servers with structured output are told to write."""


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
    asked = {"max_reply_tokens": MAX_REPLY_TOKENS, "thought_tokens": THOUGHT_TOKENS, "schema": REPLY_SCHEMA}
    return content_key(text=load_prompt(), max_answer_chars=MAX_ANSWER_CHARS, **asked)


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
