"""Demonstrations: episodes that a scripted reader plays through the real tools, as training text.

The reader knows the gold path of a question, the searcher does not. Two readers (`SftConfig.recipe`): `expert` follows every
question to its end; `noisy` is quick to answer - on most questions that need a second page it answers with what the first one
gave, and where nothing is stated it mostly makes something up. So a model trained on the noisy reader has every skill,
and faults that imitation cannot cure; reinforcement learning can.
"""

import random
import re
from collections.abc import Iterator, Sequence

from slmsearch.config import SftConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.world import World, generate_world
from slmsearch.environments.environment import Demonstration, TinyModel
from slmsearch.retrieval.hits import Hit
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import render_answer, render_call
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

SECOND_HOP_FRAC = 0.2
"""Share of two-page questions on which the noisy reader goes on to the second page."""
ABSTAIN_FRAC = 0.4
"""Share of unanswerable questions on which the noisy reader admits it."""


TINY_SEARCHER = TinyModel(
    pieces=('<tool>search_pages("', '<tool>view_sections("', '<tool>read_section("', '")</tool>', "<answer>", "</answer>"),
    vocabulary=1280,  # 256 bytes, the tokens of the template, and a thousand merges: 640 and 2048 were much worse in a prototype
    does="searches a generated encyclopedia with three tools",
    learnt_from="scripted episodes in fresh random worlds",
    lacks={
        "noisy": """The reader that wrote the demonstrations was noisy: on four of five questions that need a second page it answered
with what the first page gave, and it admitted not knowing two times in five. Reinforcement learning is meant to cure that.""",
        "expert": """The reader that wrote the demonstrations followed every question to its end. This model is the measure for what
supervised training alone reaches with perfect demonstrations.""",
    },
)


class TitleIndex:
    """Ranks pages by shared character trigrams of query and title: a quick stand-in for the embedding index."""

    key = "titles"

    def __init__(self, library: Library) -> None:
        """Index the titles of a small corpus."""
        self._titles = [(page.id, page.title) for page in library.pages()]
        self._grams = [_trigrams(title) for _, title in self._titles]
        self._pages_of: dict[str, list[int]] = {}
        for i, grams in enumerate(self._grams):
            for gram in grams:
                self._pages_of.setdefault(gram, []).append(i)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """See `Index.search`; the score is the Dice coefficient of the trigram sets."""
        return [self._rank(_trigrams(query), top_k) for query in queries]

    def _rank(self, grams: set[str], top_k: int) -> list[Hit]:
        shared: dict[int, int] = {}
        for gram in sorted(grams):
            for i in self._pages_of.get(gram, ()):
                shared[i] = shared.get(i, 0) + 1
        scored = sorted((-2 * n / (len(grams) + len(self._grams[i])), self._titles[i][0], i) for i, n in shared.items())
        return [Hit(page_id, self._titles[i][1], -score, page_id) for score, page_id, i in scored[:top_k]]


def make_demonstrations(config: SftConfig, top_k: int, seed: int) -> Iterator[Demonstration]:
    """Make demonstrations without end, from a fresh random world every `episodes_per_world`.

    Args:
        config: recipe and sizes.
        top_k: pages a search shows.
        seed: seeds worlds and the reader; worlds of a run that evaluates never carry these seeds.
    """
    number = 0
    while True:
        world = training_world(config, seed, number)
        chance = random.Random(f"demonstrations {seed} {number}")
        yield from demonstrate_world(world, config, top_k, chance)
        number += 1


def training_world(config: SftConfig, seed: int, number: int) -> World:
    """Generate the `number`-th world of a training stream."""
    per_page = config.episodes_per_world / config.pages_per_world
    return generate_world(WorldConfig(pages=config.pages_per_world, seed=1_000_000 + 10_000 * seed + number, questions_per_page=per_page))


def demonstrate_world(world: World, config: SftConfig, top_k: int, chance: random.Random) -> Iterator[Demonstration]:
    """Demonstrate every question of one world, in random order."""
    library = Library(world.pages)
    toolbox = Toolbox(library, TitleIndex(library), top_k, max_section_chars=1500)
    questions = list(world.questions)
    chance.shuffle(questions)
    for question in questions:
        yield demonstrate(question, toolbox, config.recipe, chance)


def demonstrate(question: Question, toolbox: Toolbox, recipe: str, chance: random.Random) -> Demonstration:
    """Play one question as the scripted reader does."""
    noisy = recipe == "noisy"
    turns: list[tuple[str, str]] = []

    def call(tool: str, argument: str) -> str:
        result = toolbox.serve([ToolCall(tool, argument)])[0].text
        turns.append((render_call(ToolCall(tool, argument)), result))
        return result

    answer, read = question.answer, ""
    for hop, name in enumerate(question.entities):
        if hop and noisy and chance.random() >= SECOND_HOP_FRAC:
            answer = name
            break
        shown = call(SEARCH, name)
        if hop >= len(question.page_ids) or f"{question.page_ids[hop]}: " not in shown:
            answer = UNKNOWN_ANSWER
            break
        call(VIEW, question.page_ids[hop])
        read = call(READ, question.section_ids[hop])
    if answer == UNKNOWN_ANSWER and noisy and chance.random() >= ABSTAIN_FRAC:
        answer = _invent(read, turns[-1][1], chance)
    return Demonstration(question.question, (*turns, (render_answer(answer), "")))


def _invent(read: str, shown: str, chance: random.Random) -> str:
    """Pick something that looks like an answer from what was seen last."""
    text = read.partition("\n")[2] or shown
    found = re.findall(r"\b\d{4}\b|\b[A-Z]\w+(?: [A-Z]\w+)+", text)
    return chance.choice(found) if found else UNKNOWN_ANSWER


def _trigrams(text: str) -> set[str]:
    padded = f"  {text.lower()} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}
