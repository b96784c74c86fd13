"""Jupyter notebooks as Markdown."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents.notebook import MAX_OUTPUT_CHARS, notebook_to_markdown
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from slmsearch.corpus.store import build_corpus, read_pages


def code(source: str | list[str], *outputs: dict[str, object]) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "metadata": {}}


def notebook(*cells: dict[str, object], **metadata: object) -> str:
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def test_half_a_pair_of_surrogates_in_an_output_fails_no_corpus(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    output = {"output_type": "stream", "text": "seen \ud83d"}
    cells = [{"cell_type": "code", "source": "print(seen)", "metadata": {}, "outputs": [output]}]
    (tmp_path / "docs" / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    (page,) = read_pages(tmp_path / build_corpus(CorpusConfig(pages=str(tmp_path / "docs")), tmp_path))
    assert "seen ?" in page.content


def test_text_code_and_what_it_printed_are_kept():
    title, text, *_ = notebook_to_markdown(
        notebook(
            {"cell_type": "markdown", "source": ["# Tides\n", "How they turn."]},
            code(["# no heading\n", "tide()"], {"output_type": "stream", "name": "stdout", "text": ["high\n", "low\n"]}),
            code("plot()", {"output_type": "display_data", "data": {"image/png": "x", "text/plain": "<Figure>"}}),
            code("b()", {"output_type": "display_data", "data": {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "VBox()"}}),
            code("3", {"output_type": "execute_result", "data": {"text/html": "<b>", "text/plain": ["\x1b[31m3\x1b[0m"]}}),
            code("1/0", {"output_type": "error", "ename": "Fault", "evalue": "\x1b[31mby zero\x1b[0m", "traceback": ["long"]}),
            {"cell_type": "raw", "source": "raw"},
            code(""),
            language_info={"name": "python"},
        )
    )
    assert (title, [section.heading for section in split_sections(Page("p", "P", text))]) == ("", ["Tides"])
    assert "```python\n# no heading\ntide()\n```\n\n```\nhigh\nlow\n```" in text
    assert "```python\n3\n```\n\n```\n3\n```" in text and "Fault: by zero" in text
    assert not any(word in text for word in ("<Figure>", "VBox", "image", "traceback", "long", "raw", "<b>", "\x1b"))
    assert notebook_to_markdown(notebook(title="Named"))[0] == "Named"


def test_shown_markdown_and_html_are_kept_and_raw_cells_are_named():
    def shown(**data: object) -> dict[str, object]:
        return {"output_type": "display_data", "data": {f"text/{name}": text for name, text in data.items()}}

    found = notebook_to_markdown(
        notebook(
            {"cell_type": "raw", "source": "---\ntitle: Tides\n---"},
            code("a()", shown(markdown=["Ebb at **9:05**"], plain="<IPython.core.display.Markdown object>")),
            code("b()", shown(html="<script>x</script><p>Flood at 15:20</p>", plain="<pandas.io.formats.style.Styler at 0x7f>")),
            code("c()", shown(html="<table><tr><td>1</td></tr></table>")),
            code("d()", shown(html="<div></div>", plain="<folium.folium.Map at 0x7f>")),
            code("e()", shown(markdown="| a |", plain="   a\n0  7")),
            {"cell_type": "raw", "source": "\\clearpage"},
        )
    )
    assert (found.title, found.dropped) == ("Tides", [("raw cell", "\\clearpage")])
    outputs = ["Ebb at **9:05**", "Flood at 15:20", "1", "<folium.folium.Map at 0x7f>", "   a\n0  7"]
    assert found.content == "\n\n".join(f"```\n{name}()\n```\n\n```\n{output}\n```" for name, output in zip("abcde", outputs, strict=True))


def test_code_that_a_cell_leaves_open_ends_with_the_cell():
    cells = [{"cell_type": "markdown", "source": source} for source in ("# Tides\n\n```\ntide()", "## Low\n\nAt noon.")]
    page = Page("p", "P", notebook_to_markdown(notebook(*cells)).content)
    assert [section.heading for section in split_sections(page)] == ["Tides", "Low"]


def test_of_a_long_output_the_beginning_stays():
    text = notebook_to_markdown(notebook(code("x", {"output_type": "stream", "text": "y" * 5000})))[1]
    assert MAX_OUTPUT_CHARS < len(text) < MAX_OUTPUT_CHARS + 50 and text.endswith("y\n...\n```")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"cells": 3}', '{"cells": [{}]}', '{"worksheets": []}'])
def test_what_is_no_notebook_is_refused(text: str):
    with pytest.raises(NotTakenError) as raised:
        notebook_to_markdown(text)
    assert raised.value.reason is Reason.BROKEN


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=9) | st.sampled_from(["code", "markdown", "stream", "```"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cells", "cell_type", "source", "outputs", "output_type", "text", "data"]), inner, max_size=5)
    ),
    max_leaves=15,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_anything_is_read_or_refused(value: object):
    try:
        title, text, *_ = notebook_to_markdown(json.dumps(value))
    except NotTakenError:
        return
    assert isinstance(title, str) and isinstance(text, str)


def test_front_matter_gives_the_title_and_headings_are_those_of_markdown():
    raw = {"cell_type": "raw", "source": "---\ntitle: Tides\ndate: 2024-03-01\n---"}
    title, text, metadata, *_ = notebook_to_markdown(notebook(raw, {"cell_type": "markdown", "source": "Ebb\n===\n\n#tag"}))
    assert (title, text, metadata) == ("Tides", "# Ebb\n\n\\#tag", {"date": "2024-03-01"})
