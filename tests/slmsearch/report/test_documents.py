"""What is said of documents that were read."""

from pathlib import Path

from slmsearch.corpus.documents.folder import Reading, read_folder
from slmsearch.corpus.documents.skipped import Dropped
from slmsearch.corpus.pages import Page
from slmsearch.report.documents import look_at_pages, render_pages


def test_suspicious_pages_come_first_with_what_looks_wrong():
    sentence = "The miller of Halden keeps the key of the sluice gate."
    pages = [
        Page("good", "Good", "# Good\n\n## One\n\nThe wheel is of oak and six metres high.\n\n### Deeper\n\nIt was built in spring."),
        Page("long", "Long", " ".join(f"word{n}" for n in range(500))),
        Page("empty", "Empty", "# Empty\n\nText of its own that is nowhere else.\n\n## None\n\n## Some\n\nText."),
        Page("one", "One", f"# One\n\n## A\n\n{sentence}\n\n## B\n\nb"),
        Page("two", "Two", f"# Two\n\n## A\n\n{sentence}\n\n## B\n\nb"),
        *(Page(f"s{n}", f"Setup (s{n})", f"# Setup\n\n## A\n\nStep number {n}.\n\n## B\n\nb") for n in range(4)),
    ]
    seen = {page.page.id: page.suspicions for page in look_at_pages(pages)}
    assert list(seen)[-1] == "good" and seen["good"] == ()
    assert seen["long"] == ("one section only",)
    assert seen["empty"] == ("1 empty section",)
    assert seen["one"] == seen["two"] == ("73% of it on other pages, too",)
    assert seen["s0"] == ("title shared by 4 pages",)


def test_a_page_is_a_row_whose_sections_share_no_line(tmp_path: Path):
    (tmp_path / "mill.md").write_text("# The mill\n\nLead.\n\n## Wheel\n\nOak.\n\n### Axle\n\nIron.\n")
    (row,) = [page.row() for page in look_at_pages(read_folder(tmp_path).pages, [Dropped("mill.md", "navigation", "Home")])]
    assert row == {
        "id": "mill", "title": "The mill", "path": "mill.md", "metadata": {}, "words": 7, "suspicions": [],
        "dropped": [{"kind": "navigation", "text": "Home"}],
        "sections": [
            {"id": "mill:the_mill", "heading": "The mill", "text": "Lead."},
            {"id": "mill:wheel", "heading": "Wheel", "text": "Oak."},
            {"id": "mill:axle", "heading": "Axle", "text": "Iron."},
        ],
    }  # fmt: skip


def test_the_table_names_what_was_dropped_by_kind():
    dropped = [*(Dropped(f"{n}.html", "navigation", "Home | Up") for n in range(3)), Dropped("", "repeated", "All rights\nreserved.", 40)]
    text = render_pages(Reading([], [], dropped), look_at_pages([Page("a", "A" * 90, "# A\n\ntext"), Page("b", "B", "# B\n\ntext")]), 1)
    assert "dropped repeated, 40 times: All rights reserved. (40x)\ndropped navigation, 3 times: Home | Up (3x)\n" in text
    assert "... and 1 more, 0 of them suspicious; --json has all" in text
    assert text.endswith("2 pages, 2 sections, 4 words; 0 pages look wrong") and f"{'A' * 67}..." in text


def test_no_more_than_all_of_a_page_is_on_others() -> None:
    content = "# A heading whose mark is no word of the nine\n\n## Another heading whose mark is no word of them\n"
    seen = look_at_pages([Page(name, name, content) for name in ("one", "two")])
    assert all("100% of it on other pages, too" in page.suspicions for page in seen)
