"""Making of the next version of a folder of documents, beside the one that is served. It runs in a child process."""

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from slmsearch.config import CorpusConfig, PathsConfig, RetrievalConfig
from slmsearch.corpus.documents.skipped import ORDINARY, Reason, Skipped
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.records import parse_question
from slmsearch.corpus.sources import Source
from slmsearch.corpus.store import build_corpus, read_pages, read_questions, store_corpus
from slmsearch.environments.searcher.indexed_corpus import name_index
from slmsearch.made_questions.make import Filters, make_questions
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.versions import is_complete
from slmsearch.serving.documents.gate import Edit, compare_made, compare_pages, find_losses, still_asked

REPLAYED = 32
"""Number of questions that are asked of both versions."""
MADE = 32
"""Number of questions that are made of changed pages, of either version."""
KNOWN = 400
"""Number of questions with gaps that stand in for those that a folder does not have yet."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the documents: a corpus, and an index of it."""

    digest: str
    key: str


@dataclass(frozen=True, slots=True)
class Built:
    """A version, and what of it was not there before."""

    version: Version
    built: dict[str, str]
    """Keys of what was built, by kind: `corpora`, `indexes`."""
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The next version, and what there is to say before it is served."""

    version: Version
    built: dict[str, str]
    """See `Built`."""
    edit: Edit
    skipped: tuple[Skipped, ...]
    """Files that were left out and should perhaps not have been."""
    losses: tuple[str, ...]
    """See `find_losses`."""
    replayed: tuple[Question, ...]
    """Questions whose answers both versions state."""


def build_version(paths: PathsConfig, corpus: CorpusConfig, retrieval: RetrievalConfig, notes: Path | None = None) -> Built:
    """Read the configured folder and index it; of both only what changed is computed.

    Args:
        paths: directories of corpora and index versions.
        corpus: settings whose `pages` is the folder.
        retrieval: settings of the index.
        notes: file that gets a line, `corpora KEY` or `indexes KEY`, when something new is about to stand there.

    Raises:
        CorpusError: the folder cannot be read or holds no pages.
        IndexUnusableError, EmbedderError: the index cannot be built.
    """
    skipped: list[Skipped] = []
    before = {path.name for path in paths.corpora.glob("*/")}
    built: dict[str, str] = {}

    def note(kind: str, key: str) -> None:
        built[kind] = key
        if notes is not None:
            notes.parent.mkdir(parents=True, exist_ok=True)
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{kind} {key}\n")

    digest = build_corpus(corpus, paths.corpora, skipped, announce=lambda made: None if made in before else note("corpora", made))
    key = name_index(digest, paths, retrieval)
    if not is_complete(paths.index / key):
        note("indexes", key)
        build_index(paths.corpora / digest, paths.index, retrieval, current=False)
    return Built(Version(digest, key), built, tuple(skipped))


def build_without(paths: PathsConfig, corpus: CorpusConfig, retrieval: RetrievalConfig, digest: str, gone: Container[str]) -> Version:
    """Make a version of a corpus without some of its pages, whose ids are given, and without its questions."""
    pages = [page for page in read_pages(paths.corpora / digest) if page.id not in gone]
    made = store_corpus(corpus, paths.corpora, lambda: Source(pages, []), lambda: None)
    return Version(made, build_index(paths.corpora / made, paths.index, retrieval, current=False))


def refresh(
    paths: PathsConfig, corpus: CorpusConfig, retrieval: RetrievalConfig, served: Version, known: str, notes: Path | None = None
) -> Refreshed:
    """Make the version of the folder as it is now, compare it with the served one, and choose the questions that decide.

    Args:
        paths, corpus, retrieval, notes: see `build_version`.
        served: version that is served.
        known: digest of the corpus whose questions are known.

    Raises:
        CorpusError, IndexUnusableError, EmbedderError: see `build_version`.
    """
    made = build_version(paths, corpus, retrieval, notes)
    before, after = (read_by_id(paths.corpora / digest) for digest in (served.digest, made.version.digest))
    edit = compare_pages(before, after)
    questions = [question for question, _ in read_questions(paths.corpora / known)]
    if len(still_asked(questions, before, before, REPLAYED)) < REPLAYED:  # none are known yet, or their pages have other names by now
        questions += _ask(paths, retrieval, served, before, KNOWN)
    left_out = {item.path: item.reason for item in made.skipped if item.reason != Reason.BROKEN_LINK}
    losses = find_losses(before, after, edit, left_out, questions)
    if not losses and edit.changed:
        old, new = (len(_ask(paths, retrieval, *version, MADE, edit.changed)) for version in ((served, before), (made.version, after)))
        losses = compare_made(old, new)
    replayed = still_asked(questions, before, after, REPLAYED)
    faults = tuple(item for item in made.skipped if item.reason not in ORDINARY)
    return Refreshed(made.version, made.built, edit, faults, tuple(losses), tuple(replayed))


def _ask(
    paths: PathsConfig, retrieval: RetrievalConfig, made: Version, pages: dict[str, Page], most: int, about: Container[str] | None = None
) -> list[Question]:
    """Make questions with gaps about some pages of a version; only those are made whose page the index finds."""
    library = Library(pages.values())
    index = open_index(paths.index, made.key, retrieval)
    try:
        asked = make_questions(Filters(library, index, retrieval.top_k, most), 0, about=about)
    finally:
        index.close()
    return [parse_question(dict(row), "a question made here", library.sections) for row in asked.rows]


def read_by_id(corpus: Path) -> dict[str, Page]:
    """Load the pages of a materialised corpus by id.

    Raises:
        CorpusError: the corpus is missing or damaged.
    """
    return {page.id: page for page in read_pages(corpus)}
