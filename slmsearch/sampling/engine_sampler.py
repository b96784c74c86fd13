"""Samplers of turns as token ids, and one that uses an engine: it takes ids, returns ids and keeps nothing of an episode.

Each turn sends the engine the whole history of its episode again. An engine with prefix caching does not compute the history again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Message, SampledTurn, Sampling


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for one turn."""

    history: tuple[int, ...]
    """All ids so far."""
    max_tokens: int
    """Largest number of ids of the turn."""
    seed: int
    stop: tuple[str, ...] = ()
    """See `Sampling.stop`; the sampler drops what an engine writes behind the first stop text."""

    def after(self, ids: tuple[int, ...]) -> "CompletionRequest":
        """Return a request for the rest of the turn, after its first ids."""
        return CompletionRequest((*self.history, *ids), self.max_tokens - len(ids), self.seed + len(ids), self.stop)


@dataclass(frozen=True, slots=True)
class Completion:
    """One turn as sampled: ids and the log-probability of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class Engine(Protocol):
    """A service that samples the turns: vLLM (`vllm.py`), in this process or served."""

    def complete(self, requests: Sequence[CompletionRequest], temperature: float, end_id: int) -> list[Completion]:
        """Sample one turn per request, in order; the end token and the token that completes a stop text are included.

        Args:
            requests: one per turn.
            temperature: 0 is greedy.
            end_id: token that ends a turn.
        """
        ...


class IdSampler(ABC):
    """A sampler of turns as ids: it encodes each turn's context, and skips rows that have no room left."""

    samples_beside = False
    """True on a device that has nothing else to do: there calls are better served while other rows are sampled."""

    def __init__(self, tokenizer: Any, tool_role: str = "tool", renderer: ChatRenderer | None = None) -> None:
        """Check the tokenizer's chat template, unless a renderer of it is given.

        Args:
            tokenizer: the model's own.
            tool_role: role of tool results.
            renderer: renderer with the same tokenizer and role; None makes one.
        """
        self.renderer = renderer or ChatRenderer(tokenizer, tool_role)
        self._sampling = Sampling()

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        self.renderer.prepare(result for result in results if result is not None)
        fed = [
            self.renderer.encode_context(self._last_id(row), result, left) for row, result, left in zip(rows, results, room, strict=True)
        ]
        # Ids that each row may write; 0 or less: its context alone fills the room.
        limits = [min(self._sampling.max_new_tokens, left - len(context)) for (context, _), left in zip(fed, room, strict=True)]
        turns = [SampledTurn("", ended=False) for _ in rows]
        going = [k for k, limit in enumerate(limits) if limit > 0]  # indices into `rows`, not rows
        if not going:
            return turns
        sampled = self._write([rows[k] for k in going], [fed[k][0] for k in going], [limits[k] for k in going])
        for k, (turn, ended) in zip(going, sampled, strict=True):
            context, shown = fed[k]
            turns[k] = SampledTurn(self.renderer.decode(turn.ids), ended, context, turn.ids, turn.logprobs, len(turn.ids), shown)
        return turns

    @abstractmethod
    def _last_id(self, row: int) -> int | None:
        """Return the last id of a row's previous turn; None where there was none."""

    @abstractmethod
    def _write(self, rows: list[int], contexts: list[tuple[int, ...]], limits: list[int]) -> list[tuple[Completion, bool]]:
        """Feed each row its context and sample a turn of at most its limit of ids; return each turn, and whether the policy ended it."""


class EngineSampler(IdSampler):
    """A sampler of turns that uses an engine."""

    def __init__(self, engine: Engine, tokenizer: Any, tool_role: str = "tool") -> None:
        """Bind an engine that serves the model of this tokenizer.

        Args:
            engine: samples the turns.
            tokenizer: the model's own.
            tool_role: role of tool results.
        """
        super().__init__(tokenizer, tool_role)
        self._engine = engine
        self._histories: list[tuple[int, ...]] = []
        self._turns: list[int] = []

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`."""
        self._sampling = sampling
        self._histories = self.renderer.encode_prompts(prompts)
        self._turns = [0] * len(prompts)
        return list(self._histories)

    def _last_id(self, row: int) -> int | None:
        return self._histories[row][-1]

    def _write(self, rows: list[int], contexts: list[tuple[int, ...]], limits: list[int]) -> list[tuple[Completion, bool]]:
        seed, stop = self._sampling.seed + 1_000_003 * self._sampling.first_row, self._sampling.stop
        requests = [  # a seed for each row and turn: with one seed, equal histories would continue alike
            CompletionRequest((*self._histories[row], *context), limit, (seed + 1_000_003 * row + self._turns[row]) % (1 << 31), stop)
            for row, context, limit in zip(rows, contexts, limits, strict=True)
        ]
        turns = self._complete(requests)
        for row, request, (turn, _) in zip(rows, requests, turns, strict=True):
            self._histories[row] = (*request.history, *turn.ids)
            self._turns[row] += 1
        return turns

    def _complete(self, requests: Sequence[CompletionRequest]) -> list[tuple[Completion, bool]]:
        """Let the engine write; return each turn, and whether it was ended.

        An engine knows no thinking: a turn that it stopped inside of `<think>` is sent again and continues.
        """
        turns = [Completion((), ()) for _ in requests]
        ended = [False for _ in requests]
        waiting = list(range(len(requests)))  # indices of the turns to be sent, those continued after `<think>` included
        while waiting:
            sent = [requests[n].after(turns[n].ids) for n in waiting]
            found = self._engine.complete(sent, self._sampling.temperature, self.renderer.end_id)
            unfinished = []
            for n, request, new in zip(waiting, sent, found, strict=True):
                ids, logprobs = (*turns[n].ids, *new.ids), (*turns[n].logprobs, *new.logprobs)
                length = self.renderer.stop_length(ids, request.stop)
                turns[n] = Completion(ids[:length], logprobs[:length])
                # The engine stopped by itself: before the limit, or with the end token as the last one.
                stopped = 0 < len(new.ids) < request.max_tokens or ids[-1:] == (self.renderer.end_id,)
                if length is None and stopped and any(mark in self.renderer.decode(new.ids) for mark in request.stop):
                    unfinished.append(n)
                ended[n] = length is not None or stopped
            waiting = unfinished
        return list(zip(turns, ended, strict=True))

    def close(self) -> None:
        """See `Sampler.close`."""
        self._histories, self._turns = [], []
