"""Common parts of office documents: the package of XML files that holds them, and titles that programs invent."""

import io
import re
import zipfile

from lxml import etree

from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import check_not_binary

MAX_UNPACKED_BYTES = 1_000_000_000
"""Size of all parts together; a file that unpacks to more is an attack or a dump."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_UTF_16_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_NO_TITLE = re.compile(
    r"(?:microsoft (?:word|excel|powerpoint) - .*|powerpoint[- ]pr\w+"
    r"|(?:slide|folie|diapositive?|document|dokument|book|sheet|untitled)\s*\d*"
    r"|\[.*\]|(?:document )?title|template|unknown|none|.*\.(?:docx?|dotx?|xlsx?|xltx?|pptx?|potx?|rtf|odt|ods|odp))",
    re.IGNORECASE,
)
"""Titles that programs write into documents without one."""
_PROGRAMS = frozenset({"openpyxl", "python-docx", "xlsxwriter", "apache poi", "microsoft office user", "user", "un-named"})
"""Names that programs write where the author is unknown."""


def check_package(data: bytes) -> None:
    """Refuse a file that is no package of an office document.

    Raises:
        NotTakenError: it is encrypted, another kind of file, broken, or unpacks to too much.
    """
    if data.startswith(_OLD_OFFICE) and _UTF_16_ENCRYPTED in data:
        raise NotTakenError(Reason.ENCRYPTED)
    if not data.startswith(b"PK\x03\x04"):
        check_not_binary(data)
        raise NotTakenError(Reason.BINARY, "it is no office document")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > MAX_UNPACKED_BYTES:
        raise NotTakenError(Reason.MEMORY, f"it unpacks to {size / 1e6:.0f} MB")


def is_title(text: str) -> bool:
    """Say whether a title in a document's properties was given by somebody: programs write a template's or the file's name."""
    return any(c.isalpha() for c in text) and not _NO_TITLE.fullmatch(text.strip())


def parse_xml(data: bytes) -> etree._Element:
    """Parse a part of a package; entities and whatever lies outside it stay unread."""
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True))


def read_properties(archive: zipfile.ZipFile) -> tuple[str, dict[str, object]]:
    """Return the title in a package's properties, empty where there is none, and what else they say: author, date, tags."""
    found: dict[str, str] = {}
    if "docProps/core.xml" in archive.namelist():
        for element in parse_xml(archive.read("docProps/core.xml")):
            if isinstance(element.tag, str):
                found[etree.QName(element).localname] = " ".join((element.text or "").split())
    tags = [tag.strip() for tag in re.split(r"[,;]", found.get("keywords", "")) if tag.strip()]
    author = found.get("creator", "")
    facts = {
        "author": "" if author.casefold() in _PROGRAMS else author,
        "date": (found.get("modified") or found.get("created") or "")[:10],
        "tags": tags,
    }
    return found.get("title", ""), {name: value for name, value in facts.items() if value}
