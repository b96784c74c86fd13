"""Questions on how something is done: a heading that names an action asks, and the first lines of its section are the answer.

Only English headings are read. That a word is a verb, and which verb a form in -ing is of, is read from the corpus itself: it has the verb
behind "to" or "can" more often than behind an article.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from slmsearch.corpus.questions import PASSAGE_WORDS
from slmsearch.made_questions.cloze import Draft, Excerpt

HOW_TO = "how_to"
"""Kind of the questions."""
FORMS = ("How do I {}?", "How can I {}?", "How to {}?", "What do I have to do to {}?", "I want to {}. How do I do that?")
"""Forms of a question; the heading decides which."""
MAX_ANSWER_WORDS = 120
_NUMBER, _ASKED = r"(?:(?:\d+|[A-Z]\.)[\d.]*\)?\s+)?", r"(?:[Hh]ow (?:(?:do|can) (?:I|you|we) |to )|I [Ww]ant to )?"
_HEADING = re.compile(rf"{_NUMBER}{_ASKED}(?P<verb>[A-Za-z][a-z]{{2,}})\b(?P<rest>[^?:]{{3,60}})\??")
_SECOND = re.compile(r"\b(?:and|or|&) \w+ing\b")
_VERB = re.compile(r"\b(?:[Tt]o|can) (?!also|always|easily|only|then)([a-z]{2,})\b")
_NOUN = re.compile(r"\b(?:the|an?|this|your|its|of|in|on|with|for|from) ([a-z]{2,})\b")


def find_verbs(texts: Iterable[str]) -> Counter[str]:
    """Count the words of a corpus that stand where a verb does more often than where a noun does."""
    verbs, nouns = Counter[str](), Counter[str]()
    for text in texts:
        verbs.update(_VERB.findall(text))
        nouns.update(_NOUN.findall(text))
    return Counter({word: count for word, count in verbs.items() if count > nouns[word]})


def find_action(heading: str, verbs: Mapping[str, int]) -> str | None:
    """Return the action that a heading names, beginning with its verb (`Using the guide`: `use the guide`); None without one, or of two."""
    match = _HEADING.fullmatch(heading.strip())
    if match is None or _SECOND.search(match["rest"]):
        return None
    first = match["verb"].lower()
    stem = first.removesuffix("ing")
    forms = [first, *([f"{stem}e", stem, *([stem[:-1]] if stem[-1:] == stem[-2:-1] else [])] if stem != first else [])]
    verb = max(forms, key=lambda form: verbs.get(form, 0))
    return f"{verb}{match['rest']}" if verbs.get(verb, 0) else None


def make_how_tos(section: Excerpt, verbs: Mapping[str, int]) -> Iterator[Draft]:
    """Yield the question of a section whose heading names an action, if its text is long enough for a passage."""
    action, answer = find_action(section.heading, verbs), _first_lines(section.text)
    if action and len(answer.split()) > PASSAGE_WORDS:
        yield Draft(FORMS[crc32(action.encode()) % len(FORMS)].format(action), answer, HOW_TO, section)


def _first_lines(text: str) -> str:
    """Return the first lines of a section as they stand, as many as stay below `MAX_ANSWER_WORDS`."""
    lines, words = text.split("\n"), 0
    for number, line in enumerate(lines):
        words += len(line.split())
        if number and words > MAX_ANSWER_WORDS:
            return "\n".join(lines[:number]).strip()
    return text.strip()
