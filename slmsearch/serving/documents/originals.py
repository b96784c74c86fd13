"""The files that pages were read from, for readers who want to see the whole."""

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from fastapi.responses import Response

from slmsearch.corpus.documents.reader import EPUB, OFFICE, PDF, read_inside
from slmsearch.corpus.documents.skipped import NotTakenError
from slmsearch.corpus.documents.text import decode_text
from slmsearch.corpus.store import read_pages

SANDBOX = "default-src 'none'; sandbox"
"""Content security policy of a document: it runs nothing, whatever a browser takes it for."""


def read_original(folder: str | None, corpus: Path, path: str) -> Response | None:
    """Return a file of a folder of documents as a reply, if a page of a corpus was read from it and it is still there, else None.

    A browser shows PDFs, and all text as plain text, HTML too; it saves others.

    Args:
        folder: folder of the documents; None or a file: there is none.
        corpus: directory of the corpus.
        path: the file's path in the folder, as in the page's metadata.

    Raises:
        CorpusError: the corpus is missing or damaged.
    """
    if not folder or not Path(folder).is_dir() or path not in _paths_of(corpus):
        return None
    place = Path(folder) / path
    suffix = place.suffix.lower()
    try:
        content = read_inside(place, Path(folder))
        if suffix not in (*OFFICE, *EPUB, *PDF):
            content = decode_text(content).encode()
    except (OSError, NotTakenError):
        return None
    if suffix in (*OFFICE, *EPUB):
        saved = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(place.name)}"}
        return Response(content, headers=saved, media_type="application/octet-stream")
    if suffix in PDF:
        return Response(content, media_type="application/pdf")
    shown = {"Content-Security-Policy": SANDBOX}
    return Response(content, headers=shown, media_type="text/plain; charset=utf-8")


@lru_cache(4)
def _paths_of(corpus: Path) -> frozenset[str]:
    return frozenset(str(page.metadata.get("path", "")) for page in read_pages(corpus)) - {""}
