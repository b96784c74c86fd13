"""Policies without a model: whatever a function says, and the function of the random baseline."""

import random
import re
from collections.abc import Callable, Sequence

from slmsearch.corpus.questions import UNKNOWN_ANSWER
from slmsearch.generate.sampler import Message, SampledTurn, Sampling
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import render_answer, render_call

Script = Callable[[str, list[str]], str]
"""Question and the tool results so far -> the next message."""


class ScriptedSampler:
    """Writes what a function of the question and the results so far says; its ids are the UTF-8 bytes of the text."""

    def __init__(self, script: Script) -> None:
        """Wrap a script."""
        self._script = script
        self._questions: list[str] = []
        self._results: list[list[str]] = []

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`."""
        self._questions = [prompt[-1]["content"] for prompt in prompts]
        self._results = [[] for _ in prompts]
        return [tuple(question.encode()) for question in self._questions]

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        return [self._write(row, result, left) for row, result, left in zip(rows, results, room, strict=True)]

    def close(self) -> None:
        """See `Sampler.close`."""
        self._questions, self._results = [], []

    def _write(self, row: int, result: str | None, room: int) -> SampledTurn:
        context = () if result is None else tuple(result.encode())
        if result is not None:
            self._results[row].append(result)
        if len(context) >= room:
            return SampledTurn("", ended=False)
        text = self._script(self._questions[row], self._results[row])
        ids = tuple(text.encode())[: room - len(context)]
        ended = len(ids) == len(text.encode())
        return SampledTurn(bytes(ids).decode(errors="replace"), ended, context, ids, (0.0,) * len(ids), len(ids))


def random_turn(question: str, results: list[str], seed: int) -> str:
    """Make a valid move at random: search words of the question, open what was shown, answer with words that were read.

    The same seed and question give the same episode, whatever else is in the batch.
    """
    chance = random.Random(f"{seed}\n{question}\n{len(results)}")
    words = question.split() or [UNKNOWN_ANSWER]
    shown = re.findall(r"^([^\s:]+(?::\S+)?): ", results[-1], re.MULTILINE) if results else []
    events = [lambda: _random_search(words, chance)] * (1 if results else 8)
    if shown:
        target = chance.choice(shown)
        tool = "read_section" if ":" in target else "view_sections"
        events += [lambda: render_call(ToolCall(tool, target))] * 4
    read = results[-1].split() if results and not shown else []
    if read:
        start = chance.randrange(len(read))
        events += [lambda: render_answer(" ".join(read[start : start + chance.choice((1, 2))]).strip(".,"))] * 6
    events.append(lambda: render_answer(UNKNOWN_ANSWER))
    return chance.choice(events)()


def _random_search(words: list[str], chance: random.Random) -> str:
    start = chance.randrange(len(words))
    return render_call(ToolCall("search_pages", " ".join(words[start : start + 3])))
