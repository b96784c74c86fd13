"""A folder of small pages that is edited at random, and remembers what each of its files ever said.

Each section of a page ends with a mark, a word that tells which edit wrote it; so what an answer quotes tells which edit it has seen. The
words are none that a question with a gap is made of: an edit loses no fact.
"""

import itertools
import json
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from slmsearch.config import WorldConfig
from slmsearch.corpus.questions import Question
from slmsearch.corpus.world import generate_world

LETTERS = "bcdfghjklm"
MARK = re.compile(rf"The shelf is q([{LETTERS}]+)\.")
FOLDERS = ("", "", "", "", "", "a/", "b/deep/", "c d/")
"""Folders of new names. Those are numbers: tiny-searcher copies no others from a list of pages."""
KINDS = {"edit": 70, "move": 12, "delete": 9, "create": 9}
"""Kind of an edit -> share of all, in percent."""


def read_mark(text: str) -> int | None:
    """Return the number of the edit that wrote a page or a section; None if it has no mark, or several."""
    found = set(MARK.findall(text))
    return int("".join(str(LETTERS.index(letter)) for letter in found.pop())) if len(found) == 1 else None


class EditedFolder:
    """The files, and by path the edits that wrote and removed them; a journal beside the folder lets another process go on."""

    def __init__(self, home: Path, pages: int, seed: int) -> None:
        """Write the folder, or take up one that was edited before."""
        self.docs, self._journal, self._seed = home / "docs", home / "edits.jsonl", seed
        world = generate_world(WorldConfig(pages=pages, seed=5))
        self._texts = {page.id: page.content.rstrip() for page in world.pages}
        about = [one for one in world.questions if one.kind == "one_hop" and len(one.page_ids) == 1]
        self.questions: dict[str, Question] = {one.page_ids[0]: one for one in about}
        """A question about each page of the world that has one."""
        self.history: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
        """Path -> time and number of each edit that wrote it; None removed it. Written are noted before, removed afterwards."""
        self.done, self.kinds, self._lock = 0, dict.fromkeys(KINDS, 0), threading.Lock()
        self._page_of: dict[str, str] = {}
        """Path -> page of the world that the file tells of, or told of."""
        self.recent: list[str] = []
        """Paths that were touched last."""
        if self._journal.is_file():
            for row in map(json.loads, self._journal.read_text().splitlines()):
                self._remember(*row)
        else:
            for page in world.pages:
                self._write(0, "", f"{page.id}.md", page.id, 0)
        present = {path.relative_to(self.docs).as_posix(): read_mark(path.read_text()) for path in self.docs.rglob("*.md")}
        self.present = {path: mark for path, mark in present.items() if mark is not None}

    def step(self) -> None:
        """Do the next edit; which one depends on seed, number and files alone."""
        number = self.done + 1
        chance = random.Random(f"{self._seed} {number}")
        absent = sorted(self._texts.keys() - {self._page_of[path] for path in self.present})
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        if (kind == "create" and not absent) or (kind == "delete" and len(absent) > len(self._texts) // 5):
            kind = "edit"
        path = chance.choice(sorted(self.present))
        if kind == "edit":
            self._write(number, kind, path, self._page_of[path], number, in_place=chance.random() < 0.7)
        elif kind == "create":
            page = chance.choice(absent)
            former = [old for old, told in self._page_of.items() if told == page]
            self._write(number, kind, chance.choice(former) if chance.random() < 0.5 else self._new_name(chance), page, number)
        else:
            mark, page = self.present.pop(path), self._page_of[path]
            if kind == "move":
                target = self._new_name(chance)
                self._note(0, "", target, mark, page)
                (self.docs / target).parent.mkdir(parents=True, exist_ok=True)
                (self.docs / path).rename(self.docs / target)
                self.present[target] = mark
            else:
                (self.docs / path).unlink()
            self._note(number, kind, path, None, page)
        self.done = number

    def _new_name(self, chance: random.Random) -> str:
        names = (f"{chance.choice(FOLDERS)}{chance.randrange(1000, 10_000)}.md" for _ in itertools.count())
        return next(name for name in names if name not in self._page_of)

    def _write(self, number: int, kind: str, path: str, page: str, mark: int, in_place: bool = True) -> None:
        self._note(number, kind, path, mark, page)
        word = "".join(LETTERS[int(digit)] for digit in str(mark))
        text = f"{self._texts[page]}\n".replace("\n\n## ", f" The shelf is q{word}.\n\n## ").rstrip() + f" The shelf is q{word}.\n"
        file = self.docs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        target = file if in_place else file.with_name(f".{file.name}.new")
        target.write_text(text)
        target.replace(file)
        if number:
            self.present[path] = mark

    def _note(self, number: int, kind: str, path: str, mark: int | None, page: str) -> None:
        row = (number, kind, time.time(), path, mark, page)
        with self._journal.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._remember(*row)

    def _remember(self, number: int, kind: str, when: float, path: str, mark: int | None, page: str) -> None:
        with self._lock:
            self._page_of[path] = page
            self.history[path].append((when, mark))
            self.done = max(self.done, number)
            if kind:
                self.kinds[kind] += 1
                self.recent = [*self.recent[-40:], path]

    def find_fault(self, path: str, mark: int | None, began: float, notice_s: float, outages: Sequence[Sequence[float]]) -> str:
        """Return what is wrong with a quotation in the answer to a question that began at a time; empty if nothing.

        A file that went and came again may have been missed within `notice_s`, or in an outage.
        """
        with self._lock:
            history = self.history.get(path, [])[:]
        written = [place for place, (_, number) in enumerate(history) if number == mark]
        if mark is None or not written:
            return f"{path} never said that ({mark})"
        later = history[written[-1] + 1 :]
        place = next((place for place, (_, number) in enumerate(later) if number is None), len(later))
        removed, again = (when for when, _ in [*later, (began, None), (began, None)][place : place + 2])
        missed = again - removed < notice_s or (again < began and any(down < again and removed < up for down, up in outages))
        return "" if missed else f"{path} ({mark}) was removed {began - removed:.1f} s before, for {again - removed:.1f} s"

    def choose(self, chance: random.Random) -> tuple[str, str]:
        """Return the path and a question about a page, more often of one that was touched lately."""
        while True:
            with self._lock:
                path = chance.choice(chance.choices((self.recent, [*self.present], [*self.history]), (50, 40, 10))[0] or [*self.history])
            if (question := self.questions.get(self._page_of[path])) is not None:
                return path, question.question


def read_marks(lines: Iterable[str]) -> dict[str, int | None]:
    """Return the marks of a corpus' pages by path, from its rows."""
    rows = map(json.loads, lines)
    return {row["metadata"]["path"]: read_mark(row["content"]) for row in rows}
