"""Turns written by an engine that takes token ids and gives token ids, and keeps nothing of an episode.

Every turn sends the whole history of its episode again; prefix caching, where the engine has it, keeps that from being computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slmsearch.generate.dialogue import Dialogue
from slmsearch.generate.writer import Message, Sampling, Written


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to be written."""

    history: tuple[int, ...]
    """All ids so far."""
    max_tokens: int
    """Ids the turn may have."""
    seed: int


@dataclass(frozen=True, slots=True)
class Completion:
    """One turn as sampled: ids and the log-probability of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class Engine(Protocol):
    """What samples the turns: vLLM (`vllm.py`), or whatever `bench` compares it with."""

    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """Sample one turn per request, in order, the end token included where the policy wrote it."""
        ...


class EngineWriter:
    """Writes turns with an engine."""

    def __init__(self, engine: Engine, tokenizer: Any, tool_role: str = "tool") -> None:
        """Bind an engine that serves the model of this tokenizer."""
        self.dialogue = Dialogue(tokenizer, tool_role)
        self._engine = engine
        self._sampling = Sampling()
        self._histories: list[tuple[int, ...]] = []
        self._turns: list[int] = []

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Writer.open`."""
        self._sampling = sampling
        self._histories = [self.dialogue.encode_prompt(prompt) for prompt in prompts]
        self._turns = [0] * len(prompts)
        return list(self._histories)

    def write(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[Written]:
        """See `Writer.write`."""
        contexts = [() if result is None else self.dialogue.encode_result(result) for result in results]
        limits = [min(self._sampling.max_new_tokens, left - len(context)) for context, left in zip(contexts, room, strict=True)]
        going = [k for k, limit in enumerate(limits) if limit > 0]
        written = [Written("", ended=False) for _ in rows]
        if not going:
            return written
        requests = [Request((*self._histories[rows[k]], *contexts[k]), limits[k], self._seed(rows[k])) for k in going]
        for k, request, completion in zip(
            going, requests, self._engine.complete(requests, self._sampling.temperature, self.dialogue.end_id), strict=True
        ):
            ended = completion.ids[-1:] == (self.dialogue.end_id,)
            text = self.dialogue.decode(completion.ids)
            written[k] = Written(text, ended, contexts[k], completion.ids, completion.logprobs, len(completion.ids))
            self._histories[rows[k]] = (*request.history, *completion.ids)
            self._turns[rows[k]] += 1
        return written

    def close(self) -> None:
        """See `Writer.close`."""
        self._histories, self._turns = [], []

    def _seed(self, row: int) -> int:
        """Seed of a row's next turn: other rows and turns draw otherwise."""
        return (self._sampling.seed + 1_000_003 * (self._sampling.first_row + row) + self._turns[row]) % (1 << 31)
