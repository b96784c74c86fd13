"""A folder of documents as pages, in the order of their paths.

The page id is the path from the folder without its suffix, lower case, with `_` for white space. If files of several formats would share an
id, the first of Markdown, text, HTML, PDF, office, notebooks takes it; the others keep their suffix (`a.html`).
"""

import itertools
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from slmsearch.corpus.documents.markup import needs_no_parsing
from slmsearch.corpus.documents.memory import ParsedDocuments
from slmsearch.corpus.documents.reader import (
    MARKDOWN,
    MAX_CHARS,
    PARSED,
    SUFFIXES,
    TEXT,
    Document,
    ReadingProcesses,
    read_inside,
)
from slmsearch.corpus.documents.repeats import drop_repeated
from slmsearch.corpus.documents.skipped import Dropped, NotTakenError, Reason, Skipped, printable
from slmsearch.corpus.documents.text import decode_utf8
from slmsearch.corpus.documents.titles import demote_headings, listed_titles, name_page, tell_apart, without_site
from slmsearch.corpus.pages import Page
from slmsearch.errors import CorpusError
from slmsearch.processes.processor import count_cores

MAX_FILE_MB = 50.0
"""Size limit in millions of bytes. Larger files are not opened: they are dumps and archives, not documents."""
MAX_PROCESSES = 8
"""Largest number of processes that parse documents; each may take gigabytes for a large PDF."""
TIMEOUT_S = 120.0
"""Time limit per document, in seconds; a PDF of a thousand pages takes about a minute."""
SHOWN_CHARS = 200
"""Number of characters shown of a dropped part."""
_SPHINX_SOURCE = re.compile(r"(.*/)?_sources/(.+?)(?:\.rst|\.md|\.ipynb)?(?:\.txt)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """File or folder found in a listing."""

    path: Path
    place: str
    """Path from the folder, with `/`; bytes that are not UTF-8 are surrogates."""
    reason: Reason | None = None
    """Reason to leave it out, as far as it is known without opening the file."""
    detail: str = ""


def list_folder(folder: Path) -> list[Entry]:
    """List all entries of a folder by path; links to folders and hidden folders are listed, but not entered."""
    found: list[Entry] = []

    def refuse(error: OSError) -> None:
        here = Path(error.filename)
        if here == folder:
            raise CorpusError(f"{folder} cannot be read ({error.strerror or error}); check its permissions") from error
        found.append(Entry(here, f"{here.relative_to(folder).as_posix()}/", Reason.UNREADABLE, error.strerror or ""))

    for here, folders, files in os.walk(folder, onerror=refuse):
        entries = {name: _entry(Path(here, name), folder) for name in (*folders, *files)}
        found += [entry for entry in entries.values() if entry is not None]
        folders[:] = [name for name in folders if entries[name] is None]
    places = {entry.place for entry in found}
    marked = (
        replace(entry, reason=Reason.SOURCE) if entry.reason is None and _made_page(entry.place) in places else entry for entry in found
    )
    return sorted(marked, key=lambda entry: entry.place)


def _made_page(place: str) -> str | None:
    """Return the page that Sphinx made from a source file that it placed beside its pages."""
    found = _SPHINX_SOURCE.fullmatch(place)
    return f"{found[1] or ''}{found[2]}.html" if found else None


def _entry(path: Path, root: Path) -> Entry | None:
    """Return the entry of a path; None for a folder to enter."""
    place = path.relative_to(root).as_posix()
    if path.name.startswith("."):
        return Entry(path, place, Reason.HIDDEN)
    is_link = path.is_symlink()
    try:
        status = path.stat()
    except OSError as error:
        return Entry(path, place, Reason.BROKEN_LINK if is_link else Reason.UNREADABLE, error.strerror or "")
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, f"{place}/", Reason.LINK) if is_link else None
    if is_link and not _leads_inside(path, root):
        return Entry(path, place, Reason.OUTSIDE)
    if path.suffix.lower() not in SUFFIXES:
        return Entry(path, place, Reason.KIND, path.suffix)
    if not stat.S_ISREG(status.st_mode):
        return Entry(path, place, Reason.SPECIAL)
    if not status.st_size:
        return Entry(path, place, Reason.EMPTY)
    if status.st_size > MAX_FILE_MB * 1_000_000:
        return Entry(path, place, Reason.LARGE, f"{status.st_size / 1_000_000:.1f} MB")
    return Entry(path, place)


def _leads_inside(link: Path, root: Path) -> bool:
    """Return True if a link to a file ends inside the folder, at a file that is not hidden."""
    target, inside = link.resolve(), root.resolve()
    return target.is_relative_to(inside) and not any(part.startswith(".") for part in target.relative_to(inside).parts)


class Reading(NamedTuple):
    """Pages of a folder and the files left out."""

    pages: list[Page]
    skipped: list[Skipped]
    """Files and folders that were left out."""
    dropped: list[Dropped]
    """Parts that were left out of the pages' texts."""


def read_folder(folder: Path, memory: Path | None = None, parsers: str = "", progress: Callable[[int, int], None] | None = None) -> Reading:
    """Read the documents of a folder in the order of paths; hidden files and folders are left out.

    Args:
        folder: folder of documents.
        memory: cache file of parsed documents; known documents are not parsed again, and the file is updated.
        parsers: key of the parsers; results of others are ignored.
        progress: called with the number of files read and of all files.

    Raises:
        CorpusError: the folder cannot be read, or `memory` cannot be written.
    """
    entries = list_folder(folder)
    found: list[tuple[Entry, Document]] = []
    skipped: list[Skipped] = []
    names: set[str] = set()
    count = min(MAX_PROCESSES, count_cores())
    with ThreadPoolExecutor(count) as pool, ReadingProcesses(count, TIMEOUT_S) as processes, ParsedDocuments(memory, parsers) as known:
        readings = [pool.submit(_read, entry, folder, processes, known) for entry in entries]
        try:
            for number, (entry, reading) in enumerate(zip(entries, readings, strict=True)):
                if progress is not None:
                    progress(number, len(entries))
                try:
                    name, document, is_new = reading.result()
                except NotTakenError as error:
                    skipped.append(Skipped(printable(entry.place), str(error.reason), error.detail))
                    continue
                found.append((entry, document))
                if is_new and name not in names:  # two files may have one content
                    known.add(name, document)
                if name:
                    names.add(name)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # of a reading that is broken off
        known.keep_only(names)
    ids = make_ids([entry.place for entry in entries if entry.reason is None])
    pages, repeated = _make_pages(found, ids)
    dropped = [Dropped(printable(entry.place), kind, text) for entry, document in found for kind, text in document.dropped]
    return Reading(pages, skipped, dropped + repeated)


def _read(entry: Entry, folder: Path, processes: ReadingProcesses, known: ParsedDocuments) -> tuple[str, Document, bool]:
    """Return the name of a document's content in the cache, empty for none, the document, and whether the cache lacks it."""
    if entry.reason is not None:
        raise NotTakenError(entry.reason, entry.detail)
    if entry.path.suffix.lower() not in PARSED:
        return "", read_text(entry.path, folder, processes), False
    name = _content_name(entry.path, folder)
    if (document := known.get(name)) is not None:
        return name, document, False
    document = processes.read(entry.path, folder)
    return (name, document, True) if _content_name(entry.path, folder) == name else ("", document, False)  # edited meanwhile


def _make_pages(found: list[tuple[Entry, Document]], ids: Mapping[str, str]) -> tuple[list[Page], list[Dropped]]:
    """Build the pages of documents: repeated blocks are dropped, and titles become unique."""
    places = [printable(entry.place) for entry, _ in found]
    contents, repeated = drop_repeated([document.content for _, document in found], places)
    listed = listed_titles(dict(zip(places, contents, strict=True)))
    named = zip(found, places, contents, strict=True)
    names = [name_page(place, document.title, content, listed.get(place, "")) for (_, document), place, content in named]
    titles = without_site(names, [document.full_title for _, document in found])
    pages = []
    for (entry, document), place, title, told, content in zip(found, places, titles, tell_apart(titles, places), contents, strict=True):
        metadata = {"path": place, **document.metadata}
        pages.append(Page(ids[entry.place], told, demote_headings(title, content), metadata))
    return pages, [Dropped("", "repeated", text[:SHOWN_CHARS], count) for text, count in repeated.most_common()]


def _content_name(path: Path, root: Path) -> str:
    try:
        return sha256(read_inside(path, root)).hexdigest() + path.suffix.lower()
    except OSError as error:
        raise NotTakenError(Reason.UNREADABLE, error.strerror or str(error)) from error


def read_text(path: Path, root: Path, processes: ReadingProcesses) -> Document:
    """Read plain text here; read files that need a parser or a guessed encoding in one of the processes.

    Raises:
        NotTakenError: the file cannot be read.
    """
    try:
        text = decode_utf8(read_inside(path, root))
    except OSError as error:
        raise NotTakenError(Reason.UNREADABLE, error.strerror or str(error)) from error
    suffix = path.suffix.lower()
    is_simple = text is not None and len(text) <= MAX_CHARS and suffix in (*MARKDOWN, *TEXT) and any(c.isalnum() for c in text)
    if text is not None and is_simple and needs_no_parsing(text, suffix in MARKDOWN):
        return Document("", text.strip("\n"))
    return processes.read(path, root)


def make_ids(places: list[str]) -> dict[str, str]:
    """Return a unique page id for each file, independent of the order of the list."""
    rivals: dict[str, list[str]] = defaultdict(list)
    for place in places:
        rivals[_plain_id(os.path.splitext(place)[0])].append(place)
    ids = {}
    taken = set(rivals)
    for plain in sorted(rivals):
        first, *others = sorted(rivals[plain], key=lambda place: (SUFFIXES.index(os.path.splitext(place)[1].lower()), place))
        ids[first] = plain
        for place in others:
            whole = _plain_id(place)
            numbered = (f"{whole}_{count}" for count in itertools.count(2))
            ids[place] = next(name for name in itertools.chain([whole], numbered) if name not in taken)
            taken.add(ids[place])
    return ids


def _plain_id(place: str) -> str:
    whole = place.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return _CONTROL.sub("_", "_".join(whole.lower().split())) or "_"
