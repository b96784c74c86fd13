"""Jupyter notebooks as Markdown: text cells unchanged, code cells as code, each followed by the text that it printed or showed.

Pictures and interactive output are dropped; a long output is cut. Raw cells, which are for other programs, are left out, and named.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.front_matter import split_front_matter
from slmsearch.corpus.documents.markdown import read_markdown
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import fenced, one_line

MAX_OUTPUT_CHARS = 1500
"""Number of characters kept of a cell's output."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NAMED = ("image/", "application/vnd.jupyter.widget-view")
"""Types of outputs whose text is only a name: pictures and widgets."""
_OBJECT = re.compile(r"\s*(?:<[\w.]+ (?:object|at)\b.*>)?\s*", re.DOTALL)
"""Text that only names an object; what people see is in another type."""
_SHOWN_CHARS = 200


def notebook_to_markdown(text: str) -> Document:
    """Convert a notebook of nbformat 4; front matter in its first cell gives metadata, and the title if the notebook has none.

    Raises:
        NotTakenError: the file is no such notebook.
    """
    try:
        notebook = json.loads(text)
        cells, metadata = notebook["cells"], notebook.get("metadata", {})
        language = str(metadata.get("language_info", {}).get("name", ""))
        front = split_front_matter(_joined(cells[0]["source"]) if cells and cells[0]["cell_type"] in ("raw", "markdown") else "")
        dropped: list[Sequence[str]] = []
        parts = [part for cell in cells for part in _cell(cell, language if language.isalnum() else "", dropped)]
        return Document(one_line(str(metadata.get("title") or front.title)), "\n\n".join(parts), front.metadata, dropped)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotTakenError(Reason.BROKEN, f"it is no notebook of nbformat 4 ({type(error).__name__}: {error})") from error


def _cell(cell: dict[str, Any], language: str, dropped: list[Sequence[str]]) -> list[str]:
    source = _joined(cell["source"]).strip("\n")
    if cell["cell_type"] == "markdown":
        read = read_markdown(source)
        dropped += read.dropped
        return [read.content] if read.content.strip() else []
    if cell["cell_type"] != "code":
        raw = split_front_matter(source).rest.strip()
        dropped += [("raw cell", raw[:_SHOWN_CHARS])] if raw else []
        return []
    printed = "\n".join(filter(None, (_COLOUR.sub("", _printed(output)).strip("\n") for output in cell.get("outputs", []))))
    if len(printed) > MAX_OUTPUT_CHARS:
        printed = f"{printed[:MAX_OUTPUT_CHARS]}\n..."
    return [fenced(code, info) for code, info in ((source, language), (printed, "")) if code.strip()]


def _printed(output: dict[str, Any]) -> str:
    kind, data = output["output_type"], output.get("data", {})
    if kind == "stream":
        return _joined(output["text"])
    if kind == "error":
        return f"{output['ename']}: {output['evalue']}"
    if any(name.startswith(_NAMED) for name in data):
        return ""
    plain = _joined(data.get("text/plain", ""))
    if not _OBJECT.fullmatch(plain):
        return plain
    shown = _joined(data.get("text/markdown", data.get("text/latex", "")))
    return shown or _read_page(_joined(data.get("text/html", ""))) or plain


def _read_page(page: str) -> str:
    """Return the text of an HTML output; empty if it has none."""
    from slmsearch.corpus.documents.html import html_to_markdown

    try:
        return html_to_markdown(page.encode()).content
    except NotTakenError:
        return ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
