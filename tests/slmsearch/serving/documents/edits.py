"""Edits of a folder of a generated world: those that nobody means, and those that people make every day."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from slmsearch.corpus.questions import Question

Edit = Callable[[Path, Sequence[Question], random.Random], None]
BOILERPLATE = (
    "Welcome to the portal of {name}. This site uses cookies to tell you about mayors, prizes, rivers, founders, inhabitants and flags; by"
    " reading on you accept all of them. Sign in, subscribe, or ask {name} for a quotation."
)


def _files(folder: Path, chance: random.Random, count: int) -> list[Path]:
    return chance.sample(sorted(folder.glob("*.md")), count)


def _rewrite(files: Sequence[Path], change: Callable[[str], str]) -> None:
    for file in files:
        file.write_text(change(file.read_text()))


# Those that nobody means


def empty_files(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(_files(folder, chance, chance.choice((1, 6))), lambda text: "")


def cut_off(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    long = [file for file in sorted(folder.glob("*.md")) if len(file.read_text().split()) >= 60]
    _rewrite(chance.sample(long, 3), lambda text: text[: len(text) // 8])


def save_in_a_wrong_encoding(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    """An editor turned quotation marks, and read its own UTF-8 as Windows-1252."""
    turned = {"is": "is “the”", " has ": " has “its” "}

    def spoil(text: str) -> str:
        for old, new in turned.items():
            text = text.replace(old, new)
        return text.encode("utf-8").decode("cp1252", "replace")

    _rewrite(_files(folder, chance, chance.choice((2, 30))), spoil)


def swap_facts(folder: Path, questions: Sequence[Question], chance: random.Random) -> None:
    """In a tenth of the pages the answers are those of other pages."""
    asked = [question for question in questions if (folder / f"{question.page_ids[0]}.md").exists()]
    pages = chance.sample(sorted({question.page_ids[0] for question in asked}), max(4, len(list(folder.glob("*.md"))) // 10))
    for page in pages:
        file = folder / f"{page}.md"
        for question in (one for one in asked if one.page_ids[0] == page):
            other = chance.choice([one.answer for one in asked if one.answer != question.answer])
            file.write_text(re.sub(rf"(?<!\w){re.escape(question.answer)}(?!\w)", other, file.read_text()))


def drop_the_sections(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    """A converter kept titles and first sentences alone."""
    _rewrite(_files(folder, chance, len(list(folder.glob("*.md"))) // 2), lambda text: text.partition("\n## ")[0])


def put_boilerplate_on_all_pages(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    """Each page has it with its own name, so that no two are equal, and instead of the beginnings of its sentences."""
    for file in folder.glob("*.md"):
        name = file.read_text().partition("\n")[0].lstrip("# ")
        told = BOILERPLATE.format(name=name)
        file.write_text(re.sub(r"\n\n(?=[A-Z])", f"\n\n{told} {told} {told}\n\n", file.read_text()).replace(f"{name} ", "It "))


BAD: Sequence[Edit] = (
    empty_files,
    cut_off,
    save_in_a_wrong_encoding,
    swap_facts,
    drop_the_sections,
    put_boilerplate_on_all_pages,
)

# Those that people make every day


def mend_a_word(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(_files(folder, chance, 1), lambda text: text.replace(" the ", " the very ", 1))


def bring_a_fact_up_to_date(folder: Path, questions: Sequence[Question], chance: random.Random) -> None:
    number = chance.choice([one for one in questions if one.answer.isdecimal()])
    file = folder / f"{number.page_ids[0]}.md"
    file.write_text(file.read_text().replace(number.answer, str(int(number.answer) + 7)))


def add_a_section(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(_files(folder, chance, 2), lambda text: f"{text}\n## News\n\nIn spring the old bridge was painted. Nobody knows by whom.\n")


def add_a_page(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    number = chance.randrange(10_000, 99_999)
    (folder / f"{number}.md").write_text("# Quarry of Ostrel\n\nThe Quarry of Ostrel is a hole.\n\n## History\n\nIt was dug in 1702.\n")


def delete_a_page(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    for file in _files(folder, chance, chance.choice((1, 3))):
        file.unlink()


def move_pages(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    (folder / "old").mkdir(exist_ok=True)
    for file in _files(folder, chance, 4):
        file.rename(folder / "old" / file.name)


def put_sections_in_another_order(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    def shuffle(text: str) -> str:
        lead, *sections = text.split("\n## ")
        chance.shuffle(sections)
        return "\n## ".join([lead, *(section.rstrip("\n") + "\n" for section in sections)])

    _rewrite(_files(folder, chance, 10), shuffle)


def format_all_pages(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(sorted(folder.glob("*.md")), lambda text: text.replace("\n\n", "\n\n\n").replace(". ", ".  "))


def put_a_notice_on_all_pages(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(sorted(folder.glob("*.md")), lambda text: f"{text}\n\nWritten by volunteers. Errors are to be told to the office.\n")


def remove_a_section(folder: Path, _: Sequence[Question], chance: random.Random) -> None:
    _rewrite(_files(folder, chance, 1), lambda text: text.rpartition("\n## ")[0] or text)


HARMLESS: Sequence[Edit] = (
    mend_a_word,
    bring_a_fact_up_to_date,
    add_a_section,
    add_a_page,
    delete_a_page,
    move_pages,
    put_sections_in_another_order,
    format_all_pages,
    put_a_notice_on_all_pages,
    remove_a_section,
)
