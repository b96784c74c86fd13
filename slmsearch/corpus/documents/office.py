"""Word, PowerPoint, Excel and EPUB to Markdown, by markitdown's converters."""

import io
import re

from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import check_not_binary, checked_text, one_line

CONVERTERS = {".docx": "DocxConverter", ".pptx": "PptxConverter", ".xlsx": "XlsxConverter", ".epub": "EpubConverter"}
"""Suffix -> class of `markitdown.converters`."""
_NOTE = re.compile(r"<!--.*?-->\n?|(?<=\| )NaN(?= \|)|(?<=\d)\.0(?= \|)", re.DOTALL)
"""Numbers of slides; empty cells; what whole numbers end in where their column has an empty cell."""
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)")


def office_to_markdown(data: bytes, suffix: str) -> tuple[str, str]:
    """Convert a document to its title, empty where it has none, and its Markdown; links lose their marks and pictures go, as in HTML.

    Raises:
        NotTakenError: it is no such document, or has no text.
    """
    if not data.startswith(b"PK\x03\x04"):
        check_not_binary(data)
        raise NotTakenError(Reason.BINARY, "it is no office document")
    from markitdown import StreamInfo, converters

    result = getattr(converters, CONVERTERS[suffix])().convert(io.BytesIO(data), StreamInfo(extension=suffix))
    text = _LINK.sub(r"\1", _IMAGE.sub("", _NOTE.sub("", result.markdown)))
    return one_line(result.title or ""), checked_text(text.strip())
