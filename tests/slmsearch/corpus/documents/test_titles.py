"""What the pages of a folder are called, and which blocks they only repeat."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.documents.folder import read_folder
from slmsearch.corpus.documents.repeats import drop_repeated, split_blocks
from slmsearch.corpus.documents.titles import demote_headings, name_page, tell_apart, without_site


def test_a_first_level_heading_is_the_title_only_where_it_stands_alone():
    assert name_page("guide/mill.md", "", "# The mill\n\ntext\n\n## Wheel") == "The mill"
    assert name_page("guide/mill.md", "", "# Wheel\n\ntext\n\n# Roof\n\ntext") == "mill"
    assert name_page("guide/mill.md", "", "## Wheel\n\ntext\n\n### Oak") == "mill"
    assert name_page("guide/mill.md", "Halden mill", "# Wheel\n\ntext") == "Halden mill"
    assert name_page("guide/mill.md", "", "```\n# one\n```\n\n# The mill") == "The mill", "code has no headings"


def test_files_that_stand_for_their_folder_are_called_as_it_is():
    named = [name_page(place, "", "text") for place in ("guide/_index.md", "guide/README.md", "guide/index.html", "README.md", "a/b.txt")]
    assert named == ["guide", "guide", "guide", "README", "b"]


def test_the_name_of_the_site_goes_from_either_end():
    pages = ["Wheel", "Roof", "Stones — grinding", "Door"]
    assert without_site([f"{page} — Halden 4.2 manual" for page in pages]) == pages
    assert without_site([f"Halden | {page}" for page in pages]) == pages
    assert without_site([f"Halden :: {page} - Manual" for page in pages]) == pages
    assert without_site(["Wheel - oak", "Roof - oak", "Stones", "Door", "Yard"]) == ["Wheel - oak", "Roof - oak", "Stones", "Door", "Yard"]
    assert without_site([*(f"{page} \u2013 Halden" for page in pages), "Halden"]) == [*pages, "Halden"]
    assert without_site(["Self-made - Halden"] * 4) == ["Self-made"] * 4
    assert without_site([f"Works : {page}" for page in pages]) == pages
    assert without_site(["Wheel (oak)", "Roof (oak)", "Stones", "Door", "Yard"])[:2] == ["Wheel (oak)", "Roof (oak)"]


def test_the_name_of_the_site_is_what_the_files_say_where_their_headings_do_not(tmp_path: Path):
    for name in ("Wheel", "Roof", "Stones", "Door"):
        (tmp_path / f"{name}.html").write_text(f"<title>{name} (Mill API)</title><h1>Class {name}</h1><p>It is {name}.")
    (tmp_path / "index.html").write_text("<title>Index (Mill API)</title><p>All that there is in the mill.")
    assert {page.title for page in read_folder(tmp_path).pages} == {"Class Wheel", "Class Roof", "Class Stones", "Class Door", "Index"}


def test_titles_that_several_pages_share_say_their_folder_or_file():
    assert tell_apart(["Setup", "Setup", "Use"], ["linux/setup.md", "mac/setup.md", "use.md"]) == ["Setup (linux)", "Setup (mac)", "Use"]
    assert tell_apart(["Abstract", "abstract"], ["pep-0001.rst", "pep-0002.rst"]) == ["Abstract (pep-0001)", "abstract (pep-0002)"]
    assert tell_apart(["Setup"] * 3, ["a/x/s.md", "b/x/s.md", "b/y/s.md"]) == ["Setup (a/x)", "Setup (b/x)", "Setup (b/y)"]
    listings = [f"api/src/{name}.html" for name in ("a/Mill", "a/Wheel", "b/Mill")]
    assert tell_apart(["Listing"] * 3, listings) == ["Listing (a/Mill)", "Listing (a/Wheel)", "Listing (b/Mill)"]
    assert tell_apart(["Notes", "Notes"], ["doc/mill/n.md", "doc/mill/n.txt"]) == ["Notes (n.md)", "Notes (n.txt)"]
    assert tell_apart(["Notes", "Notes"], ["n.md", "x/n.md"]) == ["Notes (n)", "Notes (x/n)"]
    assert tell_apart(["Notes", "Notes"], ["notes.md", "notes.txt"]) == ["Notes (notes.md)", "Notes (notes.txt)"]
    assert tell_apart(["a", "a", "a (b)"], ["b/1.md", "c/1.md", "d.md"]) == ["a (b/1.md)", "a (c)", "a (b)"]


def test_a_book_names_the_chapters_that_it_lists(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "SUMMARY.md").write_text("# Summary\n\n- [On wheels](ch01-00-wheels.md)\n  - [Oak](ch01-01-oak.md#top)\n")
    (tmp_path / "src" / "ch01-00-wheels.md").write_text("## Turning\n\ntext\n\n## Summary\n\ntext")
    (tmp_path / "src" / "ch01-01-oak.md").write_text("# The oak\n\ntext")
    titles = {page.id: page.title for page in read_folder(tmp_path).pages}
    assert titles == {"src/summary": "Summary", "src/ch01-00-wheels": "On wheels", "src/ch01-01-oak": "The oak"}


NAMES = st.text("ab ", min_size=1, max_size=3)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=8, unique_by=lambda item: item[1]))
def test_no_two_pages_are_called_the_same(items):
    titles, places = [title for title, _ in items], [f"{place}.md" for _, place in items]
    told = tell_apart(titles, places)
    assert len({name.casefold() for name in told}) == len(told)
    assert all(name.startswith(title) for name, title in zip(told, titles, strict=True))


def test_headings_move_down_where_the_first_level_is_not_the_titles():
    assert demote_headings("mill", "# Wheel\n\n## Oak\n\n# Roof") == "## Wheel\n\n### Oak\n\n## Roof"
    assert demote_headings("The mill", "# The  Mill\n\n## Wheel") == "# The  Mill\n\n## Wheel"
    assert demote_headings("Halden mill", "# Wheel\n\n```\n# code\n```") == "## Wheel\n\n```\n# code\n```"
    assert demote_headings("mill", "## Wheel") == "## Wheel"


def test_what_most_pages_repeat_goes_and_is_reported(tmp_path: Path):
    for number in range(9):
        notice = "<p>Write to the miller.</p><p>Ask at the gate.</p>"
        text = f"<p>Sack {number} weighs {number} stones.</p><h2>See also</h2><p>The yard's list.</p><pre>make</pre>"
        last = "<h2>Price</h2><p>Equal.</p>" if number < 3 else "<h2>Bare</h2><p>The yard's list.</p>"
        (tmp_path / f"{number}.html").write_text(f"<h1>Page {number}</h1>{notice}{text}{last}")
    pages, _, dropped = read_folder(tmp_path)
    assert pages[0].content == "# Page 0\n\nSack 0 weighs 0 stones.\n\n## See also\n\n```\nmake\n```\n\n## Price\n\nEqual."
    assert pages[4].content.endswith("```\nmake\n```"), "a heading over nothing else goes as well"
    assert {(item.kind, item.text, item.pages) for item in dropped} == {
        ("repeated", "Write to the miller.", 9), ("repeated", "Ask at the gate.", 9), ("repeated", "The yard's list.", 9),
    }  # fmt: skip
    assert {page.metadata["path"] for page in pages} == {f"{number}.html" for number in range(9)}


def test_a_block_is_the_same_in_any_spacing():
    contents = [f"Sack {n}.\n\nAsk{' ' * (n + 1)}at the gate." for n in range(9)]
    left, dropped = drop_repeated(contents, [f"{n}.html" for n in range(9)])
    assert left == [f"Sack {n}." for n in range(9)] and sum(dropped.values()) == 9


@pytest.mark.parametrize("suffix", ["md", "txt", "docx"])
def test_a_clause_that_contracts_have_in_common_stays_in_each(suffix: str):
    contents = [f"# Contract of {n}\n\n## Salary\n\n{n}.\n\n## Notice period\n\nThree months to the end of a quarter." for n in range(10)]
    assert drop_repeated(contents, [f"{n}.{suffix}" for n in range(10)]) == (contents, {})


def test_facts_that_pages_share_stay():
    facts = [
        "- All Implemented Interfaces: `Rule`",
        "| a | b |",
        "Returns: a new statement.",
        "Apply the filter:",
        "1. Open it.",
    ]
    contents = [f"# A\n\nPage {n} says something.\n\n" + "\n\n".join(facts) for n in range(9)]
    assert drop_repeated(contents, [f"{n}.html" for n in range(9)])[0] == contents
    half = [f"Page {n}.\n\n{'Part of the stable interface.' if n < 6 else 'Not part of it.'}" for n in range(10)]
    assert drop_repeated(half, [f"{n}.html" for n in range(10)])[0] == half


def test_a_page_that_only_repeats_keeps_its_text_and_few_pages_repeat_nothing():
    contents = ["# A\n\nThe same."] * 9
    assert drop_repeated(contents, [f"{n}.html" for n in range(9)])[0] == contents
    few = [f"Other {n}.\n\nThe same." for n in range(7)]
    assert drop_repeated(few, [f"{n}.html" for n in range(7)])[0] == few


@given(st.lists(st.sampled_from(["# a", "text", "", "```", "~~~", "    ```", "more"])))
def test_blocks_hold_every_line_with_text_in_order(lines):
    blocks = list(split_blocks("\n".join(lines)))
    assert [line for block, _ in blocks for line in block.split("\n") if line.strip()] == [line for line in lines if line.strip()]
