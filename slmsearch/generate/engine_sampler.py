"""Turns sampled by an engine that takes token ids, returns token ids and keeps nothing of an episode.

Every turn sends the whole history of its episode again; prefix caching, where the engine has it, keeps that from being computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.generate.sampler import Message, SampledTurn, Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to be sampled."""

    history: tuple[int, ...]
    """All ids so far."""
    max_tokens: int
    """Ids the turn may have."""
    seed: int
    stop: tuple[str, ...] = ()
    """See `Sampling.stop`; what an engine writes beyond the first is dropped."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One turn as sampled: ids and the log-probability of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class Engine(Protocol):
    """What samples the turns: vLLM (`vllm.py`), or whatever `bench` compares it with."""

    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """Sample one turn per request, in order; the end token and the token that completes a stop text are included."""
        ...


def _go_on(request: Request, turn: Completion) -> Request:
    """Ask for the rest of a turn."""
    if not turn.ids:
        return request
    return Request((*request.history, *turn.ids), request.max_tokens - len(turn.ids), request.seed + len(turn.ids), request.stop)


class EngineSampler:
    """Samples turns with an engine."""

    def __init__(self, engine: Engine, tokenizer: Any, tool_role: str = "tool") -> None:
        """Bind an engine that serves the model of this tokenizer."""
        self.renderer = ChatRenderer(tokenizer, tool_role)
        self._engine = engine
        self._sampling = Sampling()
        self._histories: list[tuple[int, ...]] = []
        self._turns: list[int] = []

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`."""
        self._sampling = sampling
        self._histories = [self.renderer.encode_prompt(prompt) for prompt in prompts]
        self._turns = [0] * len(prompts)
        return list(self._histories)

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        fed = [
            self.renderer.encode_context(self._histories[row][-1], result, left)
            for row, result, left in zip(rows, results, room, strict=True)
        ]
        contexts = [context for context, _ in fed]
        limits = [min(self._sampling.max_new_tokens, left - len(context)) for context, left in zip(contexts, room, strict=True)]
        going = [k for k, limit in enumerate(limits) if limit > 0]
        turns = [SampledTurn("", ended=False) for _ in rows]
        if not going:
            return turns
        stop = self._sampling.stop
        requests = [Request((*self._histories[rows[k]], *contexts[k]), limits[k], self._seed(rows[k]), stop) for k in going]
        for k, request, (completion, ended) in zip(going, requests, self._complete(requests), strict=True):
            text = self.renderer.decode(completion.ids)
            turns[k] = SampledTurn(text, ended, contexts[k], completion.ids, completion.logprobs, len(completion.ids), fed[k][1])
            self._histories[rows[k]] = (*request.history, *completion.ids)
            self._turns[rows[k]] += 1
        return turns

    def _complete(self, requests: Sequence[Request]) -> list[tuple[Completion, bool]]:
        """Let the engine write; return each turn, and whether it was ended.

        An engine knows nothing of thinking: a turn that it stopped inside of `<think>` is sent again to be gone on with.
        """
        turns = [Completion((), ()) for _ in requests]
        ended = [False for _ in requests]
        waiting = list(range(len(requests)))
        while waiting:
            sent = [_go_on(requests[n], turns[n]) for n in waiting]
            found = self._engine.complete(sent, self._sampling.temperature, self.renderer.end_id)
            unfinished = []
            for n, request, new in zip(waiting, sent, found, strict=True):
                ids, logprobs = (*turns[n].ids, *new.ids), (*turns[n].logprobs, *new.logprobs)
                length = self.renderer.stop_length(ids, request.stop)
                turns[n] = Completion(ids[:length], logprobs[:length])
                stopped = 0 < len(new.ids) < request.max_tokens or ids[-1:] == (self.renderer.end_id,)
                if length is None and stopped and self.renderer.completes(new.ids, request.stop):
                    unfinished.append(n)
                ended[n] = length is not None or stopped
            waiting = unfinished
        return list(zip(turns, ended, strict=True))

    def close(self) -> None:
        """See `Sampler.close`."""
        self._histories, self._turns = [], []

    def _seed(self, row: int) -> int:
        """Seed of a row's next turn: other rows and turns draw otherwise."""
        return (self._sampling.seed + 1_000_003 * (self._sampling.first_row + row) + self._turns[row]) % (1 << 31)
