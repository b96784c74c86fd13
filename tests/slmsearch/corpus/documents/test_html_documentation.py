"""Pages as generators of documentation write them: definitions, notes, footnotes, code with line numbers, indices."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.html import html_to_markdown
from slmsearch.corpus.documents.skipped import ORDINARY, NotTakenError, Reason
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import own_texts, split_sections

LONG = "The boat is moved by the wind alone and needs a crew of two. " * 5
SIGN = '<a class="headerlink" href="#x" title="Permalink">\u00b6</a>'


def convert(body: str) -> str:
    return html_to_markdown(f'<html><body><div role="main">{body}</div></body></html>'.encode())[1]


def sections(body: str) -> dict[str, str]:
    page = Page("p", "P", convert(body))
    return {f"{s.level} {s.heading}": own for s, own in zip(split_sections(page), own_texts(page), strict=True)}


def signature(name: str, arguments: str, kind: str = "", module: str = "") -> str:
    return (
        f'<dt class="sig" id="{module}{name}"><em class="property">{kind} </em><span class="sig-prename descclassname">{module}</span>'
        f'<span class="sig-name descname">{name}</span><span class="sig-paren">(</span>{arguments})</span>{SIGN}</dt>'
    )


def test_definitions_with_something_to_say_become_sections_under_their_heading():
    found = sections(f"""<h1><code>boats</code> \u2014 Boats{SIGN}</h1><p>Lead.</p>
<dl class="py function">{signature("sail", "wind", module="boats.")}{signature("sail", "wind, crew", module="boats.")}
<dd><p>Sails. {LONG}</p><pre>sail(3)\n# fast</pre></dd></dl>
<dl class="py class">{signature("Hull", "", "class", "boats.")}<dd><p>{LONG}</p>
<dl class="py method">{signature("paint", "colour")}<dd>{LONG}</dd></dl>
<dl class="py attribute"><dt class="sig" id="h.w"><span class="sig-name">width</span>{SIGN}</dt><dd><p>In metres. {LONG}</p></dd></dl>
<p>Of all hulls: {LONG}</p></dd></dl>
<p>Beside them: {LONG}</p><h2>Ports</h2><p>Text.</p>""")
    assert list(found) == [
        "1 boats \u2014 Boats",
        "2 boats.sail",
        "2 boats.Hull",
        "3 Hull.paint",
        "3 Hull.width",
        "3 boats.Hull",
        "2 boats \u2014 Boats",
        "2 Ports",
    ]
    assert found["2 boats.sail"].startswith("`boats.sail(wind)`\n\n`boats.sail(wind, crew)`\n\nSails.")
    assert "```\nsail(3)\n# fast\n```" in found["2 boats.sail"]
    assert found["2 boats.Hull"].startswith("`class boats.Hull()`\n\nThe boat")
    assert found["3 Hull.width"].startswith("In metres."), "a signature that is only the name is not repeated"
    assert found["3 boats.Hull"].startswith("Of all hulls") and found["2 boats \u2014 Boats"].startswith("Beside them")
    assert found["2 Ports"] == "Text."


def test_short_definitions_and_those_without_anchors_are_paragraphs_that_begin_with_their_term():
    constants = "".join(f"<dl><dt id='{n}'>{n}{SIGN}</dt><dd><p>Colour {n}.</p></dd></dl>" for n in ("RED", "BLUE"))
    found = sections(f"<h2>Colours</h2>{constants}<p>After.</p>")
    assert found == {"2 Colours": "RED: Colour RED.\n\nBLUE: Colour BLUE.\n\nAfter."}
    assert convert("<dl><dt>a</dt><dt>b:</dt><dd>one</dd><dd>two</dd><dt>c</dt><dd><ul><li>x</li></ul></dd><dt>d</dt></dl>") == (
        "a, b: one\n\ntwo\n\nc:\n\n- x\n\nd"
    )
    assert convert(f"<dl><div><dt>a</dt><dd>{LONG}</dd></div></dl>").startswith("a: The boat")


def test_a_footnote_after_definitions_is_not_of_the_last_one():
    sail = f"<dl>{signature('sail', 'wind')}<dd><p>Sails. {LONG}</p></dd></dl>"
    text = "Whether a boat belongs to the harbour or does not belong to it is for its keeper to say."
    note = f"<p>Notes</p><aside role=note>[<a href='#r'>1</a>] <p>{text}</p></aside>"
    found = sections(f"<h1>Boats</h1><p>Lead.</p>{sail}{note}")
    assert list(found) == ["1 Boats", "2 sail", "2 Boats"] and "keeper" in found["2 Boats"]


def test_definitions_that_are_one_long_list_are_sections_each():
    terms = "".join(f'<dt id="term-{n}">{n} (a term)</dt><dd><p>{LONG}</p></dd>' for n in ("ebb", "flood"))
    assert list(sections(f"<h1>Glossary</h1><dl class='glossary'>{terms}</dl>")) == ["1 Glossary", "2 ebb (a term)", "2 flood (a term)"]


@pytest.mark.parametrize("tag", ["<section id='note-on-tides'>", "<div class='section' id='note-on-tides'>"])
def test_a_section_about_notes_is_no_note(tag: str):
    assert list(sections(f"<h1>Boats</h1><p>Lead.</p>{tag}<h2>Note on tides</h2><p>{LONG}</p>")) == ["1 Boats", "2 Note on tides"]


def test_notes_footnotes_exponents_and_lines_stay_readable():
    assert convert("<div class='admonition'><p class='admonition-title'>Note</p><p>Mind\nthe tide.</p></div>") == "Note: Mind the tide."
    note = "<aside class='footnote' role='note'><span class='label'>[<a href='#r'>1</a>]</span>\n<p>So it is said by all.</p></aside>"
    assert (
        convert(f"<p>Text as it is.</p>{note}<aside><p><a href='b'>Read also</a></p></aside>")
        == "Text as it is.\n\n[1]: So it is said by all."
    )
    assert convert("<p>2<sup>31</sup> of the 1<sup>st</sup>, said<sup><a href='#n'>4</a></sup></p>") == "2^31 of the 1st, said[4]"
    assert convert("<blockquote>said</blockquote><blockquote><div><p>set in</p></div></blockquote>") == "> said\n\nset in"
    assert convert("<p>one\n- two<hr>three") == "one - two\n\nthree"


def test_code_beside_line_numbers_and_in_tables():
    cells = "<td class='linenos'><pre>1\n2</pre></td><td class='code'><pre>a = 1\n  b</pre></td>"
    assert convert(f"<table class='highlighttable'><tr>{cells}</tr></table>") == "```\na = 1\n  b\n```"
    assert "| x | a b |" in convert("<table><tr><th>k</th><th>v</th></tr><tr><td>x</td><td><pre>a\nb</pre></td></tr></table>")


@pytest.mark.parametrize(
    "body",
    [
        "<h1>Contents</h1><div class='toctree-wrapper'><ul><li><a href='a'>A</a></li></ul></div>",
        "<h1>All</h1><ul><li><a href='a'>Of boats</a></li><li><a href='b'>Of sails</a>, <a href='c'>masts</a></li></ul>",
        "<h1>Index</h1><table class='genindextable'><tr><td><ul><li><a href='a'>sail()</a> (in boats)</li></ul></td></tr></table>",
        "<h1>Search</h1><p>Type the words that you look for into the field.</p><div id='search-results'></div>",
    ],
)
def test_a_page_that_only_leads_elsewhere_is_left_out_with_its_reason(body: str):
    with pytest.raises(NotTakenError) as raised:
        convert(body)
    assert raised.value.reason is Reason.INDEX and Reason.INDEX in ORDINARY
    assert "sail on" in convert(f"{body.partition('<div')[0].partition('<table')[0]}<p>{LONG}sail on</p>")


def test_menus_of_known_generators_and_permalinks_are_left_out():
    text = convert(
        f"<h2>A{SIGN}</h2><div class='contents topic'><a href='#b'>B</a></div><nav>n</nav><div class='sphinxsidebar'>s</div>"
        f"<p>Text.<a href='#b'>#</a></p><p id='b'>{LONG}<a href='#fn'>[2]</a></p>"
    )
    assert text.startswith("## A\n\nText.\n\nThe boat") and text.endswith("[2]")


@given(
    st.lists(
        st.sampled_from(
            ["<dl>", "</dl>", "<dt id='a'>", "<dt>term", "</dt>", "<dd>", "</dd>", f"<p>{LONG}", "<h2>Part</h2>", "<pre>x</pre>", "word"]
        ),
        max_size=25,
    )
)
@settings(max_examples=100, deadline=None)
def test_no_word_of_any_definition_list_is_lost(parts: list[str]):
    body = "<p>begin</p>" + "".join(parts)
    text = convert(body)
    for word in ("term", "Part", "word", "crew"):
        assert text.count(word) >= body.count(word)
    assert "begin" in text
