"""Section ids and texts: the ancestor's scheme, and each of its traps fixed."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.sections import normalise_heading, own_texts, split_sections

MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "",
                "text",
                "# T",
                "## A",
                "## A",
                "## A 2",
                "### B",
                "## Full",
                "#",
                "####",
                "```",
                "```py",
                "~~~~",
                "- ```",
                "#x",
                " ## y",
                "\r",
                "## a\r",
            ]
        ),
        st.text(max_size=20),
    ),
    max_size=30,
).map("\n".join)


def split(content: str, page_id: str = "p", title: str = "T") -> list[Section]:
    return split_sections(Page(page_id, title, content))


def ids(content: str, page_id: str = "p") -> list[str]:
    return [section.id for section in split(content, page_id)]


def test_title_section_holds_the_lead_and_comes_first():
    first, second = split("# Town\n\nA lead.\n\n## History\n\nOld.\n")
    assert first == Section("p:town", "p", "Town", 1, "# Town\n\nA lead.")
    assert second == Section("p:history", "p", "History", 2, "## History\n\nOld.")


def test_parent_keeps_the_text_of_its_children():
    _, parent, child, sibling = split("# T\n## A\nintro\n### B\nbelow\n## C\nend")
    assert parent.text == "## A\nintro\n### B\nbelow"
    assert child.text == "### B\nbelow"
    assert sibling.text == "## C\nend"


def test_repeated_headings_are_numbered():
    assert ids("# T\n## A\n1\n## A\n2\n## a \n3") == ["p:t", "p:a", "p:a_2", "p:a_3"]


def test_a_suffix_never_takes_the_id_of_another_heading():
    assert ids("## A\n## A\n## A 2") == ["p:a", "p:a_3", "p:a_2"]
    assert ids("## A\n## A 2\n## A 2\n## A\n## A 2 2\n## A") == ["p:a", "p:a_2", "p:a_2_3", "p:a_3", "p:a_2_2", "p:a_4"]


def test_a_log_of_equal_headings_is_split_in_one_pass():
    content = "# Log\n" + "## Entry\n\nA line.\n" * 40_000
    start = time.process_time()
    assert ids(content)[-1] == "p:entry_40000"
    assert time.process_time() - start < 3, "numbered from 2 for each heading, they would take a minute"


@pytest.mark.parametrize(
    "opening, closing", [("```", "```"), ("```python", "````"), ("~~~", "~~~"), ("  ```", "  ```"), ("1. ```sh", "   ```")]
)
def test_hash_in_a_code_fence_is_no_heading(opening: str, closing: str):
    content = f"# T\n{opening}\n# comment\n{closing}\n## After"
    assert ids(content) == ["p:t", "p:after"]
    assert "# comment" in split(content)[0].text


def test_a_shorter_or_other_mark_does_not_close_a_fence():
    assert ids("# T\n````\n```\n~~~~\n# comment\n````\n## After") == ["p:t", "p:after"]


def test_code_on_one_line_opens_no_fence():
    assert ids("# T\n```code```\n## After") == ["p:t", "p:after"]


def test_page_without_headings_is_one_full_section():
    assert split("just text\n") == [Section("p:full", "p", "Full Page", 0, "just text")]
    assert split("") == [Section("p:full", "p", "Full Page", 0, "")]


def test_heading_named_full_is_its_own_section():
    sections = {section.id: section for section in split("# T\nlead\n## Full\nits text\n## Other")}
    assert sections["p:full"].text == "## Full\nits text"


def test_text_above_the_first_heading_is_reachable():
    lead, other = split("A lead.\n## History\nOld.", title="The  Town")
    assert lead == Section("p:the__town", "p", "The Town", 1, "A lead.")
    assert other.id == "p:history"
    assert split("front matter\n# T\nlead")[0].text == "front matter\n# T\nlead"


def test_own_texts_leave_headings_and_children_out():
    assert own_texts(Page("p", "T", "# T\nlead\n## A\nintro\n### B\nbelow\n## C\n")) == ["lead", "intro", "below", ""]
    assert own_texts(Page("p", "T", "front\n# T\nlead\n## A")) == ["front\nlead", ""]
    assert own_texts(Page("p", "T", "lead\n## A\nx")) == ["lead", "x"]
    assert own_texts(Page("p", "T", "\nno heading\n")) == ["no heading"]


@given(MARKDOWN)
def test_own_texts_hold_every_line_but_headings_once(content: str):
    texts = own_texts(Page("p", "T", content))
    assert len(texts) == len(split(content))
    left = [line.strip() for line in content.split("\n") if line.strip()]
    for line in (line.strip() for text in texts for line in text.split("\n") if line.strip()):
        left.remove(line)
    assert all(line.startswith("#") for line in left)


def test_ancestor_rules_that_stay():
    # Any level, with or without a space after the marks, and inner double spaces kept.
    assert ids("#T\n#### Deep  one\n") == ["p:t", "p:deep__one"]
    assert normalise_heading("  Early Life ") == "early_life"
    assert ids("# T\n", page_id="a:b") == ["a:b:t"]


@given(MARKDOWN, st.text(max_size=8), st.text(max_size=8))
@example("```", "", "")
@example("text\n#", "a:b", "\n")
def test_any_text_splits_into_unique_ids_that_cover_it(content: str, page_id: str, title: str):
    sections = split(content, page_id, title)
    assert sections
    assert len({section.id for section in sections}) == len(sections)
    assert all(section.page_id == page_id and section.id.startswith(f"{page_id}:") for section in sections)
    assert all(section.heading == " ".join(section.heading.split()) for section in sections)
    texts = "\n".join(section.text for section in sections)
    for line in content.split("\n"):
        assert line.strip() in texts
