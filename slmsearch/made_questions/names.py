"""Names by which pages refer to each other: a title or a part of it, a label with a number ("PEP 8"), a file name, a link, a module in
code."""

import posixpath
import re
from collections.abc import Iterable, Iterator

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import WORD
from slmsearch.corpus.scripts import CAPITALS
from slmsearch.made_questions.cloze import Excerpt
from slmsearch.made_questions.sentences import CODE, LINK, count_words, plain_paragraphs

Key = tuple[str, ...]
_LABEL = re.compile(r"([^\W\d_]{2,})[ _-]?0*([1-9]\d*)")
_LABELLED = re.compile(rf"(?<![\w-]){_LABEL.pattern}(?!\w|[.-]\d)")
_PARTS = re.compile(r"\s+[\u2013\u2014|-]\s+|:\s+")
_NUMBERING = re.compile(r"^(?:[^\W\d_]+\s)?\s*(?:\d+|[A-Z])(?:\.\d+)*[.:]?(?:\s[\u7ae0\u8282\u7bc0])?\s+")
_FILE = re.compile(r"(?<![^\s`'\"(])(?:\.{0,2}/)*((?:[\w-]+/)*[\w-]+)\.(?:md|markdown|rst|txt|html?|pdf|docx|ipynb)(?!\w)")
_GOES_ON_BEFORE, _GOES_ON_AFTER = re.compile(r"[\w./-]$"), re.compile(r"[\w/-]|\.\w")
_LONGER_BEFORE = re.compile(rf"[{CAPITALS}][\w'-]* $")
_LONGER_AFTER = re.compile(rf"-\w|[.:]\d|(?: (?:d[aeo]|del|of|the))? [{CAPITALS}]")


class Names:
    """Names of the pages of a library; a name that two pages share is not used."""

    def __init__(self, library: Library) -> None:
        """Collect the names."""
        self._library = library
        self._titles = _unique((tuple(WORD.findall(name)), page.id) for page in library.pages() for name in _titles(page, library))
        self._labels = _unique((key, page.id) for page in library.pages() for key in _labels(page))
        self._modules = _unique(((_stem(page.id),), page.id) for page in library.pages() if _is_module(page))
        self._files = _unique(((_stem(page.id),), page.id) for page in library.pages())
        self._lengths: dict[str, set[int]] = {}
        for key in self._titles:
            self._lengths.setdefault(key[0], set()).add(len(key))

    def find(self, sentence: str, links: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the names of pages in a sentence, in its spelling, with their ids.

        Args:
            sentence: plain text.
            links: result of `links_of` for its section.
        """
        for text, page_id in links.items():
            before, _, after = sentence.partition(text)
            if sentence.count(text) == 1 and not (_GOES_ON_BEFORE.search(before) or _GOES_ON_AFTER.match(after)):
                yield text, page_id
        for match in _FILE.finditer(sentence):
            if page_id := self._files.get((_stem(match[1].lower()),), ""):
                yield match[0], page_id
        for match in _LABELLED.finditer(sentence):
            page_id = self._labels.get((match[1].casefold(), match[2]), "")
            if page_id and sentence.count(match[0]) == 1:
                yield match[0], page_id
        words = list(WORD.finditer(sentence))
        for number, first in enumerate(words):
            for length in self._lengths.get(first[0], ()):
                run = words[number : number + length]
                if len(run) == length and (page_id := self._titles.get(tuple(word[0] for word in run), "")):
                    name = sentence[first.start() : run[-1].end()]
                    if names_page(sentence, name):
                        yield name, page_id

    def links_of(self, excerpt: Excerpt) -> dict[str, str]:
        """Return the link texts of an excerpt and the names of pages in its code, each with the id of the page."""
        codes = {match["code"].strip() for match in CODE.finditer(excerpt.text)}
        found = {code: page_id for code in sorted(codes) if (page_id := self._modules.get((code.lower(),), ""))}
        for match in LINK.finditer(excerpt.text):
            is_image = excerpt.text[match.start() - 1 : match.start()] == "!"
            target = None if is_image else self._resolve(excerpt.page_id, match[2] or "")
            text = " ".join(plain_paragraphs(match[1]))
            if target and target != excerpt.page_id and any(char.isalpha() for char in text):
                found[text] = target
        return found

    def _resolve(self, page_id: str, target: str) -> str | None:
        path = target.partition("#")[0].partition("?")[0]
        if not path or "://" in path or path.startswith("mailto:"):
            return None
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page_id), path)).lower().lstrip("/")
        tried = (place, posixpath.splitext(place)[0], f"{place}/index", f"{place}/readme", f"{place}/_index")
        return next((name for name in tried if self._library.page(name) is not None), None)


def names_page(sentence: str, title: str) -> bool:
    """Return True if a sentence names a page once, and not as part of a longer name: "Ho Chi Minh" is not in "Ho Chi Minh City"."""
    before, _, after = sentence.partition(title)
    return sentence.count(title) == 1 and not (_LONGER_BEFORE.search(before) or _LONGER_AFTER.match(after))


def _titles(page: Page, library: Library) -> set[str]:
    """Return a page's title, its parts and the text after its number, of at least two words: a single word is ambiguous."""
    names = {page.title, *_PARTS.split(page.title)}
    names |= {_NUMBERING.sub("", name) for name in names}
    return {name for name in names if count_words(name) > 1 and WORD.search(name) and name.casefold() not in library.shared_names}


def _labels(page: Page) -> set[Key]:
    found = (_LABEL.fullmatch(name) for name in (_stem(page.id), *_PARTS.split(page.title)))
    return {(match[1].casefold(), match[2]) for match in found if match}


def _is_module(page: Page) -> bool:
    """Return True if a page is about the module in its file name: "shutil \u2014 High-level file operations" in `shutil.html`."""
    return _stem(page.id) in (part.lower() for part in _PARTS.split(page.title))


def _stem(page_id: str) -> str:
    return page_id.rpartition("/")[2]


def _unique(pairs: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    """Return the pages of names, without names of several pages."""
    pages: dict[Key, set[str]] = {}
    for key, page_id in pairs:
        pages.setdefault(key, set()).add(page_id)
    return {key: next(iter(ids)) for key, ids in pages.items() if len(ids) == 1}
