"""Documents made by hand, and folders to read."""

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, Fit, NameObject

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.folder import read_folder
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.pages import Page

Placed = tuple[float, float, float, str, str]
"""A line of a PDF: distance from the left and from below, size of its font, name of its font, text."""
TEXT, BOLD, CODE = "Helvetica", "Helvetica-Bold", "Courier"
FILLING = "Grain is weighed at the gate and written down by the miller in a thick book."


def make_pdf(pages: Sequence[str], outline: Sequence[tuple[str, int]] = (), title: str = "", password: str = "") -> bytes:
    """Make a PDF: one text a page, a line each; outline entries with the number of their page."""
    placed = [[(72.0, 720.0 - 14 * n, 12.0, "Helvetica", line) for n, line in enumerate(text.split("\n"))] for text in pages]
    return place_pdf(placed, outline, title, password)


def place_pdf(
    pages: Sequence[Sequence[Placed]],
    outline: Sequence[tuple[str, int] | tuple[str, int, float, float]] = (),
    title: str = "",
    password: str = "",
    enlarged: bool = False,
    turned: bool = False,
    **facts: str,
) -> bytes:
    """Make a PDF of lines that stand where they are told, in the order in which they are given.

    Args:
        pages: lines of each page.
        outline: titles, with the numbers of their pages, and the places there, from the left and from below.
        title: in the metadata.
        password: for opening it.
        enlarged: write all text in size 1 and enlarge it, as Word does.
        turned: let all lines run up the page.
        facts: other metadata.
    """
    writer = PdfWriter()
    names = sorted({name for lines in pages for _, _, _, name, _ in lines})
    kinds = [{"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": f"/{name}"} for name in names]
    fonts = {
        NameObject(f"/F{n}"): DictionaryObject({NameObject(k): NameObject(v) for k, v in kind.items()}) for n, kind in enumerate(kinds)
    }
    for lines in pages:
        page = writer.add_blank_page(612, 792)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): DictionaryObject(fonts)})
        drawn = []
        for left, bottom, size, name, text in lines:
            safe = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
            font, matrix = (1, f"{size} 0 0 {size}") if enlarged else (size, "0 1 -1 0" if turned else "1 0 0 1")
            drawn.append(f"BT /F{names.index(name)} {font} Tf {matrix} {left} {bottom} Tm ({safe}) Tj ET")
        stream = DecodedStreamObject()
        stream.set_data("\n".join(drawn).encode("latin-1", "replace"))
        page[NameObject("/Contents")] = writer._add_object(stream)
    for name, number, *place in outline:
        writer.add_outline_item(title=name, page_number=number, fit=Fit.xyz(*place) if place else Fit.fit())
    writer.add_metadata({**({"/Title": title} if title else {}), **{f"/{name}": value for name, value in facts.items()}})
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


def down(texts: list[tuple[str, float, str]], left: float = 72.0, top: float = 700.0) -> list[Placed]:
    """Set lines one below the other: text, size and font of each; an empty one leaves room."""
    placed, height = list[Placed](), top
    for text, size, font in texts:
        placed += [(left, height, size, font, text)] if text else []
        height -= 1.2 * size
    return placed


def plain(*texts: str) -> list[tuple[str, float, str]]:
    return [(text, 10.0, TEXT) for text in texts]


def headings(read: Document) -> list[str]:
    return [line for line in read.content.split("\n") if line.startswith("#")]


def under(read: Document, heading: str) -> str:
    """Return the text between a heading and the next one."""
    return re.split(r"^#+ .*$", read.content.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0].strip()
