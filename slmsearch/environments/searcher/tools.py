"""The three tools: search pages, view a page's sections, read a section.

A call that cannot be served gets a short message and is counted (`ToolResult.served`); a broken index or embedder raises.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Protocol, Self

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Section
from slmsearch.corpus.questions import content_words
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.quoting import body_of, find_lines
from slmsearch.episodes.episode import Quotation, ToolCall, ToolResult
from slmsearch.errors import SlmSearchError
from slmsearch.retrieval.hits import Hit, Index

SEARCH, VIEW, READ = "search_pages", "view_sections", "read_section"
TOOL_NAMES = (SEARCH, VIEW, READ)
GO_ON = re.compile(r"\n\(page \d+ of \d+; go on with [^\n]*\)\Z")
"""End of a result that is shown in parts."""
ABSENT = "no such section"
NOT_SHOWN = "no result showed the text of this section: read it before you answer with it"
_WORD = re.compile(r"\w+")
_ASKING = frozenset(["who", "whose", "whom", "what", "which", "when", "where", "why", "how"])
MAX_QUERY_CHARS = 1000
"""Longest query in characters; longer ones are cut, because the embedder reads no more."""
NOTHING_PRINTED = "(the program printed nothing)"


class ProgramRunner(Protocol):
    """A runner of programs that the policy writes instead of a call; `sandbox.client.SandboxClient` is one.

    Only the sandbox executes a model's programs.
    """

    def run(self, programs: Sequence[str]) -> list[ToolResult | SlmSearchError]:
        """Run programs together, and return one result each, in order.

        A program's own error is a result with `served` False. If the sandbox, or a tool behind it, breaks, the result is the error.
        """
        ...


class Toolbox:
    """The tools over one corpus and one index version."""

    def __init__(
        self,
        library: Library,
        index: Index,
        top_k: int,
        max_section_chars: int,
        programs: ProgramRunner | None = None,
        shows: str = "titles",
        missing_names: bool = False,
    ) -> None:
        """Bind the tools to a corpus.

        Args:
            library: pages and sections.
            index: an open index version of the same corpus.
            top_k: pages a search returns.
            max_section_chars: size of the parts in which longer sections are read and longer lists of sections are shown.
            programs: runs programs; None where the policy may write none.
            shows: what a search shows of each page: `titles`, `sections` or `text`, see `SearcherConfig.shows`.
            missing_names: a search also shows which names of the query each page lacks.
        """
        self.library, self.index, self.top_k, self.max_section_chars = library, index, top_k, max_section_chars
        self.programs, self.shows, self.missing_names, self.max_texts = programs, shows, missing_names, top_k

    def with_texts(self, most: int) -> Self:
        """Return these tools with a limit of the pages that a search shows with their text."""
        other = copy(self)
        other.max_texts = most
        return other

    def serve(self, calls: Sequence[ToolCall], views: Sequence[View | None] = ()) -> list[ToolResult]:
        """Serve a batch of calls, one result each, in order; all searches go to the index together.

        Args:
            calls: calls from any number of episodes.
            views: view of the corpus for each call; empty: the corpus itself.

        Raises:
            IndexUnusableError, EmbedderError: the index or its embedder broke.
        """
        seen = list(zip(calls, views or [None] * len(calls), strict=True))
        found = iter(self._search([(call.argument, view) for call, view in seen if call.name == SEARCH and call.argument]))
        return [self._serve(call, view, found) for call, view in seen]

    def show(self, queries: Sequence[str], views: Sequence[View | None] = ()) -> list[str]:
        """Return, for each query, what a reader is given: the best section of each page found, under the page's title, as each view shows
        them; what a search shows if that is text."""
        seen = list(zip(queries, views or [None] * len(queries), strict=True))
        found = zip(seen, self._search(seen), strict=True)
        if self.shows == "text":
            return [self._show_hits(query, hits, view).text for (query, view), hits in found]
        return ["\n\n".join(f"{hit.title}\n{self._read(hit.section_id, view).text}" for hit in hits) for (_, view), hits in found]

    def quote(self, quotation: Quotation, shown: Collection[str], view: View | None = None) -> ToolResult:
        """Return the text that an answer quotes, as it stands; `served` is False where there is none.

        Args:
            quotation: section and lines.
            shown: ids of the sections whose text was shown; no other may be quoted.
            view: view of the corpus.
        """
        named = (self._section(name, view) for name, _ in _read_id(quotation.section_id))
        section = next((found for found in named if found and found.id in shown), None)
        if section is None:
            return ToolResult(NOT_SHOWN, served=False)
        spans = find_lines(section)
        first, last = quotation.lines or (1, len(spans))
        if not 1 <= first <= last <= len(spans):
            return ToolResult(f"this section has {len(spans)} lines below its heading", served=False)
        return ToolResult(body_of(section)[spans[first - 1][0] : spans[last - 1][1]], True, (section.page_id,), (section.id,))

    def sections(self, page_id: str, view: View | None = None) -> list[Section]:
        """Return a page's sections as a view shows them; empty if there is no such page."""
        sections = self.library.sections(page_id)
        return sections if view is None else view.show(sections)

    def name_of(self, section: Section) -> str:
        """Return the id of a section that results show and calls may use: where a search shows text, the first of a page has the page's.

        It is the same in every view. A page's id that could mean something else is not used.
        """
        page_id, first = section.page_id, self._first(section.page_id)
        if self.shows != "text" or first is None or first.id != section.id:
            return section.id
        return section.id if self.library.section(page_id) or self.library.page(f"{page_id}#2") else page_id

    def remind(self, result: str, question: str) -> str:
        """Return the text of a result as a policy is shown it: where a search shows text, with the question below it.

        The tokens of the question then lie beside those of the answer (docs/log.md has what it brought).
        """
        return f"{result}\n\n{question}" if self.shows == "text" else result

    def _first(self, page_id: str) -> Section | None:
        return next(iter(self.library.sections(page_id)), None)

    def _search(self, asked: Sequence[tuple[str, View | None]]) -> list[list[Hit]]:
        if not asked:
            return []
        queries = [query[:MAX_QUERY_CHARS] for query, _ in asked]
        hidden = [view.hidden if view else () for _, view in asked]
        return self.index.search(queries, self.top_k, hidden=hidden) if any(hidden) else self.index.search(queries, self.top_k)

    def _serve(self, call: ToolCall, view: View | None, found: Iterator[list[Hit]]) -> ToolResult:
        if call.name == SEARCH:
            return self._show_hits(call.argument, next(found), view) if call.argument else ToolResult("empty query", served=False)
        if call.name == VIEW:
            return self._view(call.argument, view)
        if call.name == READ:
            return self._read(call.argument, view)
        return ToolResult(f"no such tool; use {SEARCH}, {VIEW} or {READ}", served=False)

    def _show_hits(self, query: str, hits: list[Hit], view: View | None) -> ToolResult:
        if not hits:
            return ToolResult("no pages found", served=True)
        names = find_names(query) if self.missing_names else []
        room = self.max_section_chars
        shown, within = list[str](), list[str]()
        blocks, lines = [], []
        for hit in hits:
            section = self._section(hit.section_id, view) if names or self.shows == "text" else None
            words = set(_WORD.findall(f"{hit.title} {section.text if section else ''}"))
            missing = [name for name in names if name not in words]
            note = f" (without {', '.join(missing)})" if missing else ""
            body = self._first_part(section) if section and self.shows == "text" else ""
            if section and body and (not shown or (len(body) <= room and len(shown) < self.max_texts)):
                room -= len(body)
                shown.append(hit.section_id)
                within += self._within(section, body, view)
                blocks.append(f"{self.name_of(section)}: {hit.title}{note}\n{body}")
            else:
                name = self.name_of(section) if section and self.shows == "text" else hit.page_id
                lines.append(f"{name}: {hit.title}" + (f" ({hit.section_id})" if self.shows == "sections" else "") + note)
        text = "\n\n".join([*blocks, *(["\n".join(lines)] if lines else [])])
        return ToolResult(text, True, tuple(hit.page_id for hit in hits), (*shown, *within), tuple(hit.score for hit in hits))

    def _first_part(self, section: Section) -> str:
        """Return the first part of a section's text, without its heading, which the section's id names."""
        whole, size = body_of(section), self.max_section_chars
        return whole if len(whole) <= size else f"{whole[:size]}\n{self._go_on(section, 1)}"

    def _go_on(self, section: Section, number: int) -> str:
        """Write the line below a part of a section that names the next one."""
        count = -(-len(section.text) // self.max_section_chars)
        return f"(page {number} of {count}; go on with {self.name_of(section)}#{number + 1})"

    def _view(self, argument: str, view: View | None) -> ToolResult:
        names = ((name, number, self.sections(name, view)) for name, number in _read_id(argument))
        page_id, number, sections = next((found for found in names if found[2]), ("", 1, []))
        if not sections:
            return ToolResult("no such page", served=False)
        listings = self._list(sections)
        if not 1 <= number <= len(listings):
            return ToolResult(f"this list has {len(listings)} pages", served=False)
        listed = listings[number - 1]
        text = "\n".join(self._line(section) for section in listed)
        if number < len(listings):
            text += f"\n(page {number} of {len(listings)}; go on with {page_id}#{number + 1})"
        return ToolResult(text, True, (page_id,), tuple(section.id for section in listed))

    def _list(self, sections: Sequence[Section]) -> list[list[Section]]:
        """Cut a page's sections into lists of lines that are at most as long as a part of a long section."""
        listings: list[list[Section]] = [[]]
        size = 0
        for section in sections:
            size += len(self._line(section)) + 1
            if size > self.max_section_chars and listings[-1]:
                listings.append([])
                size = len(self._line(section)) + 1
            listings[-1].append(section)
        return listings

    def _line(self, section: Section) -> str:
        return f"{self.name_of(section)}: {section.heading}"

    def _read(self, argument: str, view: View | None) -> ToolResult:
        names = ((self._section(name, view), number) for name, number in _read_id(argument))
        section, number = next((found for found in names if found[0] is not None), (None, 1))
        if section is None:
            return ToolResult(ABSENT, served=False)
        size = self.max_section_chars
        count = max(1, -(-len(section.text) // size))
        if not 1 <= number <= count:
            return ToolResult(f"this section has {count} pages", served=False)
        text = section.text[(number - 1) * size : number * size]
        within = self._within(section, text, view)
        if number < count:
            text += f"\n{self._go_on(section, number)}"
        return ToolResult(text, True, (section.page_id,), (section.id, *within))

    def _within(self, section: Section, part: str, view: View | None) -> list[str]:
        """Return the ids of the sections below one whose whole text a part of it shows."""
        others = (other for other in self.sections(section.page_id, view) if other.level > section.level)
        return [other.id for other in others if other.text.strip() and other.text.strip() in part]

    def _section(self, name: str, view: View | None) -> Section | None:
        section = self.library.section(name)
        if section is None and self.shows == "text":
            section = self._first(name)
        if section is None or view is None:
            return section
        return next((seen for seen in self.sections(section.page_id, view) if seen.id == section.id), None)


def _read_id(argument: str) -> Iterator[tuple[str, int]]:
    """Read an argument as an id and the number of a part, likeliest first; models copy whole lines, `4821: Title`, for an id."""
    for name in dict.fromkeys((argument, argument.partition(": ")[0].strip())):
        yield name, 1
        base, _, suffix = name.rpartition("#")
        if suffix.isdecimal() and len(suffix) < 6:
            yield base, int(suffix)


def find_names(query: str) -> list[str]:
    """Return the words of a query that begin with a capital, each once, without small ones such as question words."""
    return [word for word in dict.fromkeys(_WORD.findall(query)) if word[0].isupper() and content_words(word) - _ASKING]


def render_outcome(stdout: str, error: str) -> str:
    """Format a program's output, and its error in a line of its own, for the policy."""
    printed = stdout.rstrip()
    if error:
        return f"{printed}\nerror: {error}" if printed else f"error: {error}"
    return printed or NOTHING_PRINTED
