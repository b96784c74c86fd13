"""PowerPoint decks as Markdown: a section for every slide, with its notes; hidden slides are left out, and named."""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from slmsearch.corpus.documents.document import Document
from slmsearch.corpus.documents.formulas import DOWN, UP, raise_marked
from slmsearch.corpus.documents.office import check_package, is_title, parse_xml, read_properties
from slmsearch.corpus.documents.tables import grid_to_markdown
from slmsearch.corpus.documents.text import escape_heading, one_line
from slmsearch.corpus.documents.word_styles import Styles
from slmsearch.corpus.documents.word_text import COMPATIBLE, Inline, read_inline

_SHOWN_CHARS = 200
_DIAGRAM_DATA = "/diagramData"
_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_PARAGRAPH = "{http://schemas.openxmlformats.org/drawingml/2006/main}p"
_FORMULA = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_TITLES = frozenset({"TITLE", "CENTER_TITLE"})
_RUNNING = frozenset({"DATE", "FOOTER", "HEADER", "SLIDE_NUMBER"})
"""Placeholders that every slide repeats."""


def slides_to_markdown(data: bytes) -> Document:
    """Convert a PowerPoint deck.

    Raises:
        NotTakenError: it is no such deck.
    """
    check_package(data)
    from pptx import Presentation

    deck = Presentation(io.BytesIO(data))
    parts, pages, dropped = [], [], list[tuple[str, str]]()
    running: dict[str, str] = {}
    title = cover = ""
    for number, slide in enumerate(deck.slides, start=1):
        _unwrap(slide._element)
        shapes = list(_in_order(slide.shapes))
        names = [shape for shape in shapes if _kind(shape) in _TITLES and shape.has_text_frame and _name(shape)]
        named = slide.shapes.title
        if names and (named is None or not _name(named)):
            named = names[0]
        heading = _name(named) if named is not None else ""
        for text in (_name(shape) for shape in shapes if _kind(shape) in _RUNNING and shape.has_text_frame):
            running.setdefault(re.sub(r"\d+", "0", text), text)
        blocks = [block for shape in shapes if named is None or shape.shape_id != named.shape_id for block in _read_shape(shape)]
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None and notes.text.strip():
            blocks.append(f"Notes: {escape_heading(_lines(notes))}")
        if slide._element.get("show") in ("0", "false"):
            dropped.append(("hidden slide", f"{number}: {one_line(' '.join([heading, *blocks]))}"[:_SHOWN_CHARS]))
            continue
        if number == 1:
            title = max(map(_name, [shape for shape in names if _kind(shape) == "CENTER_TITLE"]), key=len, default="")
            cover = " ".join([heading, *blocks]).casefold()
        if not heading and not any(blocks):
            continue
        heading = heading or f"Slide {number}"
        pages.append([heading, number])
        parts += [f"## {heading}", *blocks]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        given, facts = read_properties(archive)
    facts["section_pages"] = pages
    dropped += [("running head", text) for text in running.values() if text]
    words = re.findall(r"\w{4,}", given.casefold())
    is_foreign = title and words and not any(word in cover for word in words)  # that of the deck of which this one is a copy
    return Document(given if is_title(given) and not is_foreign else title, "\n\n".join(filter(None, parts)), facts, dropped)


def _unwrap(slide: Any) -> None:
    """Put the first of several ways to show a shape in its place, and formulas as text: python-pptx passes over both."""
    from pptx.oxml.xmlchemy import OxmlElement

    for ways in [*slide.iter(f"{COMPATIBLE}AlternateContent")]:
        for shape in [*next(iter(ways), ())]:
            ways.addprevious(shape)
        ways.getparent().remove(ways)
    for formula in [*slide.iter(_FORMULA)]:
        inline, run, text = Inline(Styles(None)), OxmlElement("a:r"), OxmlElement("a:t")
        read_inline(formula, inline)
        run.append(text)
        run.text = inline.text()
        formula.getparent().replace(formula, run)


def _in_order(shapes: Any) -> Iterator[Any]:
    """Yield shapes as they are read, from above and from the left, those of a group one after the other."""
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if hasattr(shape, "shapes"):
            yield from _in_order(shape.shapes)
        else:
            yield shape


def _kind(shape: Any) -> str:
    """Return the kind of a placeholder; empty for another shape."""
    kind = shape.placeholder_format.type if shape.is_placeholder else None
    return kind.name if kind is not None else ""


def _name(shape: Any) -> str:
    return one_line(_text(shape.text_frame.paragraphs))


def _read_shape(shape: Any) -> Iterator[str]:
    if _kind(shape) in _RUNNING:
        return
    if getattr(shape, "has_table", False) and shape.has_table:
        yield _table(shape.table)
    elif getattr(shape, "has_chart", False) and shape.has_chart:
        yield _chart(shape.chart)
    elif shape.has_text_frame:
        yield _lines(shape.text_frame)
    else:
        yield from _diagram(shape)


def _text(paragraphs: Sequence[Any]) -> str:
    """Return paragraphs with their superscripts as exponents."""
    lines = []
    for paragraph in paragraphs:
        parts = paragraph._p.content_children
        raised = [part.rPr is not None and part.rPr.get("baseline", "0")[:1] not in ("", "-", "0") for part in parts]
        marked = [f"{UP}{part.text}{DOWN}" if is_raised else part.text for part, is_raised in zip(parts, raised, strict=True)]
        lines.append(raise_marked("".join(marked)).replace("\v", " "))
    return "\n".join(lines)


def _lines(frame: Any) -> str:
    """Return the paragraphs of a frame, those below the first level as items of a list."""
    lines = []
    for paragraph in frame.paragraphs:
        text = one_line(_text([paragraph]))
        if text:
            lines.append(f"{'  ' * (paragraph.level - 1)}- {text}" if paragraph.level else escape_heading(text))
    return "\n".join(lines)


def _table(table: Any) -> str:
    grid: list[list[str]] = []
    for row in table.rows:
        line: list[str] = []
        for at, cell in enumerate(row.cells):
            above = grid[-1][at] if cell.is_spanned and grid and at < len(grid[-1]) else ""
            beside = line[-1] if line else ""
            spans_down = cell._tc.get("vMerge") in ("1", "true")
            line.append((above if spans_down else beside) if cell.is_spanned else one_line(_text(cell.text_frame.paragraphs)))
        grid.append(line)
    return grid_to_markdown(grid, int(table.first_row and len(grid) > 1))


def _chart(chart: Any) -> str:
    """Return a chart's title and the table that it draws."""
    title = one_line(_text(chart.chart_title.text_frame.paragraphs)) if chart.has_title and chart.chart_title.has_text_frame else ""
    grid: list[list[str]] = []
    for plot in chart.plots:
        series = list(plot.series)
        grid.append(["", *(str(each.name) for each in series)])
        columns = [[_shown(each) for each in one.values] for one in series]
        for at, category in enumerate(plot.categories):
            grid.append([str(category), *(column[at] if at < len(column) else "" for column in columns)])
    return "\n\n".join(filter(None, [title, grid_to_markdown(grid, 1)]))


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:.10g}"


def _diagram(shape: Any) -> Iterator[str]:
    """Yield the text of a diagram, which lies in a part of its own."""
    keys = {value for element in shape._element.iter() for name, value in element.attrib.items() if name.endswith("}dm")}
    for key in sorted(keys & set(shape.part.rels)):
        if shape.part.rels[key].reltype.endswith(_DIAGRAM_DATA):
            root = parse_xml(shape.part.rels[key].target_part.blob)
            lines = ["".join(paragraph.itertext(_TEXT)).strip() for paragraph in root.iter(_PARAGRAPH)]
            yield "\n".join(escape_heading(line) for line in lines if line)
