"""Questions that lean on the turn before: completed by a template with the names that were said there, so that they can be searched for."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress

from slmsearch.corpus.questions import content_words
from slmsearch.judge.exact import is_abstention

_REFERS = re.compile(r"\b(?:it|itself|they|them|he|him|she|hers)\b(?!')", re.IGNORECASE)
"""Words that stand for something said before."""
_EMPTY_IT = re.compile(
    r"\b(?:is|was|will|does|did|can|could|should|would) it (?:be )?(?:(?:rain|snow)\w*|allowed|necessary|possible|safe|time|true|worth)\b",
    re.IGNORECASE,
)
"""Words among which "it" stands for nothing."""
_OWNED = re.compile(r"\b(?:its|their|his|her)\b", re.IGNORECASE)
"""Words that do so unless a name stands before them."""
_GOES_ON = re.compile(r"(?:and|or|but|also|then|what about|how about)\b", re.IGNORECASE)
_NAME = re.compile(r"(?:[A-Z\d][\w'.-]*)(?:(?: (?:of|the|de|da|la|von|van|and))* [A-Z\d][\w'.-]*)*")
_SMALL = (
    "who whose whom what which when where why how in on of at to from by with is are was were do does did the a an until since than into"
)
_ASKING = re.compile(rf"(?:{'|'.join(_SMALL.split())})\b ?", re.IGNORECASE)
"""A word that begins a question and is no name."""
_WORD = re.compile(r"\w+")
MAX_WORDS = 12
"""Number of words up to which an answer is a name or a value, and is added."""
NEAREST, NO_ANSWER_WAS_FOUND = "the nearest is:", "No answer was found"
"""Words of the service before an answer that is not sure, and in the place of one."""
MAX_CHARS = 200
"""Longest text that is added, in characters."""


def complete(question: str, before: str, answer: str) -> str:
    """Return a question with the names of the turn before it where it leans on that turn, else as it is.

    It leans on it if it has a word that stands for something else, or goes on with "and" or "what about".

    Args:
        question: the one asked now.
        before: question before it; empty for none.
        answer: answer to that; empty for none.
    """
    owned = _OWNED.search(question)
    leans = _REFERS.search(_EMPTY_IT.sub("", question)) or _GOES_ON.match(question) or (owned and not find_names(question[: owned.start()]))
    if not before or not leans:
        return question
    kept = content_words(before) - {*_SMALL.split()}
    said = dict.fromkeys(
        [*(find_names(before) or [" ".join(word for word in _WORD.findall(before) if word.lower() in kept)]), _said(answer)]
    )
    known = ", ".join(name for name in said if name and name not in question)
    return f"{question} ({known[:MAX_CHARS]})" if known else question


def _said(answer: str) -> str:
    """Return the answer in the text of an assistant: without its wrapping, and empty if it is a refusal, or is no short answer."""
    text = answer.strip().partition(NEAREST)[2].strip() or answer.strip()
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        text = found["answer"] if isinstance(found, dict) and isinstance(found.get("answer"), str) else text
    is_answer = not is_abstention(text) and not text.startswith(NO_ANSWER_WAS_FOUND) and "\n" not in text
    return text if is_answer and len(text.split()) <= MAX_WORDS else ""


def find_names(text: str) -> list[str]:
    """Return the names in a text: words that begin with a capital letter or a digit, but for the word that begins a sentence."""
    found = []
    for match in _NAME.finditer(text):
        name = match[0]
        if match.start() == 0:
            name = _ASKING.sub("", name, count=1)
        if name:
            found.append(name.rstrip(".'-"))
    return found


def turn_before(messages: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the question before the last one, and the answer to it; empty texts where there is none.

    Args:
        messages: role and text of each, the last question included.
    """
    asked = [place for place, (role, _) in enumerate(messages) if role == "user"]
    if len(asked) < 2:
        return "", ""
    first, last = asked[-2:]
    answers = [text for role, text in messages[first + 1 : last] if role == "assistant"]
    return messages[first][1], answers[-1] if answers else ""
