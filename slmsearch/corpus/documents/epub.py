"""EPUB books as Markdown: the chapters in reading order, each read as an HTML page."""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

from slmsearch.corpus.documents.document import MAX_CHARS, Document
from slmsearch.corpus.documents.html import convert_page, decode_page
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import checked_text, one_line

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Encryption methods that only hide fonts."""
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


def epub_to_markdown(data: bytes) -> Document:
    """Convert a book.

    Raises:
        NotTakenError: the file is no EPUB, is encrypted, or has no text.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_open(archive)
        path = next((str(root.get("full-path")) for root in _find(_parse(archive, CONTAINER), "rootfile") if root.get("full-path")), "")
        if path not in archive.namelist():
            raise NotTakenError(Reason.BROKEN, "its package file is missing")
        package = _parse(archive, path)
        title = next(filter(None, (one_line(title.text or "") for title in _find(package, "title"))), "")
        parts, dropped = list[str](), list[tuple[str, str]]()
        for name, is_contents in _spine(package, posixpath.dirname(path)):
            if name not in archive.namelist():
                continue
            page = convert_page(decode_page(_read(archive, name)), title)
            if page is None or is_contents:
                dropped.append(("contents", name))
                continue
            parts.append(page.content)
            dropped += [(kind, text) for kind, text in page.dropped]
            if sum(map(len, parts)) > MAX_CHARS:
                raise NotTakenError(Reason.LONG)
    return Document(title, checked_text("\n\n".join(filter(None, parts))), _metadata(package), dropped)


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > 4 * MAX_CHARS:
        raise NotTakenError(Reason.LONG, name)
    return archive.read(name)


def _parse(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if name not in archive.namelist():
        raise NotTakenError(Reason.BROKEN, f"{name} is missing")
    try:
        return ElementTree.fromstring(_read(archive, name))
    except ElementTree.ParseError as error:
        raise NotTakenError(Reason.BROKEN, f"{name}: {error}") from error


def _find(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Return the elements with a name, in any namespace."""
    return [element for element in root.iter() if isinstance(element.tag, str) and element.tag.rpartition("}")[2] == name]


def _check_open(archive: zipfile.ZipFile) -> None:
    if ENCRYPTION in archive.namelist():
        methods = {str(method.get("Algorithm")) for method in _find(_parse(archive, ENCRYPTION), "EncryptionMethod")}
        if methods - set(_FONTS):
            raise NotTakenError(Reason.ENCRYPTED)


def _spine(package: ElementTree.Element, folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the files of the chapters, each with True for the table of contents."""
    items = {item.get("id"): item for item in _find(package, "item")}
    seen = set[str]()
    for reference in _find(package, "itemref"):
        item = items.get(reference.get("idref"))
        if item is None or item.get("media-type", _PAGES[0]) not in _PAGES or not item.get("href"):
            continue
        name = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "").partition("#")[0])))
        if name not in seen:
            seen.add(name)
            yield name, "nav" in str(item.get("properties", "")).split()


def _metadata(package: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, name in (("author", "creator"), ("date", "date"), ("language", "language")):
        values = [one_line(element.text or "") for element in _find(package, name)]
        if any(values):
            found[key] = ", ".join(filter(None, values)) if key == "author" else next(filter(None, values))
    return found
