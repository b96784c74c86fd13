"""A statement with a gap: what is left out is a date, a number, a name or a quoted term."""

import re
from collections.abc import Iterator

from slmsearch.corpus.tables import holds_answer
from slmsearch.questions.sentences import Draft, Sentence
from slmsearch.questions.spans import Span, find_spans

GAP = "____"
ASKED = {"date": "Which date", "year": "Which year", "number": "Which number", "name": "Which name", "term": "Which words"}
_NEEDS_PAGE = re.compile(
    r"(?i)^(?:(?:it|its|he|his|she|her|they|their|this|these|that|those|there|here|such|both|another|other|also|the)\b)"
)


def make_clozes(sentence: Sentence) -> Iterator[Draft]:
    """Yield a question for each span whose words stand nowhere else in the sentence and not in the page's title."""
    for span in find_spans(sentence.text):
        rest = f"{sentence.text[: span.start]} {GAP} {sentence.text[span.end :]}"
        if holds_answer(rest, span.text) or holds_answer(sentence.title, span.text) or not any(c.isalpha() for c in rest):
            continue
        yield Draft(_question(sentence, span), span.text, "cloze", sentence)


def _question(sentence: Sentence, span: Span) -> str:
    text = f"{sentence.text[: span.start]}{GAP}{sentence.text[span.end :]}".replace('"', "'")
    asked = f'{ASKED[span.kind]} fills the gap: "{text}"' if span.kind != "term" else f'{ASKED[span.kind]} fill the gap: "{text}"'
    if sentence.title.casefold() in sentence.text.casefold() and not _NEEDS_PAGE.match(sentence.text):
        return asked
    return f'According to "{sentence.title}": {asked[0].lower()}{asked[1:]}'
