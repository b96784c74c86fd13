"""Materialised corpora: immutable directories named by the digest of their content.

- `<digest>/pages.jsonl` and `<digest>/questions.jsonl`: one row each, questions with their split;
- `<digest>/manifest.json`: written last; a corpus without it does not exist;
- `sources/parsed/<key>.lines`: cache of a folder's parsed files;
- `sources/<key>.json`: digest of the corpus from a configured source, so that it is not generated or read again, and the files that were
  left out.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from pathlib import Path

from slmsearch.artifacts.directories import publish, remove, staging_directory
from slmsearch.artifacts.files import read_json, replace_text
from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents.skipped import PASSING, Skipped
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import FIELDS, Question
from slmsearch.corpus.records import Row, page_row, write_rows
from slmsearch.corpus.sources import Source, find_origin, load_asked, load_source, source_parts, source_print
from slmsearch.corpus.splits import SPLIT_SEED, SPLITS, assign_splits, take_splits
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key, file_key

FORMAT_VERSION = 1
PAGES = "pages.jsonl"
QUESTIONS = "questions.jsonl"
MANIFEST = "manifest.json"
SOURCES = "sources"
TRIED_AGAIN_S = 3600.0
"""Time after which files are read again that were left out for a reason of `PASSING`, in seconds."""
REMEDY = "build it again with `slmsearch setup`"


@dataclass(frozen=True, slots=True)
class CorpusManifest:
    """Content and source of a materialised corpus."""

    digest: str
    pages_digest: str
    """Digest of the pages alone: an index depends on them, not on questions."""
    questions_digest: str
    pages: int
    questions: dict[str, int]
    """Number of questions by split."""
    dropped_questions: int
    """Number of questions left out because their pages are in two splits."""
    split_seed: int
    source: dict[str, object]
    """Configuration it was first built from."""
    origin: dict[str, str] | None = None
    """`licence` and `attribution` of its texts, if known."""
    splits_given: bool = False
    """True if the rows of the source name their splits."""
    format_version: int = FORMAT_VERSION


def build_corpus(
    config: CorpusConfig,
    corpora_dir: Path,
    skipped: list[Skipped] | None = None,
    progress: Callable[[int, int], None] | None = None,
    announce: Callable[[str], None] | None = None,
) -> str:
    """Materialise the configured corpus and return its digest; an existing one is not built again.

    Each file of a folder that was left out is added to `skipped`, also if the corpus already exists. `progress` is called for the files of
    a folder that are read, `announce` with the digest before a corpus is stored.

    Raises:
        CorpusError: a source is missing or broken, or the corpus cannot be written; no partial corpus remains.
    """
    skipped = [] if skipped is None else skipped

    def load() -> Source:
        return load_source(config, skipped, corpora_dir / SOURCES, progress)

    return store_corpus(config, corpora_dir, load, lambda: source_parts(config), skipped, announce)


def store_corpus(
    config: CorpusConfig,
    corpora_dir: Path,
    load: Callable[[], Source],
    parts_of: Callable[[], Mapping[str, object] | None],
    skipped: list[Skipped] | None = None,
    announce: Callable[[str], None] | None = None,
) -> str:
    """Materialise pages and questions from any source and return their digest.

    Args:
        config: description of the source for the manifest.
        corpora_dir: parent of materialised corpora.
        load: loads them; not called if the corpus of the same parts is stored and intact.
        parts_of: returns everything that decides the result of `load`; None if unknown. A source that changes meanwhile is not remembered.
        skipped: list to which `load` adds files that it leaves out; filled from the stored list if `load` is not called.
        announce: called with the digest before the corpus is stored; not if `load` is not called.

    Raises:
        CorpusError: the source is missing or broken, or the corpus cannot be written; no partial corpus remains.
    """
    skipped = [] if skipped is None else skipped
    parts = parts_of()
    key = content_key(**parts) if parts else None
    if key and (known := _remembered(corpora_dir, key)):
        skipped += known[1]
        return known[0]
    pages, questions, splits = load()
    split_of = {question.id: splits[question.id] for question in questions} if splits else assign_splits(questions)
    try:
        digest = _write(config, corpora_dir, pages, questions, split_of, bool(splits), announce)
        if key and parts_of() == parts:
            (corpora_dir / SOURCES).mkdir(exist_ok=True)
            record = {"digest": digest, "parts": parts, "skipped": [asdict(item) for item in skipped]}
            replace_text(corpora_dir / SOURCES / f"{key}.json", json.dumps(record) + "\n")
    except OSError as error:
        raise CorpusError(f"the corpus cannot be written to {corpora_dir} ({error}); free disk space or set paths.data_dir") from error
    return digest


def add_questions(config: CorpusConfig, corpora_dir: Path, digest: str, skipped: list[Skipped] | None = None) -> str:
    """Materialise the pages of a corpus with the configured questions and return their digest; the source of the pages is not read.

    Each file that the corpus left out is added to `skipped`.

    Raises:
        CorpusError: the corpus or the questions are missing or broken, or the new corpus cannot be written.
    """
    newest = sorted((corpora_dir / SOURCES).glob("*.json"), key=lambda path: -path.stat().st_mtime)
    made = next((record for record in map(read_json, newest) if record.get("digest") == digest), {})
    parts = made and {**made["parts"], "sources": [made["parts"]["sources"][0], source_print(config.questions)]}
    skipped = [] if skipped is None else skipped

    def load() -> Source:
        skipped.extend(Skipped(**item) for item in made.get("skipped", ()))
        pages = [*read_pages(corpora_dir / digest)]
        return Source(pages, *load_asked(config, pages))

    return store_corpus(config, corpora_dir, load, lambda: parts, skipped)


def store_questions(config: CorpusConfig, corpora_dir: Path, load: Callable[[], list[Question]], parts: Mapping[str, object] | None) -> str:
    """Materialise questions without pages and return their digest; see `store_corpus`."""

    def source() -> Source:
        questions = load()
        given = [question.split for question in questions]
        return Source([], questions, take_splits(questions, given, config.questions or "questions") if any(given) else {})

    return store_corpus(config, corpora_dir, source, lambda: parts)


def load_questions(corpora_dir: Path, digest: str) -> dict[str, list[Question]]:
    """Load the questions of a materialised corpus by split, each in corpus order; every split is present, even if empty.

    Raises:
        CorpusError: the corpus is missing, incomplete or changed since it was built.
    """
    directory = corpora_dir / digest
    manifest = read_manifest(directory)
    if manifest.digest != digest or not is_complete(directory):
        raise CorpusError(f"corpus {directory} is damaged: its files do not match its manifest; delete it and {REMEDY}")
    questions: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for question, split in read_questions(directory):
        questions[split].append(question)
    return questions


def read_manifest(directory: Path) -> CorpusManifest:
    """Load the manifest of a materialised corpus.

    Raises:
        CorpusError: the manifest is missing or cannot be read.
    """
    try:
        manifest = CorpusManifest(**json.loads((directory / MANIFEST).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise CorpusError(f"{directory} holds no complete corpus; {REMEDY}") from error
    except (OSError, ValueError, TypeError) as error:
        raise CorpusError(f"the manifest of corpus {directory} cannot be read ({error}); delete it and {REMEDY}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise CorpusError(f"corpus {directory} has format {manifest.format_version}, not {FORMAT_VERSION}; {REMEDY}")
    return manifest


def read_pages(directory: Path) -> Iterator[Page]:
    """Load the pages of a materialised corpus in corpus order.

    Raises:
        CorpusError: a row is damaged.
    """
    rows = _read_rows(directory / PAGES, {"id", "title", "content"}, {"metadata"})
    return (Page(row["id"], row["title"], row["content"], row.get("metadata", {})) for row in rows)


def read_questions(directory: Path) -> Iterator[tuple[Question, str]]:
    """Load the questions of a materialised corpus, each with its split.

    Raises:
        CorpusError: a row is damaged.
    """
    for row in _read_rows(directory / QUESTIONS, {*FIELDS, "split"}, {"source"}):
        fields: Row = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name != "split"}
        yield Question(**fields), row["split"]


def _write(
    config: CorpusConfig,
    corpora_dir: Path,
    pages: list[Page],
    questions: list[Question],
    split_of: dict[str, str],
    given: bool,
    announce: Callable[[str], None] | None,
) -> str:
    origin = find_origin(config)
    with staging_directory(corpora_dir, "corpus") as staging:
        kept = [question for question in questions if question.id in split_of]
        with (staging / PAGES).open("wb") as page_file, (staging / QUESTIONS).open("wb") as question_file:
            write_rows(page_file, map(page_row, pages))
            write_rows(question_file, ({**question.row(), "split": split_of[question.id]} for question in kept))
        pages_digest, questions_digest = file_key(staging / PAGES), file_key(staging / QUESTIONS)
        counts = Counter(split_of.values())
        manifest = CorpusManifest(
            digest=_digest(pages_digest, questions_digest, SPLIT_SEED),
            pages_digest=pages_digest,
            questions_digest=questions_digest,
            pages=len(pages),
            questions={split: counts[split] for split in SPLITS},
            dropped_questions=len(questions) - len(kept),
            split_seed=SPLIT_SEED,
            source=config.model_dump(mode="json"),
            origin=asdict(origin) if origin else None,
            splits_given=given,
        )
        (staging / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
        if announce is not None:
            announce(manifest.digest)
        publish(staging, corpora_dir / manifest.digest, is_complete)
    return manifest.digest


def _read_rows(path: Path, fields: set[str], optional: Set[str] = frozenset()) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                row = json.loads(line)
                if not isinstance(row, dict) or set(row) - optional != fields:
                    raise CorpusError(f"{path}:{number} is damaged; delete {path.parent} and {REMEDY}")
                yield row
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be read ({error}); delete {path.parent} and {REMEDY}") from error


def _digest(pages_digest: str, questions_digest: str, split_seed: int) -> str:
    return content_key(format=FORMAT_VERSION, pages=pages_digest, questions=questions_digest, split_seed=split_seed)


def is_complete(directory: Path) -> bool:
    """Return True if a directory holds a complete corpus whose rows are unchanged."""
    try:
        manifest = read_manifest(directory)
        made = _digest(file_key(directory / PAGES), file_key(directory / QUESTIONS), manifest.split_seed)
    except (CorpusError, OSError):
        return False
    return directory.name == manifest.digest == made


def remove_corpus(corpora_dir: Path, digest: str) -> None:
    """Remove a corpus, if it is there, and what is remembered of the sources that it was read from.

    Raises:
        OSError: it cannot be removed.
    """
    if (corpora_dir / digest).exists():
        remove(corpora_dir / digest, ignore_errors=False)
    for file in (corpora_dir / SOURCES).glob("*.json"):
        if read_json(file).get("digest") == digest:
            file.unlink(missing_ok=True)


def _remembered(corpora_dir: Path, key: str) -> tuple[str, list[Skipped]] | None:
    """Return the stored digest of a source and the files it left out, if that corpus still exists and is intact."""
    file = corpora_dir / SOURCES / f"{key}.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        digest, skipped = record["digest"], [Skipped(**item) for item in record["skipped"]]
        if any(item.reason in PASSING for item in skipped) and time.time() - file.stat().st_mtime > TRIED_AGAIN_S:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (digest, skipped) if isinstance(digest, str) and is_complete(corpora_dir / digest) else None
