"""Policies without a model: a function writes each message."""

from collections.abc import Callable, Sequence

from slmsearch.episodes.sampler import Message, SampledTurn, Sampling

Script = Callable[[str, list[str]], str]
"""Question and the tool results so far -> the next message."""


class ScriptedSampler:
    """A sampler whose turns come from a function of the question and the results so far; its ids are the UTF-8 bytes of the text."""

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
