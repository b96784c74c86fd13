"""Sections of one paragraph (`corpus.sections: paragraphs`): pages rewritten so that every paragraph has a heading of its own.

A small model reads a paragraph more easily than a page, and a page without headings has no other sections. The rewritten page is ordinary
Markdown: section ids, passages, digests and index keys follow from it by the usual rules.

- Paragraphs end at blank lines outside code fences. One of more than `MAX_CHARS` characters is cut at sentences, one without sentences at
  spaces; code is not cut.
- A paragraph repeats the heading above it: `history`, `history_2`, `history_3`. All headings below the title have level two, so that no
  section includes others.
- A paragraph above all headings, or after the first under the title, is `paragraph_N`, counted through the page's lead.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.questions import Question, content_words, holds_answer
from slmsearch.corpus.sections import is_fence_end, outline, read_fence

MAX_CHARS = 1500
"""Maximum length of a paragraph, in characters; the same as the default of `searcher.max_section_chars`."""
_BRACKETS = re.compile(r"\s*\([^()]*\)$")
"""Part of a title that distinguishes it from others, as in "Ran (film)"; texts omit it."""
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"\u201d\u2019')\]]*\s+(?=[\"\u201c\u2018'(\[]*[A-Z\u00c0-\u00de0-9])|\n")


def split_paragraphs(page: Page) -> Page:
    """Return the page with a heading before every paragraph; a page without text is unchanged."""
    lines, headings = outline(page)
    blocks: list[str] = []
    first = next((line for line, _, _ in headings if line >= 0), len(lines))
    lead = list(_paragraphs(lines[:first]))
    count = 0
    for index, (start, level, heading) in enumerate(headings):
        is_title = index == 0 and level == 1
        end = headings[index + 1][0] if index + 1 < len(headings) else len(lines)
        own = list(_paragraphs(lines[start + 1 : end])) if start >= 0 else []
        if index == 0:
            own = [*lead, *own]
        if is_title:
            blocks.append(f"# {heading.strip()}" + (f"\n\n{own[0]}" if own else ""))
            blocks += [f"## Paragraph {number}\n\n{text}" for number, text in enumerate(own[1:], start=2)]
        else:
            blocks += [f"## {heading.strip()}\n\n{text}" for text in own] or [f"## {heading.strip()}"]
        count += len(own)
    if not headings:
        blocks = [f"## Paragraph {number}\n\n{text}" for number, text in enumerate(lead, start=1)]
        count = len(lead)
    return replace(page, content="\n\n".join(blocks) + "\n") if count else page


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield the paragraphs of lines without headings, long ones in pieces."""
    waiting: list[str] = []
    fence = ""
    for line in [*lines, ""]:
        mark = read_fence(line)
        if not fence:
            if not line.strip():
                yield from _pieces(waiting)
                waiting = []
                continue
            fence = mark["fence"] if mark else ""
        elif mark and is_fence_end(mark, fence):
            fence = ""
        waiting.append(line)
    if any(line.strip() for line in waiting):  # an unclosed fence
        yield "\n".join(waiting).strip("\n")


def _pieces(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if len(text) <= MAX_CHARS or any(read_fence(line) for line in lines):
        if text.strip():
            yield text
        return
    piece = ""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        sentence = text[start:end]
        if piece and len(piece) + len(sentence.rstrip()) > MAX_CHARS:
            yield piece.strip()
            piece = ""
        piece += sentence
        if len(piece.strip()) > MAX_CHARS:
            *whole, piece = textwrap.wrap(piece, MAX_CHARS, break_on_hyphens=False)
            yield from whole
            piece += " "
    if piece.strip():
        yield piece.strip()


def place_questions(questions: list[Question], before: Library, after: Library) -> list[Question]:
    """Find the paragraphs that questions refer to when they name sections, or only pages, of the corpus before it was split.

    - A named section becomes its paragraph with the answer, or else its first paragraph; sections of the split corpus are kept.
    - If a question names one page, and one paragraph alone holds the answer, it refers to that paragraph.
    - If a question names several pages, it refers to one paragraph of each. The page with the answer is read last; of several such pages
      the one named last. The others keep their order. On each earlier page, the paragraph is the one with the next page's title; of several
      or none, the one that shares most words with the question; of equals, the first. Yes and no occur nowhere: the pages keep their order.

    A given number of hops is kept: several hops may lead through one page.
    """
    return [_place(question, before, after) for question in questions]


def _place(question: Question, before: Library, after: Library) -> Question:
    if question.section_ids:
        placed = tuple(_paragraph(question, section_id, before, after) for section_id in question.section_ids)
        return replace(question, section_ids=placed)
    pages = list(dict.fromkeys(question.page_ids))
    if not pages or not question.is_answerable:
        return question
    if len(pages) == 1:
        holding = _holding(question, after.sections(pages[0]))
        path = holding if len(holding) == 1 else []
    else:
        path = _path(question, {page_id: after.sections(page_id) for page_id in pages}, after)
    return replace(question, section_ids=tuple(section.id for section in path), hops=question.hops or len(path)) if path else question


def _path(question: Question, sections: dict[str, list[Section]], after: Library) -> list[Section]:
    """Return a paragraph of each gold page, the one with the answer last; empty if no page states the answer, or a page is missing."""
    holding = [] if question.is_closed else _holding(question, [section for found in sections.values() for section in found])
    if not all(sections.values()) or not (holding or question.is_closed):
        return []
    order = list(sections)
    if holding:
        last = max((section.page_id for section in holding), key=order.index)
        sections[last] = [section for section in holding if section.page_id == last]
        order = [*(page_id for page_id in order if page_id != last), last]
    pages = [after.page(page_id) for page_id in order[1:]]
    titles = [plain_title(page.title) if page else "" for page in pages]
    asked = content_words(question.question)

    def leads(section: Section, title: str) -> tuple[bool, int]:
        body = _body(section)
        return bool(title) and holds_answer(body, title), len(asked & content_words(body))

    return [max(sections[page_id], key=partial(leads, title=title)) for page_id, title in zip(order, [*titles, ""], strict=True)]


def plain_title(title: str) -> str:
    """Return a title without the brackets that distinguish it from others, as texts write it."""
    return _BRACKETS.sub("", title)


def _paragraph(question: Question, section_id: str, before: Library, after: Library) -> str:
    """Return the id of the paragraph with the answer; without one, the given id or else the section's first paragraph."""
    named, whole = after.section(section_id), before.section(section_id)
    inside = [] if named is None else [named]
    if whole:
        text = _squeezed(whole.text)
        inside += [section for section in after.sections(whole.page_id) if section != named and _squeezed(_body(section)) in text]
    holding = _holding(question, inside)
    return (holding or inside)[0].id if inside else section_id


def find_paragraph(paragraph: str, answers: Sequence[str], sections: list[Section]) -> str | None:
    """Return the id of the section with a paragraph: the shortest that holds all of it, else its first part with an answer."""
    wanted = _squeezed(paragraph)
    texts = {section.id: _squeezed_body(section) for section in sections}
    if whole := [name for name, text in texts.items() if wanted and wanted in text]:
        return min(whole, key=lambda name: len(texts[name]))
    parts = (name for name, text in texts.items() if text and text in wanted and any(_squeezed(answer) in text for answer in answers))
    return next(parts, None)


@lru_cache(maxsize=1024)
def _squeezed_body(section: Section) -> str:
    return _squeezed(_body(section))


def _holding(question: Question, sections: list[Section]) -> list[Section]:
    """Return the sections with an answer as whole words, in any case and spacing; without one, those that contain it at all."""
    answers = [answer for answer in map(_squeezed, question.answers) if answer]
    words = [re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE) for answer in answers]
    texts = [(section, _squeezed(_body(section))) for section in sections]
    whole = [section for section, text in texts if any(word.search(text) for word in words)]
    return whole or [section for section, text in texts if any(answer in text for answer in answers)]


def _body(section: Section) -> str:
    """Return the section's text without its heading line."""
    return section.text.partition("\n")[2] if section.text.startswith("#") else section.text


def _squeezed(text: str) -> str:
    return " ".join(text.split())
