"""Documents made by hand, and folders to read."""

import io
import zipfile
from collections.abc import Mapping, Sequence
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


def make_zip(files: Mapping[str, str]) -> bytes:
    """Pack text files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def make_docx() -> bytes:
    """Make a Word document: two headings, a paragraph with a link."""
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    styled = '<w:p><w:pPr><w:pStyle w:val="{}"/></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    link = '<w:hyperlink r:id="r1"><w:r><w:t>many people</w:t></w:r></w:hyperlink>'
    body = styled.format("Heading1", "The Study") + styled.format("Heading2", "Methods")
    body += f'<w:p><w:r><w:t xml:space="preserve">We asked </w:t></w:r>{link}<w:r><w:t>.</w:t></w:r></w:p>'
    target = '<Relationship Id="r1" Type="{}/{}" Target="{}"{}/>'
    linked = target.format(office, "hyperlink", "http://example.org/a_(b)", ' TargetMode="External"')
    return make_zip(
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
            f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
            f"{target.format(office, 'officeDocument', 'word/document.xml', '')}</Relationships>",
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">{linked}</Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{word}" xmlns:r="{office}"><w:body>{body}</w:body></w:document>',
        }
    )


def make_pptx() -> bytes:
    """Make two slides."""
    from pptx import Presentation

    show, out = Presentation(), io.BytesIO()
    for title, text in (("Trams", "red\nblue"), ("Boats", "")):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    show.save(out)
    return out.getvalue()


def make_xlsx() -> bytes:
    """Make a sheet with an empty cell."""
    from openpyxl import Workbook

    book, out = Workbook(), io.BytesIO()
    book.active.title = "Prices"
    for row in (("what", "price"), ("bread", 2), ("air", None)):
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def make_epub() -> bytes:
    """Make a book of one chapter."""
    root = '<rootfiles><rootfile full-path="c.opf" media-type="application/oebps-package+xml"/></rootfiles>'
    opf = (
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Of Boats</dc:title></metadata>'
        '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine>'
    )
    return make_zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">{root}</container>',
            "c.opf": f'<package xmlns="http://www.idpf.org/2007/opf">{opf}</package>',
            "a.xhtml": "<html><body><h1>One</h1><p>Text <a href='x'>link</a>.</p><h2>Sails</h2><p>White.</p></body></html>",
        }
    )


def read(folder: Path) -> tuple[dict[str, Page], list[Skipped]]:
    """Read a folder; pages by id, and what was skipped."""
    pages, skipped, _ = read_folder(folder)
    assert len({page.id for page in pages}) == len(pages)
    return {page.id: page for page in pages}, skipped
