"""The random baseline of the searcher."""

import random
import re

from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.environments.searcher.parsing import render_answer, render_call
from slmsearch.episodes.episode import ToolCall


def random_turn(question: str, results: list[str], seed: int) -> str:
    """Make a valid move at random: search words of the question, open shown pages, answer with words that were read.

    The same seed and question give the same episode, whatever else is in the batch.
    """
    chance = random.Random(f"{seed}\n{question}\n{len(results)}")
    words = question.split() or [UNKNOWN_ANSWER]
    last = results[-1].removesuffix(f"\n\n{question}") if results else ""
    shown = re.findall(r"^([^\s:]+(?::\S+)?): ", last, re.MULTILINE)
    events = [lambda: _random_search(words, chance)] * (1 if results else 8)
    if shown:
        target = chance.choice(shown)
        tool = "read_section" if ":" in target else "view_sections"
        events += [lambda: render_call(ToolCall(tool, target))] * 4
    read = [] if shown else last.split()
    if read:
        start = chance.randrange(len(read))
        events += [lambda: render_answer(" ".join(read[start : start + chance.choice((1, 2))]).strip(".,"))] * 6
    events.append(lambda: render_answer(UNKNOWN_ANSWER))
    return chance.choice(events)()


def _random_search(words: list[str], chance: random.Random) -> str:
    start = chance.randrange(len(words))
    return render_call(ToolCall("search_pages", " ".join(words[start : start + 3])))
