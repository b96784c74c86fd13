"""A key for what a configured source would give, without loading it."""

import os
from importlib.metadata import version
from pathlib import Path

from slmsearch.config import CorpusConfig
from slmsearch.corpus.hub import HUB_PREFIX, parse_hub_name
from slmsearch.corpus.splits import SPLIT_SEED
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key, file_key

PARSERS = (
    "beautifulsoup4",
    "charset-normalizer",
    "lxml",
    "mammoth",
    "markdownify",
    "markitdown",
    "openpyxl",
    "pandas",
    "pypdf",
    "python-pptx",
)
"""Packages whose version may change what a folder of documents says."""


def source_parts(config: CorpusConfig) -> dict[str, object] | None:
    """Collect everything that decides what a materialised corpus holds: settings, files, commits, and the code that reads or makes it.

    Returns:
        The parts by name, or None where they cannot be known: a Hub data set while the Hub does not answer.

    Raises:
        CorpusError: a file cannot be read.
    """
    prints = [_print(source) for source in (config.pages, config.questions)]
    if any(source is not None and made is None for source, made in zip((config.pages, config.questions), prints, strict=True)):
        return None
    return {
        # A change of the generator or of a reader may change what comes out.
        "code": file_key(*sorted(Path(__file__).parent.rglob("*.py"))),
        "sources": prints,
        "world": None if config.pages is not None else config.world.model_dump(),
        "split_seed": SPLIT_SEED,
        "limit_pages": config.limit_pages,
        "sections": config.sections,
    }


def _print(source: str | None) -> str | None:
    if source is None:
        return None
    path = Path(source.removeprefix(HUB_PREFIX))
    try:
        if path.is_dir():
            return _folder_print(path)
        if source.startswith(HUB_PREFIX):
            hub = parse_hub_name(source)
            commit = hub.find_commit()
            return commit and content_key(hub=hub.name, commit=commit)
        # A missing file gets its own message where it is loaded. The suffix decides how bytes are read.
        return content_key(file=file_key(path), suffix=path.suffix) if path.is_file() else "missing"
    except OSError as error:
        raise CorpusError(f"{source} cannot be read ({error.strerror or error}); check its permissions") from error


def _folder_print(folder: Path) -> str:
    """Hash the documents of a folder, what is known of all else in it, the limits and the parsers."""
    from slmsearch.corpus.documents.folder import MAX_FILE_MB, TIMEOUT_S, list_folder
    from slmsearch.corpus.documents.skipped import printable

    found = []
    for entry in list_folder(folder):
        # A file that cannot be read is left out and named when it is its turn.
        readable = entry.reason is None and os.access(entry.path, os.R_OK)
        found.append([printable(entry.place), entry.reason, entry.detail, file_key(entry.path) if readable else None])
    return content_key(
        folder=found, limits={"max_file_mb": MAX_FILE_MB, "timeout_s": TIMEOUT_S}, parsers=[version(name) for name in PARSERS]
    )
