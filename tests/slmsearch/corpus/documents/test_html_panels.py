"""What a page of HTML shows after a click is text under its name; what nothing can show is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.html import html_to_markdown

LEAD = "<p>The mill stands on the river and grinds the corn of nine villages.</p>"


def convert(body: str, head: str = "") -> str:
    return (
        html_to_markdown(f"<html><head>{head}</head><body><h1>Mill</h1>{LEAD}{body}</body></html>".encode())[1]
        .partition("villages.")[2]
        .strip()
    )


@pytest.mark.parametrize(
    "body",
    [
        "<ul role=tablist><li role=tab>Red</li><li role=tab>Blue</li></ul><div><div role=tabpanel><p>Port 1.</p></div>"
        "<div role=tabpanel hidden><p>Port 2.</p></div></div>",
        "<nav><div role=tablist><button role=tab aria-controls=a>Red</button><button role=tab data-bs-target='#b'>Blue</button></div></nav>"
        "<div><div id=a>Port 1.</div><div id=b style='display:none'>Port 2.</div></div>",
        "<div role=tablist><button id=t1 role=tab>Red</button><button id=t2 role=tab>Blue</button></div>"
        "<section role=tabpanel aria-labelledby=t1><p>Port 1.</p></section><section role=tabpanel aria-labelledby=t2 hidden>"
        "<p>Port 2.</p></section>",
        "<ul><li id=t1><p>Red</p></li><li id=t2><p>Blue</p></li></ul><div><div class=tab-pane aria-labelledby=t1><p>Port 1.</p></div>"
        "<div class=tab-pane aria-labelledby=t2><p>Port 2.</p></div></div>",
        "<ul class=nav><li><a href='#a'>Red</a></li><li><a href='#b'>Blue</a></li></ul><div><div id=a><p>Port 1.</p></div>"
        "<div id=b>Port 2.</div></div>",
        "<div><input type=radio name=s id=a><label for=a>Red</label><div><p>Port 1.</p></div><input type=radio name=s id=b>"
        "<label for=b>Blue</label><div><p>Port 2.</p></div></div>",
        "<div><input type=radio name=s id=a><input type=radio name=s id=b><div><label for=a>Red</label><label for=b>Blue</label></div>"
        "<div><div><p>Port 1.</p></div><div><p>Port 2.</p></div></div></div>",
    ],
)
def test_each_panel_is_text_under_the_name_of_its_tab(body: str):
    assert convert(body) == "Red: Port 1.\n\nBlue: Port 2."


def test_a_panel_in_a_panel_keeps_both_names():
    inner = "<div role=tablist><span role=tab>x</span><span role=tab>y</span></div><div><p role=tabpanel>1</p>"
    inner += "<p role=tabpanel hidden>2</p></div>"
    body = f"<div role=tablist><span role=tab>A</span></div><div><div role=tabpanel>{inner}</div></div>"
    text = convert(body)
    assert (
        text.startswith("A:") and "x:" in text and "y:" in text and text.index("x:") < text.index("1") < text.index("y:") < text.index("2")
    )


def test_answers_details_and_notes_are_text():
    answers = "<h3><button aria-expanded=false>When?</button></h3><div aria-hidden=true><p>At nine in the morning, they say.</p></div>"
    assert convert(answers) == "### When?\n\nAt nine in the morning, they say."
    assert convert("<details><summary>How deep?</summary>Four metres<br>at ebb.</details>") == "How deep?\n\nFour metres\nat ebb."
    assert convert("<dl><dt><button aria-controls=a>Who?</button></dt><dd id=a hidden>The miller.</dd></dl>") == "Who?: The miller."
    assert convert("<button class=more>More</button><div class=x style='display:none'>Inside.</div>") == "More\n\nInside."
    assert convert("<aside><p>A word on flour.</p></aside><p>End.</p>") == "A word on flour.\n\nEnd."
    assert convert("<blockquote><p>It turns.</p><footer>A. Smith</footer></blockquote>") == "> It turns.\n>\n> A. Smith"


def test_what_can_be_shown_is_text_and_what_cannot_is_none():
    styles = (
        "<style>.gone, #off {color: red; display:none} .p {display:none} .p.open {display:block} @media print {.page{display:none}}</style>"
    )
    body = "<p class=gone>never</p><p id=off>never</p><p class=p>opened</p><p class=page>screen</p><p style='display: none'>never</p>"
    "<p hidden>never</p>"
    assert convert(body, styles) == "opened\n\nscreen"
    dropped = html_to_markdown(f"<h1>M</h1>{LEAD}<p hidden>never</p>".encode()).dropped
    assert list(dropped) == [("hidden", "never")]
    assert convert("<div id=q hidden>said</div>", "<script>show('q')</script>") == "said"
    assert convert("<div class=q style='display:none'>said</div><a onclick='open(\".q\")'>open</a>") == "said\n\nopen"
    assert convert("<button onclick='show(\"q\")'>show</button><br><div id=q style='display:none'>said</div>") == "said"
    assert convert("<h3>Why?</h3><div style='display:none'>said</div>", "<script src='j.js'></script>") == "### Why?\n\nsaid"
    assert "icon" not in convert("<p><span aria-hidden=true>icon</span>said</p>")


@given(
    st.lists(
        st.sampled_from(
            [
                "<div role=tabpanel>",
                "<div role=tablist>",
                "</div>",
                "<b role=tab>word</b>",
                "<button aria-controls=a>word</button>",
                "<p id=a>word</p>",
                "<details>",
                "</details>",
                "<summary>word</summary>",
                "<input type=radio id=r name=n>",
                "<label for=r>word</label>",
                "word",
            ]
        ),
        max_size=20,
    )
)
@settings(max_examples=80, deadline=None)
def test_any_nesting_of_panels_is_read(parts: list[str]):
    text = convert(f"{''.join(parts)}<p>end</p>")
    assert text.endswith("end")
    assert text.count("word") >= sum(
        "word" in part and "role=tab" not in part and not part.startswith(("<label", "<button")) for part in parts
    )
