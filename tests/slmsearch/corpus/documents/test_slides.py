"""PowerPoint decks: a section a slide, and everything that stands on it."""

import io

from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.oxml.ns import qn
from pptx.util import Inches

from slmsearch.corpus.documents.slides import slides_to_markdown


def test_slides_are_sections_with_their_notes_tables_and_charts() -> None:
    deck, out = Presentation(), io.BytesIO()
    first = deck.slides.add_slide(deck.slide_layouts[0])
    first.shapes.title.text, first.placeholders[1].text = "Mills of Halden", "# 1 of the coast"
    second = deck.slides.add_slide(deck.slide_layouts[1])
    second.shapes.title.text, second.placeholders[1].text = "Trams", "red\nblue"
    second.placeholders[1].text_frame.paragraphs[1].level = 1
    second.notes_slide.notes_text_frame.text = "Say it slowly."
    third = deck.slides.add_slide(deck.slide_layouts[6])
    grid = third.shapes.add_table(3, 3, 0, 0, Inches(3), Inches(2)).table
    for row, cells in enumerate((("port", "out", "back"), ("Halden", "9:00", "17:05"), ("Vega", "a | b", ""))):
        for column, text in enumerate(cells):
            grid.cell(row, column).text = text
    grid.cell(0, 1).merge(grid.cell(0, 2))
    data = CategoryChartData()
    data.categories = ["2023", "2024"]
    data.add_series("ships", (41, 42.5))
    third.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, Inches(3), Inches(3), Inches(3), data)
    hidden = deck.slides.add_slide(deck.slide_layouts[1])
    hidden.shapes.title.text = "Secret"
    hidden._element.set("show", "0")
    deck.core_properties.title = "PowerPoint Presentation"
    deck.save(out)
    found = slides_to_markdown(out.getvalue())
    assert found.title == "Mills of Halden"
    assert found.content.split("\n\n") == [
        "## Mills of Halden", "\\# 1 of the coast", "## Trams", "red\n- blue", "Notes: Say it slowly.", "## Slide 3",
        "| port | out back | out back |\n| --- | --- | --- |\n| Halden | 9:00 | 17:05 |\n| Vega | a \\| b |  |",
        "|  | ships |\n| --- | --- |\n| 2023 | 41 |\n| 2024 | 42.5 |",
    ]  # fmt: skip
    assert found.dropped == [("hidden slide", "4: Secret")]
    assert found.metadata["section_pages"] == [["Mills of Halden", 1], ["Trams", 2], ["Slide 3", 3]]


def test_superscripts_keep_their_numbers_apart() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    for frame in (slide.shapes.add_textbox(0, 0, 9, 9).text_frame, slide.shapes.add_table(1, 1, 0, 9, 9, 9).table.cell(0, 0).text_frame):
        for text, baseline in (("10", None), ("6", "30000"), (" m", "0"), ("2", "-25000")):
            run = frame.paragraphs[0].add_run()
            run.text = text
            if baseline is not None:
                run.font._element.set("baseline", baseline)
    deck.save(out)
    assert slides_to_markdown(out.getvalue()).content == "## Slide 1\n\n10^6 m2\n\n10^6 m2"


def test_titles_in_other_placeholders_are_found_and_what_runs_along_is_said() -> None:
    deck, out = Presentation(), io.BytesIO()
    for text in ("Trams of Halden", "Boats"):
        slide = deck.slides.add_slide(deck.slide_layouts[0])
        slide.shapes.title.text, slide.placeholders[1].text = text, "red"
        slide.shapes.title._element.nvSpPr.nvPr.find(qn("p:ph")).set("idx", "7")
        for kind, idx, shown in (("sldNum", "12", f"{len(deck.slides)}"), ("ftr", "11", "Port of Halden")):
            shape = slide.shapes.add_textbox(0, 0, 9, 9)
            shape.text_frame.text = shown
            names = shape._element.nvSpPr.nvPr
            names.insert(0, names.makeelement(qn("p:ph"), {"type": kind, "idx": idx}))
    deck.core_properties.title = "Spring conference"
    deck.save(out)
    found = slides_to_markdown(out.getvalue())
    assert found.title == "Trams of Halden", "no word of the title in the properties stands on the cover"
    assert found.content.split("\n\n") == ["## Trams of Halden", "red", "## Boats", "red"]
    assert found.dropped == [("running head", "1"), ("running head", "Port of Halden")]
    deck.core_properties.title = "All trams, 2024"
    deck.save(out := io.BytesIO())
    assert slides_to_markdown(out.getvalue()).title == "All trams, 2024"


BOX_WITH_A_FORMULA = """
<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"
 xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">
 <mc:Choice Requires="a14"><p:sp><p:nvSpPr><p:cNvPr id="9" name="Box"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr/>
  <p:txBody><a:bodyPr/><a:p><a:r><a:t>The tide takes </a:t></a:r>
   <a14:m><m:oMath><m:f><m:num><m:r><m:t>3</m:t></m:r></m:num><m:den><m:r><m:t>4</m:t></m:r></m:den></m:f></m:oMath></a14:m>
   <a:r><a:t> of a day.</a:t></a:r></a:p></p:txBody></p:sp></mc:Choice>
 <mc:Fallback><p:sp><p:nvSpPr><p:cNvPr id="9" name="Box"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr/>
  <p:txBody><a:bodyPr/><a:p><a:r><a:t> </a:t></a:r></a:p></p:txBody></p:sp></mc:Fallback>
</mc:AlternateContent>"""


def test_a_text_box_with_a_formula_is_read() -> None:
    deck, out = Presentation(), io.BytesIO()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Low water"
    slide.shapes._spTree.append(parse_xml(BOX_WITH_A_FORMULA))
    deck.save(out)
    assert slides_to_markdown(out.getvalue()).content == "## Slide 1\n\nLow water\n\nThe tide takes 3/4 of a day."
