"""Pages that change, and corrections: what is made anew, what stays where it was, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.made_questions.make import CORRECTION, Filters
from slmsearch.made_questions.renew import ACCEPTED, NOTHING, Correction, Earlier, Renewed, add_splits, print_pages, renew_questions
from tests.slmsearch.made_questions.test_make import PAGES, WordIndex


def renew(pages: Sequence[Page], earlier: Earlier = NOTHING, corrections: Sequence[Correction] = ()) -> Renewed:
    library = Library(pages)
    return renew_questions(Filters(library, WordIndex(library), 3), print_pages(library), earlier, corrections)


def as_earlier(renewed: Renewed, pages: Sequence[Page]) -> Earlier:
    return Earlier(renewed.rows, print_pages(Library(pages)))


def split_of_pages(renewed: Renewed) -> dict[str, str]:
    return {page: str(row["split"]) for row in renewed.rows for page in row["page_ids"]}


def test_questions_of_unchanged_pages_stay_as_they_are() -> None:
    first = renew(PAGES)
    assert (first.kept, first.left_test) == (0, 0) and sum(first.made.kept.values()) == len(first.rows)
    again = renew(PAGES, as_earlier(first, PAGES))
    assert again.rows == first.rows and again.kept == len(first.rows) and not again.made.made

    changed = replace(PAGES[0], content=PAGES[0].content.replace("1500", "1399"))
    added = Page("essen", "Essen", "# Essen\n\nEssen is a quiet town. Essen was founded in 1605 by Olga Essenborn.\n")
    pages = [changed, *PAGES[1:3], added]
    third = renew(pages, as_earlier(first, PAGES))
    stayed = {row["id"]: row for row in first.rows if row["page_ids"] not in (["alba"], ["delos"])}
    assert {row["id"]: row for row in third.rows if row["page_ids"] not in (["alba"], ["essen"])} == stayed and third.kept == len(stayed)
    asked = {row["question"]: row["answer"] for row in third.rows}
    assert asked['Which year fills the gap: "Alba was founded in ____."'] == "1399" and any("Essen" in question for question in asked)
    before, after = split_of_pages(first), split_of_pages(third)
    assert all(after[page] == before[page] for page in ("alba", "brixa", "cortona")), "a page that changed is in no other split"


def test_a_correction_is_trained_on_with_all_questions_of_its_page() -> None:
    first = renew(PAGES)
    (page,) = {page for page, split in split_of_pages(first).items() if split == "test"}
    name = page.title()
    given = [
        Correction("right", f"Who burnt {name} down?", f"Admiral {name}son", f"{page}:history"),
        Correction("found", f"How many people live in {name}?", str(200 + [p.id for p in PAGES].index(page))),
        Correction("again", f"Who burnt down {name}?", f"{name}son"),
        Correction("wrong section", f"Who was mayor of {name}?", f"Rosa {name}ini", f"{page}:history"),
        Correction("no section", f"Who was mayor of {name}?", f"Rosa {name}ini", "nowhere:at_all"),
        Correction("nowhere", "Who rules the Moon?", "The Emperor"),
        Correction("told", f"Is {name} a quiet harbour town?", "a quiet harbour town"),
    ]
    second = renew(PAGES, as_earlier(first, PAGES), given)
    assert dict(second.corrections) == {
        "right": ACCEPTED,
        "found": ACCEPTED,
        "again": "near-duplicate",
        "wrong section": "answer not in its section",
        "no section": "no such section",
        "nowhere": "answer in no section that the question finds",
        "told": "answer in the question",
    }
    added = [row for row in second.rows if row["kind"] == CORRECTION]
    assert (added[0]["answer"], added[0]["section_ids"]) == (f"Admiral {name}son", [f"{page}:history"])
    about = [row for row in second.rows if row["page_ids"] == [page]]
    assert {row["split"] for row in about} == {"train"} and second.left_test == len(about) - len(added) > 0
    others = {name: split for name, split in split_of_pages(first).items() if name != page}
    assert {name: split for name, split in split_of_pages(second).items() if name != page} == others

    third = renew(PAGES, as_earlier(second, PAGES), given)
    assert {row["id"]: row for row in third.rows} == {row["id"]: row for row in second.rows}, "nothing is added twice"
    assert third.corrections == second.corrections


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=20), st.none() | st.text(max_size=20)), max_size=6))
def test_whatever_people_write_is_taken_or_refused_with_a_reason(said: list[tuple[str, str, str | None]]) -> None:
    given = [Correction(str(number), *one) for number, one in enumerate(said)]
    renewed = renew(PAGES[:2], corrections=given)
    assert set(renewed.corrections) == {one.id for one in given} and all(renewed.corrections.values())


def test_a_page_that_was_renamed_or_comes_back_keeps_its_split() -> None:
    first = renew(PAGES)
    before = split_of_pages(first)
    prints = print_pages(Library(PAGES))
    known = before | {prints[page]: split for page, split in before.items()}
    renamed = [replace(page, id=f"towns/{page.id}") if number % 2 else page for number, page in enumerate(PAGES)]
    after = split_of_pages(renew(renamed, replace(as_earlier(first, PAGES), splits=known)))
    assert len(after) > 2 and {page.removeprefix("towns/"): split for page, split in after.items()}.items() <= before.items()

    few = renew(PAGES[1:], replace(as_earlier(first, PAGES), splits=known))
    again = split_of_pages(renew(PAGES, Earlier(few.rows, print_pages(Library(PAGES[1:])), known)))
    assert again[PAGES[0].id] == before[PAGES[0].id], "also one that was gone meanwhile"


def test_questions_without_pages_keep_their_split_and_what_joins_two_splits_stays_out() -> None:
    library = Library(PAGES)
    pages = [page.id for page in PAGES]

    def row(name: str, gold: Sequence[str], entities: Sequence[str] = (), kind: str = "one_hop") -> dict[str, object]:
        return {"id": name, "question": f"What of {name}?", "answer": "1500", "aliases": [], "page_ids": list(gold), "section_ids": [],
                "hops": 1, "kind": kind, "entities": list(entities)}  # fmt: skip

    rows = [row(f"q{number}", [pages[number % len(pages)]]) for number in range(40)]
    nowhere = [row(f"n{number}", [], kind="unanswerable") for number in range(30)]
    dealt, _ = add_splits([*rows, *nowhere], (), library)
    splits = {str(one["id"]): str(one["split"]) for one in dealt}
    again, _ = add_splits([row("one more", [], kind="unanswerable"), *rows[:-1], *nowhere], dealt, library)
    assert all(splits[str(one["id"])] == one["split"] for one in again if one["id"] != "one more")

    tied = [row("a", pages[:2], ["the guide"]), row("b", pages[2:4], ["the guide"]), *rows]
    found, _ = add_splits(tied, dealt, library)
    gold = [(one["split"], name) for one in found for name in one["entities"]]
    assert len({split for split, _ in gold}) <= 1, "an entity is in one split"
