"""PDFs made by hand, and folders to read."""

import io
from collections.abc import Sequence
from pathlib import Path

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from slmsearch.corpus.documents.folder import read_folder
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.pages import Page


def make_pdf(pages: Sequence[str], outline: Sequence[tuple[str, int]] = (), title: str = "", password: str = "") -> bytes:
    """Make a PDF: one text a page, a line each; outline entries with the number of their page."""
    writer = PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    fonts = DictionaryObject({NameObject("/F1"): DictionaryObject({NameObject(k): NameObject(v) for k, v in font.items()})})
    for text in pages:
        page = writer.add_blank_page(612, 792)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        lines = "".join(f"({line.replace('(', '[').replace(')', ']')}) Tj 0 -14 Td\n" for line in text.split("\n"))
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 72 720 Td\n{lines}ET".encode("latin-1", "replace"))
        page[NameObject("/Contents")] = writer._add_object(stream)
    for name, number in outline:
        writer.add_outline_item(title=name, page_number=number)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def read(folder: Path) -> tuple[dict[str, Page], list[Skipped]]:
    """Read a folder; pages by id, and what was skipped."""
    skipped: list[Skipped] = []
    pages = read_folder(folder, skipped.append)
    assert len({page.id for page in pages}) == len(pages)
    return {page.id: page for page in pages}, skipped
