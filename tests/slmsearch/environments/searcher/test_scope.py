"""The pages that a question may use, and what a client may write of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.scope import MAX_CHARS, Scope, read_date, read_scope

REPORT = Page(
    "report", "Report", "# Report\n\n## Sales\n\nTen.\n", {"path": "2025/q1/report.md", "date": "2025-03-31", "tags": ["Sales", "board"]}
)
LETTER = Page("letter", "Letter", "# Letter\n\nDear Ada.\n", {"path": "2025-old/letter.md", "date": "May 3, 2024", "tags": "private"})
NOTE = Page("note", "Note", "# Note\n\nNothing.\n")
CONTRACT = Page("contract", "Contract", "# Contract\n\nSigned.\n", {"path": "Vertr\u00e4ge/c.md", "tags": "draft, board"})
PAGES = (REPORT, LETTER, NOTE, CONTRACT)


@pytest.mark.parametrize(
    ("given_", "passing"),
    [
        ({}, ["report", "letter", "note", "contract"]),
        ({"folder": "2025"}, ["report"]),
        ({"folder": "/2025/q1/"}, ["report"]),
        ({"folder": "2025/q"}, []),
        ({"folder": "./2025"}, ["report"]),
        ({"folder": "."}, ["report", "letter", "note", "contract"]),
        ({"folder": "Vertra\u0308ge"}, ["contract"]),
        ({"tag": "draft"}, ["contract"]),
        ({"tag": "Board"}, ["report", "contract"]),
        ({"file": "2025-old/letter.md"}, ["letter"]),
        ({"file": "note"}, ["note"]),
        ({"tag": "SALES"}, ["report"]),
        ({"tag": "private"}, ["letter"]),
        ({"since": "2025"}, ["report"]),
        ({"since": "2024-05-03", "until": "2024"}, ["letter"]),
        ({"until": "2025-03-30"}, ["letter"]),
        ({"until": "2025-03"}, ["report", "letter"]),
        ({"tag": "board", "until": "2024"}, []),
    ],
)
def test_a_page_passes_by_all_restrictions(given_: dict[str, object], passing: list[str]) -> None:
    scope = read_scope(given_)
    assert [page.id for page in PAGES if scope.admits(page)] == passing
    hidden = set(scope.hidden(Library(PAGES)))
    assert {section.id for page in PAGES for section in Library(PAGES).sections(page.id) if page.id not in passing} == hidden


@pytest.mark.parametrize(
    ("said", "date"),
    [("2025-03-31", "2025-03-31"), ("2025-03-31T10:00:00Z", "2025-03-31"), ("May 2024", "2024-05"), ("31 May 2024", "2024-05-31"),
     (2024, "2024"), ("2025/03/31", "2025-03-31"), ("20250331", "2025-03-31"), ("2025-3-31", "2025-03-31"), 
     ("31.05.2024", "2024-05-31"), ("05.03.2024", "2024-03-05"), ("5. 3. 2024 10:30", "2024-03-05"), ("03.25.2024", "2024-03-25"),
     ("05/03/2024", ""), ("31.02.2024", ""), ("5. M\u00e4rz 2024", "2024-03-05"),
     ("Dienstag, 5. M\u00e4rz 2024 um 10:30 Uhr", "2024-03-05"), ("Dez. 2024", "2024-12"),
     ("1er ao\u00fbt 2024", "2024-08-01"), ("juillet 2024", "2024-07"), ("5 de enero de 2024", "2024-01-05"),
     ("1\u00ba mag. 2024", "2024-05-01"), ("Fri, 05 Mar 2021 10:00:00 GMT", "2021-03-05"), ("5 mills 2024", ""),
     ("2025-13-45", ""), ("soon", ""), (None, ""), ("", ""), ({"a": 1}, "")],
)  # fmt: skip
def test_dates_of_pages_are_read(said: object, date: str) -> None:
    assert read_date(said) == date


def test_other_fields_of_a_request_are_ignored_and_bad_ones_named() -> None:
    assert read_scope({"session_id": "s", "folder": None, "tag": " x "}) == Scope(tag="x")
    assert read_scope({"since": "2025-03", "until": "2025"}) == Scope(since="2025-03", until="2025")
    for given_, told in (({"since": "yesterday"}, "since: 'yesterday' is no date"), 
                         ({"folder": 5}, "folder: it is a text"),
                         ({"since": "2025-13"}, "since: '2025-13' is no date"),
                         ({"until": "\uff12\uff10\uff12\uff12"}, "until: .* is no date"),
                         ({"since": "2025-03", "until": "2025-02"}, "until: 2025-02 is before 2025-03"),
                         ({"tag": "x" * (MAX_CHARS + 1)}, "tag: it is a text of at most")):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            read_scope(given_)


@given(st.dictionaries(st.sampled_from(["folder", "file", "tag", "since", "until", "other"]), st.text() | st.integers() | st.none()),
       st.dictionaries(st.sampled_from(["path", "date", "tags"]), st.text() | st.integers() | st.none() | st.lists(st.text())))  # fmt: skip
def test_any_request_is_read_or_refused_and_any_page_passes_or_not(given_: dict[str, object], metadata: dict[str, object]) -> None:
    try:
        scope = read_scope(given_)
    except ValueError as error:
        assert str(error).partition(":")[0] in given_
        return
    assert scope.admits(Page("p", "P", "", metadata)) in (True, False)
