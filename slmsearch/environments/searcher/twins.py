"""Twins of questions: the same question with another right answer, known by construction.

    withdrawn   all texts that state the answer are hidden: "I don't know" is right
    renamed     the question asks about a name that occurs nowhere, and that resembles the real one: "I don't know" is right
    replaced    all texts that state the answer state another one of its kind: that one is right

A policy that reads is right on a question and on its twins; one that remembers is not. Twins are views of one index version
(`corpus/view.py`): they need no index of their own. An answer is stated by the gold sections, and by the sections that hold it as whole
words, on gold pages and on pages that the index finds for question and answer.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Literal

from slmsearch.corpus.pages import Section
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question, holds_answer
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.answer_sources import find_support
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.made_questions.make import CORRECTION

Twin = Literal["withdrawn", "renamed", "replaced"]
UNKNOWABLE = ("withdrawn", "renamed")
"""Kinds of twins whose right answer is "I don't know"."""
TWINS_VERSION = 3
"""Part of the key of everything played with twins; raise it when the same question gets other twins."""
BATCH = 1024
"""Number of questions whose searches are made together."""
MIN_NAME = 4
"""Letters of the shortest word of a name that is changed."""
TRIES = 20
"""Number of changed names tried until one occurs nowhere in the corpus."""
_SOURCE = re.compile(r'^According to "[^"]*": ')
"""Pattern of the page's name in a made question; if the page's name occurs only there, the rest of the question is still stated."""
_WORD = re.compile(r"[^\W\d_]+")


def make_twins(questions: Sequence[Question], twin: str, toolbox: Toolbox) -> list[Question]:
    """Make the twins of a kind, in the order of their questions; questions without one are left out.

    A question has no twin if its right answer is "I don't know", or if it names no gold section (no gold page for `renamed`), and no
    `replaced` twin if its gold sections do not hold the answer.
    """
    known = [question for question in questions if question.answer != UNKNOWN_ANSWER]
    if twin == "renamed":
        return _renamed([question for question in known if question.page_ids], toolbox)
    known = [question for question in known if question.section_ids]
    if twin == "replaced":
        return _replaced(known, toolbox)
    stating = find_stating(known, toolbox)
    return [_as_twin(question, twin, UNKNOWN_ANSWER, View(hidden)) for question, hidden in zip(known, stating, strict=True)]


def mix_twins(questions: Sequence[Question], frac: float, toolbox: Toolbox, part: slice = slice(None)) -> list[Question]:
    """Replace about `frac` of the questions by twins whose right answer is "I don't know", half of each kind; return those of a part.

    They are the same in every run; a question without a twin, and a correction, stays unchanged.
    """
    chance = random.Random("twins")
    chosen: dict[str, list[Question]] = {"withdrawn": [], "renamed": []}
    drawn = [(question, chance.random()) for question in questions][part]
    for question, draw in drawn:
        if draw < frac and question.kind != CORRECTION:
            chosen["withdrawn" if draw < frac / 2 else "renamed"].append(question)
    twins = {base_id(made.id): made for twin, some in chosen.items() for made in make_twins(some, twin, toolbox)}
    return [twins.get(question.id, question) for question, _ in drawn]


def base_id(twin_id: str) -> str:
    """Return the id of the question that a twin was made from."""
    return twin_id.rpartition("/")[0]


def find_stating(questions: Sequence[Question], toolbox: Toolbox) -> list[tuple[str, ...]]:
    """Find the sections that state the answer of each question; the questions name gold sections."""
    found: list[tuple[str, ...]] = []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        queries = [text for question in batch for text in (question.question, f"{question.question} {question.answer}")]
        hidden = [question.view.hidden if question.view else () for question in batch for _ in (0, 1)]
        hits = toolbox.index.search(queries, 2 * toolbox.top_k, **({"hidden": hidden} if any(hidden) else {}))
        for i, question in enumerate(batch):
            pages = dict.fromkeys((*question.page_ids, *(hit.page_id for hit in (*hits[2 * i], *hits[2 * i + 1]))))
            sections = (section for page_id in pages for section in toolbox.library.sections(page_id))
            holding = (section.id for section in sections if any(_states(section, answer, question) for answer in question.answers))
            # Of several hops the last states the answer; the others only lead there.
            found.append(tuple(dict.fromkeys((question.section_ids[-1], *holding))))
    return found


def _states(section: Section, answer: str, question: Question) -> bool:
    """Return whether a section states an answer: its words, or on a gold page the same number, date or amount in other ones."""
    if holds_answer(section.text, answer):
        return True
    return section.page_id in question.page_ids and any(map(str.isdigit, answer)) and bool(find_support(section.text, answer))


def _as_twin(question: Question, twin: str, answer: str, view: View | None, text: str = "") -> Question:
    gold = () if twin == "renamed" else tuple(name for name in question.section_ids if view is None or name not in view.hidden)
    asked = replace(question, id=f"{question.id}/{twin}", question=text or question.question, kind=twin, view=view)
    return replace(asked, answer=answer, aliases=(), section_ids=gold)


def _replaced(questions: Sequence[Question], toolbox: Toolbox) -> list[Question]:
    """Replace each answer in its gold section by another one of its kind: of its form, and of a similarly worded question."""
    pool: defaultdict[tuple[object, ...], list[tuple[Question, frozenset[str]]]] = defaultdict(list)
    for question in questions:
        pool[_form(question)].append((question, _wording(question)))
    twins = []
    for question in questions:
        section = toolbox.library.section(question.section_ids[-1])
        if section is None or not holds_answer(section.text, question.answer):
            continue
        known = " ".join([question.question, *(part.text for part in toolbox.library.sections(section.page_id))])
        words = _wording(question)
        ranked = sorted(
            ((len(words & its) / len(words | its), other.answer) for other, its in pool[_form(question)]), key=itemgetter(0), reverse=True
        )
        for _, alike in groupby(ranked, itemgetter(0)):
            others = [answer for answer in dict.fromkeys(answer for _, answer in alike) if not holds_answer(known, answer)]
            if others:
                new = random.Random(f"replaced {question.id}").choice(others)
                view = View(old=question.answers, new=new)
                (shown,) = view.show([section])
                # Marks and line ends may stand between the words of an answer.
                if holds_answer(shown.text, new) and not any(holds_answer(shown.text, answer) for answer in question.answers):
                    twins.append(_as_twin(question, "replaced", new, view))
                break
    return twins


def _wording(question: Question) -> frozenset[str]:
    """Return the words of a question that are not names."""
    first, *rest = _WORD.findall(question.question) or [""]
    return frozenset({first.casefold(), *(word for word in rest if word[0].islower())})


def _form(question: Question) -> tuple[object, ...]:
    """Describe an answer's form: number of words, digits or capitals."""
    words = question.answer.split()
    digits = tuple(len(word) if word.isdigit() else 0 for word in words)
    return len(words), digits, tuple(word[:1].isupper() for word in words)


def _renamed(questions: Sequence[Question], toolbox: Toolbox) -> list[Question]:
    """Change a name of the first gold page where the question holds it."""
    counts = Counter(word.casefold() for page in toolbox.library.pages() for word in _WORD.findall(f"{page.title} {page.content}"))
    parts = sorted({word for page in toolbox.library.pages() for word in _names(page.title)})
    twins = []
    for question in questions:
        page = toolbox.library.page(question.page_ids[0])
        asked = _SOURCE.sub("", question.question)
        named = [word for word in _names(page.title if page else "") if re.search(rf"\b{re.escape(word)}\b", asked)]
        # The rarest word of the title tells it from others.
        name = min(named, key=lambda word: (counts[word.casefold()], word), default="")
        if name and (new := _invent(name, parts, counts, random.Random(f"renamed {question.id}"))):
            borne = re.compile(rf"\b{re.escape(name)}\b")
            twin = _as_twin(question, "renamed", UNKNOWN_ANSWER, None, borne.sub(new, question.question))
            twins.append(replace(twin, entities=tuple(borne.sub(new, entity) for entity in question.entities)))
    return twins


def _names(title: str) -> Iterable[str]:
    return (word for word in _WORD.findall(title) if len(word) >= MIN_NAME and word[0].isupper())


def _invent(name: str, others: Sequence[str], counts: Mapping[str, int], chance: random.Random) -> str | None:
    """Join the beginning of a name with the end of another; None if all attempts occur in the corpus."""
    for _ in range(TRIES):
        other = chance.choice(others)
        new = name[: (len(name) + 1) // 2] + other[len(other) // 2 :].lower()
        if new.casefold() not in counts:
            return new
    return None
