"""Headings, tables, titles and separators of pages of HTML."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.html import html_to_markdown
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import own_texts, split_sections

CASES = Path(__file__).parents[5] / "shared" / "cases"
LEAD = "<p>The mill stands on the river and grinds the corn of nine villages.</p>"


def convert(body: str) -> str:
    return html_to_markdown(f"<html><body><h1>Mill</h1>{LEAD}{body}</body></html>".encode())[1].partition("villages.")[2].strip()


def sections(text: str) -> dict[str, str]:
    page = Page("p", "P", text)
    return {section.heading: own for section, own in zip(split_sections(page), own_texts(page), strict=True)}


def test_headings_in_lists_cells_and_boxes_are_sections():
    body = "<ul><li><section><h2>Steer</h2><p>Turns.</p></section></li><li><ul><li><h3>Row</h3><p>Moves.</p></li></ul></li></ul>"
    body += "<table><tr><td><h2>Sail</h2><p>Drives.</p></td></tr></table><a href='x'><h2>Anchor</h2></a><p>Holds.</p>"
    assert (
        convert("<table><tr><td colspan=2><h2>All</h2></td></tr><tr><td>void</td><td>sail(int)</td></tr></table>")
        == "## All\n\nvoid sail(int)"
    )
    assert sections(convert(body)) == {"Steer": "Turns.", "Row": "Moves.", "Sail": "Drives.", "Anchor": "Holds."}


def test_a_heading_of_a_note_or_of_a_data_cell_stays_in_its_section():
    assert convert("<div class='note'><h3>Warning</h3><p>Mind it.</p></div><p>On.</p>") == "Warning: Mind it.\n\nOn."
    assert convert("<blockquote><h2>Said</h2><p>Loud.</p></blockquote>") == "> Said: Loud."
    assert (
        convert("<table><tr><th><h4>k</h4></th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>")
        == "| k | v |\n| --- | --- |\n| 1 | 2 |"
    )
    assert list(sections(convert("<div class='has-sidebar'><h2>A</h2><p>a</p><h2>B</h2><p>b</p></div>"))) == ["A", "B"], (
        "a wrapper is no note"
    )


def test_each_cell_stands_under_its_headers():
    table = "<tr><th rowspan=2>Harbour</th><th colspan=2>Leaves</th></tr><tr><th>Weekday</th><th>Sunday</th></tr>"
    table += "<tr><td rowspan=2>Lunde</td><td>06:40</td><td>09:15</td></tr><tr><td>17:05</td><td>18:30</td></tr><tr><td>Os</td>"
    table += "<td colspan=2>no</td></tr>"
    assert convert(f"<table><caption>Winter</caption>{table}</table>").split("\n") == [
        "Winter",
        "",
        "| Harbour | Leaves Weekday | Leaves Sunday |",
        "| --- | --- | --- |",
        "| Lunde | 06:40 | 09:15 |",
        "| Lunde | 17:05 | 18:30 |",
        "| Os | no | no |",
    ]


def test_bars_breaks_lists_and_tables_in_cells():
    row = "<tr><td><code>a | b</code></td><td>one<br>two<p>three</p><ul><li>x</li><li>y</li></ul></td></tr>"
    assert convert(f"<table><tr><th>k</th><th>v</th></tr>{row}</table>").split("\n")[-1] == r"| `a \| b` | one two three x; y |"
    nested = "<table><tr><td><table><tr><td>one</td><td>two</td></tr></table></td><td>out</td></tr></table>"
    assert convert(nested) == "one | two\n\nout"
    inner = "<table><tr><td>in1</td><td>in2</td></tr></table>"
    text = convert(f"<table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>{inner}</td></tr></table>")
    assert text.endswith("| 1 | in1 in2 |")


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_no_cell_of_any_table_is_lost(rows: list[list[tuple[int, int]]]):
    cells = [[f"<td colspan={across} rowspan={down}>c{y}x{x}" for x, (across, down) in enumerate(row)] for y, row in enumerate(rows)]
    text = convert(f"<table><tr><th>k</th><th>v</th></tr>{''.join('<tr>' + ''.join(row) for row in cells)}</table><p>end</p>")
    assert all(f"c{y}x{x}" in text for y, row in enumerate(rows) for x in range(len(row))) and text.endswith("end")


def test_tables_that_are_no_tables_of_data_are_read_in_order():
    row = "<tr><td class=n><p>cr</p></td><td><p>a <a href='#x'>context</a></p></td><td>&nbsp;</td></tr>"
    table = f"<div><table><colgroup><col></colgroup><tbody>{row}</tbody></table></div>"
    assert convert(f"<p>Draws.<h4>Parameters</h4>{table}") == "Draws.\n\n#### Parameters\n\ncr | a context"
    box = "<tr><td><div>Note</div></td><td><div>On gates</div><div><p>It is heavy.</p><pre>lift -f\nlift -g</pre></div></td></tr>"
    assert convert(f"<table>{box}</table>") == "Note\n\nOn gates\n\nIt is heavy.\n\n```\nlift -f\nlift -g\n```"
    call = (
        "<tr><td>int lift</td><td>(</td><td>gate *</td><td>g,</td></tr><tr><td></td><td></td><td>int</td><td>by</td></tr><tr><td></td><td>)"
    )
    assert convert(f"<table>{call}</table>") == "`int lift ( gate * g, int by )`"


def test_a_table_that_claims_to_be_huge_is_read():
    text = convert("<table>" + "<tr><td colspan=1000 rowspan=65000>a</td><td colspan=99999>b</td></tr>" * 400 + "</table>")
    assert text.count("a") >= 400 and len(text) < 2_000_000


def test_words_that_only_the_layout_separates_stay_apart():
    assert (
        convert("<p>one<br>two <code>-c</code><code>--core</code> <a href=x>red</a><a href=y>blue</a></p>")
        == "one\ntwo `-c` `--core` red blue"
    )
    assert convert("<dl><dt><b>sum(X)<br>total(X)</b></dt><dd>Adds.</dd></dl>") == "sum(X) total(X): Adds."
    assert convert("<p>Since 1871.<sup><a href='#f'>1</a></sup> It was 10<sup>3</sup>, <a href='#g'><sup>b</sup></a></p>") == (
        "Since 1871.[1] It was 10^3, [b]"
    )
    assert convert("<p>long&shy;word and<wbr>so <ruby>\u6f22<rt>kan</rt></ruby></p>") == "longword andso \u6f22(kan)"
    assert convert("<pre>a<br>b<span>c</span></pre>") == "```\na\nbc\n```"
    numbered = "".join(f"<span class=n>00{n}</span>line {n}\n" for n in (1, 2, 3))
    assert convert(f"<pre>{numbered}</pre>") == "```\nline 1\nline 2\nline 3\n```"
    lines = "".join(f"<div class=line><a id=l{n}></a><span class=no> {n}</span>  line {n}</div>" for n in (8, 9))
    assert convert(f"<div class=fragment>{lines}</div>") == "```\n  line 8\n  line 9\n```"
    values = "<pre>f(<span>1</span>, <span>2</span>)\n(1, 2)</pre><pre><span>1</span>\n<span>2</span></pre>"
    assert convert(values) == "```\nf(1, 2)\n(1, 2)\n```\n\n```\n1\n2\n```"
    assert (
        convert("<p>So <math alttext='x^2'><mi>x</mi></math> and <math><mi>y</mi><annotation>z</annotation></math></p>") == "So x^2 and y"
    )
    power, root = "<msup><mi>x</mi><mn>10</mn></msup>", "<mroot><mn>8</mn><mn>3</mn></mroot>"
    fraction = f"<mfrac><mrow><mi>y</mi><mo>+</mo>{power}</mrow><mn>4</mn></mfrac>"
    assert convert(f"<p><math>{fraction}<mo>=</mo><msqrt><mn>2</mn></msqrt><mo>-</mo>{root}</math>") == "(y + x^10)/4 = √2 - 3√8"
    assert convert("<p>10<sup>\u22126</sup> m") == "10^\u22126 m"


@pytest.mark.parametrize(
    ("head", "body", "title"),
    [
        ("<title>Oats - Fernwald</title><meta property=og:site_name content=Fernwald>", "<h2>Grain</h2>", "Oats"),
        ("<title>Oats | Fernwald</title>", "<h1>Oats</h1><p>x</p>", "Oats"),
        ("<title>Oats | Fernwald</title>", "<h1>Fernwald</h1><h2>Oats</h2>", "Oats"),
        ("<title>Oats (Mill API)</title>", "<h2>Class Oats</h2><h3>grind</h3>", "Class Oats"),
        ("<title>Oats (Mill API)</title>", "<h2>Class Oats&lt;T extends Corn&gt;</h2><h3>grind</h3>", "Class Oats<T extends Corn>"),
        ("<title>On oats</title>", "<div>On oats</div><h1><b>1. </b>Sowing</h1><p>a</p>", "On oats"),
        ("<title>On oats</title>", "<h1>1. Sowing</h1><p>a</p>", "On oats"),
        ("<title>1. Sowing \u2014 Mill</title>", "<h1>1. Sowing</h1><p>a</p>", "1. Sowing"),
        (
            "<title>Mill: Oats Class</title>",
            "<div class=title>Oats Class<div><a href=x>Corn</a></div></div><p>a</p>",
            "Oats Class",
        ),
        ("<title>Oats: The Mill Book</title><link rel=home title='The Mill Book' href=i>", "<h2>Oats</h2>", "Oats"),
        ("<title>Mill: Oats Class</title>", "<div>Mill 1.2</div><div class=title>Oats Class</div><h2>a</h2>", "Oats Class"),
        ("<title>Oats</title>", "<div>Oats</div><h1>1. Sow</h1><p>a</p><h1>2. Reap</h1>", "Oats"),
        ("<meta property=og:title content='Of oats'>", "<h1>A</h1><h1>B</h1>", "Of oats"),
        ("", "<p class='c1 title'>Of oats</p><h2>A</h2>", "Of oats"),
        ("", "<h3>A</h3>", ""),
    ],
)
def test_titles(head: str, body: str, title: str):
    document = html_to_markdown(f"<html><head>{head}</head><body>{body}{LEAD}</body></html>".encode())
    assert document.title == title
    firsts = [line for line in document.content.split("\n") if line.startswith("# ")]
    assert firsts == ([f"# {title}"] if title else [])


def test_the_cases_of_the_issue():
    if not CASES.is_dir():
        pytest.skip("shared/cases lies beside the working copy only where the issue is worked on")
    java = html_to_markdown((CASES / "javadoc.html").read_bytes())
    assert "Turns the boat" in sections(java.content)["steer"] and java.dropped
    tabs = html_to_markdown((CASES / "tabs_docusaurus.html").read_bytes()).content
    assert all(f"{name}: On {name}" in tabs for name in ("Linux", "macOS", "Windows")) and "Menu" not in tabs
    tables = html_to_markdown((CASES / "tables.html").read_bytes()).content
    assert "| Ostrevik | 17:05 | 18:30 |" in tables and "Inner cell one | Inner cell two" in tables


def test_an_end_of_another_level_ends_a_heading():
    found = sections(convert("<h2 align=center>Wheel</h1><p>It is of oak.<h3>Axle</H2><p>It is of iron."))
    assert found["Wheel"] == "It is of oak." and found["Axle"] == "It is of iron."


def test_what_a_section_says_after_its_sections_is_its_own():
    parts = "<div><h3>Parameters</h3><p>sacks</p></div><div><h3>Returns</h3><p>flour</p></div>"
    body = f"<div><h2>grind()</h2><p>Grinds.</p>{parts}<p>Since 1.2</p></div>"
    found = sections(convert(f"{body}<p>Of all.</p>"))
    assert (found["grind()"], found["Parameters"], found["Returns"]) == ("Grinds.\n\nSince 1.2", "sacks", "flour\n\nOf all.")
    headed = sections(convert("<div><h2>Wheel</h2></div><p>Of oak.</p><div><div><h2>Roof</h2><p>Slate.</p></div><p>And tin.</p></div>"))
    assert (headed["Wheel"], headed["Roof"]) == ("Of oak.", "Slate.\n\nAnd tin.")
