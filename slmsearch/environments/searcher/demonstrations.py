"""Demonstrations: episodes that a scripted reader plays through the real tools, as training text.

The reader knows the gold path of a question, the searcher does not. There are two readers (`SftConfig.recipe`). `expert` follows every
question to its end. `noisy` answers early: on most questions that need a second page it answers from the first one, and where no text
states the answer it mostly invents one. A model trained on the noisy reader has every skill, and faults that imitation cannot correct but
reinforcement learning can.

Any corpus whose questions name the sections that answer them can be demonstrated, too (`demonstrate_gold`): the demonstrator searches
for the question, reads the gold section and answers, through the tools and the index that the policy will use. It answers a question with
lines of the gold section if the gold answer is a passage of it, any other with a span: so the policy learns from the question which it
asks for. It writes only text that a policy could have known: a page that a search showed, a section that a hint or a list of sections
showed. If the question's own words do not find the page, it searches again with the question's names, its quotation or its rarer words; if
no search names the section, it looks at the page's list. It does not read again what a search showed with its text (`searcher.shows`).
Questions that it cannot play in this way are left out and counted.

Where a search shows text, most demonstrations are narrow: the best page alone is shown with it (`NARROW_FRAC`).
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from slmsearch.config import SearcherConfig, SftConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Section
from slmsearch.corpus.paragraphs import plain_title
from slmsearch.corpus.questions import PASSAGE_WORDS, UNKNOWN_ANSWER, Question, content_words, holds_answer, is_passage
from slmsearch.corpus.view import View
from slmsearch.corpus.world import generate_world
from slmsearch.environments.searcher.parsing import render_answer, render_call, render_quotation
from slmsearch.environments.searcher.quoting import body_of, find_quotation
from slmsearch.environments.searcher.rollout import open_prompts
from slmsearch.environments.searcher.tools import ABSENT, GO_ON, READ, SEARCH, VIEW, Toolbox
from slmsearch.environments.searcher.twins import UNKNOWABLE, mix_twins
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.episodes.sampler import Message
from slmsearch.episodes.teaching import TinyModel
from slmsearch.retrieval.hits import Hit

SECOND_HOP_FRAC = 0.2
"""Share of two-page questions on which the noisy reader continues to the second page."""
ABSTAIN_FRAC = 0.4
"""Share of unanswerable questions on which the noisy reader abstains."""
NARROW_FRAC = 0.75
"""Share of the questions that are demonstrated with one page's text a search, where searches show text and that page is right: to read
costs most examples, and these are short. Of two pages' questions, most then take a second search: a model that was shown one for half of
them never searched again. The other pages are listed as ever: where they were left out, a model that saw a list searched again, on four of
five questions on one page."""
TWINS_FRAC, UNHEARD_OF = 0.16, 0.06
"""Shares of questions that are twins, and of further ones about names that occur nowhere."""


TINY_SEARCHER = TinyModel(
    pieces=('<tool>search_pages("', '<tool>view_sections("', '<tool>read_section("', '")</tool>', "<answer>", "</answer>"),
    vocabulary=1280,  # 256 bytes, the tokens of the template, and a thousand merges: 640 and 2048 were much worse in a prototype
    does="searches a generated encyclopedia with three tools",
    learnt_from="scripted episodes in fresh random worlds",
    lacks={
        "noisy": """The reader that wrote the demonstrations was noisy: on four of five questions that need a second page it answered
with what the first page gave, and where no page holds the answer, which was so of three questions in ten, it admitted that two times in
five. Reinforcement learning is meant to cure that.""",
        "expert": """The reader that wrote the demonstrations followed every question to its end. This model is the measure for what
supervised training alone reaches with perfect demonstrations.""",
    },
)


class TitleIndex:
    """A quick substitute for the embedding index that ranks pages by shared character trigrams of query and title."""

    key = "titles"

    def __init__(self, library: Library) -> None:
        """Index the titles of a small corpus."""
        self._titles = [(page.id, page.title) for page in library.pages()]
        self._grams = [_trigrams(title) for _, title in self._titles]
        self._pages_of: dict[str, list[int]] = {}
        for i, grams in enumerate(self._grams):
            for gram in grams:
                self._pages_of.setdefault(gram, []).append(i)

    def search(self, queries: Sequence[str], top_k: int, *, hidden: Sequence[Collection[str]] = ()) -> list[list[Hit]]:
        """See `Index.search`; the score is the Dice coefficient of the trigram sets, and `hidden` is not supported."""
        return [self._rank(_trigrams(query), top_k) for query in queries]

    def _rank(self, grams: set[str], top_k: int) -> list[Hit]:
        shared: dict[int, int] = {}
        for gram in sorted(grams):
            for i in self._pages_of.get(gram, ()):
                shared[i] = shared.get(i, 0) + 1
        scored = sorted((-2 * n / (len(grams) + len(self._grams[i])), self._titles[i][0], i) for i, n in shared.items())
        return [Hit(page_id, self._titles[i][1], -score, page_id) for score, page_id, i in scored[:top_k]]


def make_demonstrations(config: SftConfig, top_k: int, seed: int, missing_names: bool = True) -> Iterator[Demonstration]:
    """Make demonstrations without end, from a fresh random world every `episodes_per_world`; a search shows `top_k` pages.

    The seed is that of worlds and of the reader; worlds of a run that evaluates never carry these seeds.
    """
    per_page = config.episodes_per_world / config.pages_per_world
    for number in count():
        chosen = WorldConfig(pages=config.pages_per_world, seed=1_000_000 + 10_000 * seed + number, questions_per_page=per_page)
        world, chance = generate_world(chosen, UNHEARD_OF), random.Random(f"demonstrations {seed} {number}")
        library = Library(world.pages)
        toolbox = Toolbox(library, TitleIndex(library), top_k, max_section_chars=1500, missing_names=missing_names)
        questions = mix_twins(world.questions, TWINS_FRAC, toolbox)
        chance.shuffle(questions)
        for question in questions:
            yield demonstrate(question, toolbox, config.recipe, chance)


def demonstrate(question: Question, toolbox: Toolbox, recipe: str, chance: random.Random) -> Demonstration:
    """Play one question as the scripted reader does."""
    noisy = recipe == "noisy"
    turns: list[tuple[str, str]] = []

    def call(tool: str, argument: str) -> str:
        result = toolbox.serve([ToolCall(tool, argument)], [question.view])[0].text
        turns.append((render_call(ToolCall(tool, argument)), result))
        return result

    answer, read = question.answer, ""
    path = () if question.kind == "renamed" else question.page_ids
    # The hidden section is read even if the page does not list it: the result then says that it is absent.
    sections = (*question.section_ids, *(tuple(question.view.hidden)[:1] if question.view else ()))
    for hop, name in enumerate(question.entities):
        if hop and noisy and chance.random() >= SECOND_HOP_FRAC:
            answer = name
            break
        shown = call(SEARCH, name)
        if hop >= len(path) or f"{path[hop]}: " not in shown:
            answer = UNKNOWN_ANSWER
            break
        call(VIEW, path[hop])
        read = call(READ, sections[hop])
        if read == ABSENT:
            answer = UNKNOWN_ANSWER
            break
    if answer == UNKNOWN_ANSWER and noisy and chance.random() >= ABSTAIN_FRAC:
        answer = _invent(read, turns[-1][1], chance)
    return Demonstration(question.question, (*turns, (render_answer(answer), "")))


def _invent(read: str, shown: str, chance: random.Random) -> str:
    """Pick a text that looks like an answer from the last result."""
    text = read.partition("\n")[2] or shown
    found = re.findall(r"\b\d{4}\b|\b[A-Z]\w+(?: [A-Z]\w+)+", text)
    return chance.choice(found) if found else UNKNOWN_ANSWER


def _trigrams(text: str) -> set[str]:
    padded = f"  {text.lower()} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


NO_GOLD, NOT_FOUND, NO_SECTION = "no gold section", "page not found", "no such section"
NOT_STATED, SEVERAL = "no gold page states the answer", "several sections of the gold page state the answer"
Value = TypeVar("Value")
Asking: TypeAlias = Generator[Sequence[ToolCall], list[ToolResult], Value]
"""Part of a question's play: a generator that yields calls to be served together, and receives their results."""
Play: TypeAlias = Asking[Demonstration]
Turns: TypeAlias = list[tuple[str, str]]
"""Messages and their results so far."""
BATCH = 1024
"""Number of questions that are played together."""


class Unplayable(Exception):
    """A question that cannot be demonstrated; the message is the reason, which is counted."""


def demonstrate_gold(
    questions: Sequence[Question], toolbox: Toolbox, queries: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[Demonstration], Counter[str]]:
    """Play questions by their gold sections, with the policy's tools.

    Args:
        questions: to be demonstrated.
        toolbox: as the policy's.
        queries: text of a question -> first query; without an entry the question itself.

    Returns:
        Demonstrations in the order of the questions, and the number left out by reason.
    """
    left_out: Counter[str] = Counter()
    found: list[Demonstration] = []
    playable = []
    for question in questions:
        if _is_known(question) and (question.section_ids or question.kind in UNKNOWABLE):
            playable.append(question)
        else:
            left_out[_why_unplaced(question, toolbox.library)] += 1
    for start in range(0, len(playable), BATCH):
        batch = playable[start : start + BATCH]
        plays = [_play(question, queries.get(question.question, question.question), toolbox) for question in batch]
        for outcome in _play_together(plays, [question.view for question in batch], toolbox):
            if isinstance(outcome, Demonstration):
                found.append(outcome)
            else:
                left_out[str(outcome)] += 1
    return found, left_out


def demonstrate_narrowly(questions: Sequence[Question], toolbox: Toolbox, queries: Mapping[str, str]) -> dict[str, Demonstration]:
    """Play `NARROW_FRAC` of the questions with searches that show one page's text, and keep those of one call a page at most.

    Returns:
        Text of a question -> its demonstration.
    """
    if toolbox.shows != "text":
        return {}
    # Twins are chosen like questions: if only they showed several texts, several texts would be a sign to say "I don't know".
    chosen = {each.question: each for each in questions if random.Random(f"narrow {each.question}").random() < NARROW_FRAC}
    shown, _ = demonstrate_gold(list(chosen.values()), toolbox.with_texts(1), queries)
    most = {text: max(1, len(question.page_ids)) + 1 for text, question in chosen.items()}
    return {found.question: found for found in shown if len(found.turns) <= most[found.question]}


def _play_together(plays: Sequence[Play], views: Sequence[View | None], toolbox: Toolbox) -> list[Demonstration | Unplayable]:
    """Play questions side by side; their next calls are served together."""
    ended: dict[int, Demonstration | Unplayable] = {}
    results: dict[int, list[ToolResult]] = {}
    going = list(range(len(plays)))
    while going:
        asked: dict[int, Sequence[ToolCall]] = {}
        for i in going:
            try:
                asked[i] = plays[i].send(results[i]) if i in results else next(plays[i])
            except StopIteration as end:
                ended[i] = end.value
            except Unplayable as reason:
                ended[i] = reason
        served = iter(toolbox.serve([call for calls in asked.values() for call in calls], [views[i] for i in asked for _ in asked[i]]))
        results = {i: list(islice(served, len(calls))) for i, calls in asked.items()}
        going = list(asked)
    return [ended[i] for i in range(len(plays))]


def _why_unplaced(question: Question, library: Library) -> str:
    """Return why a question that names no gold section has none, from the pages that it names."""
    sections = [section for page_id in question.page_ids for section in library.sections(page_id)]
    if question.section_ids or not sections or not question.is_answerable:
        return NO_GOLD
    stating = sum(any(holds_answer(section.text, answer) for answer in question.answers) for section in sections)
    return NO_GOLD if stating == 1 else SEVERAL if stating else NOT_STATED


def _is_known(question: Question) -> bool:
    return question.answer != UNKNOWN_ANSWER or question.kind in UNKNOWABLE


def demonstrate_by_gold(
    questions: Sequence[Question], toolbox: Toolbox, config: SearcherConfig, queries: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[Demonstration], Counter[str]]:
    """Demonstrate questions as `SearcherConfig.reads` selects; see `demonstrate_gold` and `demonstrate_reader`."""
    return demonstrate_gold(questions, toolbox, queries) if config.reads == "tools" else demonstrate_reader(questions, toolbox, config)


def demonstrate_reader(questions: Sequence[Question], toolbox: Toolbox, config: SearcherConfig) -> tuple[list[Demonstration], Counter[str]]:
    """Answer questions at once from the text shown to a reader, if it holds the answer; see `demonstrate_gold`."""
    known = [question for question in questions if _is_known(question)]
    found: list[Demonstration] = []
    for question, prompt in zip(known, open_prompts(known, toolbox, config), strict=True):
        if config.reads == "nothing" or question.kind in UNKNOWABLE or holds_answer(_shown_to(prompt, question), question.answer):
            found.append(Demonstration(question.question, ((render_answer(question.answer), ""),), tuple(prompt)))
    return found, +Counter({NOT_FOUND: len(known) - len(found), NO_GOLD: len(questions) - len(known)})


def _shown_to(prompt: Sequence[Message], question: Question) -> str:
    return prompt[-1]["content"].removesuffix(question.question)


def _play(question: Question, query: str, toolbox: Toolbox) -> Play:
    first = ToolCall(SEARCH, query)
    (searched,) = yield [first]
    turns = [(render_call(first), searched.text)]
    searched = yield from _read_gold(question, searched, turns, toolbox)
    if question.kind in UNKNOWABLE:
        yield from _look_for_the_rest(question, searched, turns, toolbox)
    told = [(message, toolbox.remind(result, question.question)) for message, result in turns]
    return Demonstration(question.question, (*told, (_write_answer(question, toolbox), "")))


def _write_answer(question: Question, toolbox: Toolbox) -> str:
    """Write the answer: the lines of a gold section that hold it if it is a passage, else the answer itself."""
    sections = {section_id: section for section_id in question.section_ids if (section := toolbox.library.section(section_id))}
    quotation = find_quotation(sections.values(), question.answer) if is_passage(question.answer) else None
    if quotation is None:
        return render_answer(question.answer)
    return render_quotation(replace(quotation, section_id=toolbox.name_of(sections[quotation.section_id])))


def _read_gold(question: Question, searched: ToolResult, turns: Turns, toolbox: Toolbox) -> Asking[ToolResult]:
    """Find and read one gold section after the other; return the last search."""
    for hop, section_id in enumerate(question.section_ids):
        section = toolbox.library.section(section_id)
        page = toolbox.library.page(section.page_id) if section else None
        if section is None or page is None:
            raise Unplayable(NO_SECTION)
        if not _shows(searched, section, toolbox):
            # A policy knows the words of the question and those that it was shown.
            known = "\n".join([question.question, *(result for _, result in turns)])
            names = [name for name in (page.title, plain_title(page.title), *question.entities) if name in known]
            queries = names[:1] if hop else [question.question, *other_queries(question.question)]
            queries = [query for query in queries if render_call(ToolCall(SEARCH, query)) != turns[0][0]]
            searched = yield from _search_again(queries, searched, section, turns, toolbox)
        is_shown, size = section.id in searched.section_ids, toolbox.max_section_chars
        if is_shown and (len(body_of(section)) <= size or _state_answer(question, [body_of(section)[:size]])):
            continue
        if not _shows(searched, section, toolbox, "sections"):
            yield from _go_through(VIEW, section.page_id, turns, partial(_list_section, toolbox.name_of(section)))
        seen = [section.text[:size]] if is_shown else []
        yield from _go_through(READ, toolbox.name_of(section), turns, partial(_state_answer, question), seen)
    return searched


def _look_for_the_rest(question: Question, searched: ToolResult, turns: Turns, toolbox: Toolbox) -> Asking[None]:
    """Look where the answer of a twin would be, as for any other question: in the first hits of the last search."""
    began = len(turns) == 1 and not question.section_ids  # a search that shows text may have been the first hop
    page = toolbox.library.page(question.page_ids[-1]) if question.kind == "withdrawn" else None
    if not began and page and page.title in turns[-1][1]:
        (searched,) = yield [ToolCall(SEARCH, page.title)]
        turns.append((render_call(ToolCall(SEARCH, page.title)), searched.text))
    elif not began:
        return
    if searched.page_ids and not searched.section_ids:
        first = searched.page_ids[0]
        hint = re.search(rf"\(({re.escape(first)}:[^)]*)\)", searched.text)
        call = ToolCall(READ, hint[1]) if hint else ToolCall(VIEW, first)
        (result,) = yield [call]
        turns.append((render_call(call), result.text))


def other_queries(question: str) -> list[str]:
    """Return further queries for a question: its names, its quotations, and its words that are not small."""
    quoted = re.findall(r"[\"\u201c]([^\"\u201c\u201d]+)[\"\u201d]", question)
    names = re.findall(r"(?<!^)(?<![.?!] )\b[A-Z][\w'-]+(?: (?:of |the )?[A-Z][\w'-]+)*", question)
    words = [word for word in re.findall(r"[\w'-]+", question) if content_words(word)]
    return list(dict.fromkeys(query for query in (" ".join(names), *quoted, " ".join(words)) if query and query != question))


def _shows(result: ToolResult, section: Section, toolbox: Toolbox, form: str = "") -> bool:
    """Return whether a search showed a section in a form, else that of the tools: its page's title, its id, or its text; see
    `SearcherConfig.shows`."""
    form = form or toolbox.shows
    if section.id in result.section_ids:
        return True
    is_named = form == "sections" and (f"({section.id})" in result.text or f"\n{toolbox.name_of(section)}: " in result.text)
    return is_named or (form == "titles" and section.page_id in result.page_ids)


def _search_again(queries: Sequence[str], before: ToolResult, section: Section, turns: Turns, toolbox: Toolbox) -> Asking[ToolResult]:
    """Search with the first query that shows a section, or else its page; if none does, an earlier hit on the page suffices."""
    calls = [ToolCall(SEARCH, query) for query in queries]
    found = list(zip(calls, (yield calls), strict=True))
    for form in dict.fromkeys((toolbox.shows, "titles")):
        for call, result in found:
            if _shows(result, section, toolbox, form):
                turns.append((render_call(call), result.text))
                return result
        if _shows(before, section, toolbox, "titles"):
            return before
    raise Unplayable(NOT_FOUND)


def _go_through(tool: str, name: str, turns: Turns, is_found: Callable[[Sequence[str]], bool], seen: Sequence[str] = ()) -> Asking[None]:
    """Turn the pages of a result, after those `seen`, until `is_found` accepts the texts of all; if it never does, only to the first."""
    shown: Turns = []
    parts = list(seen)
    for number in count(len(seen) + 1):
        call = ToolCall(tool, f"{name}#{number}" if number > 1 else name)
        (result,) = yield [call]
        if not result.served:
            turns += [] if seen else shown[:1]
            return
        shown.append((render_call(call), result.text))
        parts.append(GO_ON.sub("", result.text))
        if is_found(parts):
            turns += shown
            return


def _list_section(name: str, parts: Sequence[str]) -> bool:
    return any(line.startswith(f"{name}: ") for line in parts[-1].split("\n"))


def _state_answer(question: Question, parts: Sequence[str]) -> bool:
    """Return whether the parts of a section state an answer, or the end of a passage."""
    text = "".join(parts)
    return any(holds_answer(text, " ".join(answer.split()[-PASSAGE_WORDS:])) for answer in question.answers)
