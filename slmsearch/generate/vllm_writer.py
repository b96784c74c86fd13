"""Turns written by vLLM, in this process or behind `vllm serve`, token ids in and out.

Every turn sends the whole history of its episode again; vLLM's prefix caching keeps that from being computed again. vLLM itself is
imported only where an engine of this process is asked, and is never needed to import this module.
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
    """What vLLM is asked for."""

    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """Sample one turn per request, in order, the end token included where the policy wrote it."""
        ...


class ColocatedEngine:
    """A `vllm.LLM` in this process."""

    def __init__(self, llm: Any) -> None:
        """Take an engine that is awake, with `logprobs_mode="processed_logprobs"`, as TRL makes it."""
        self._llm = llm

    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`."""
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": list(request.history)} for request in requests]
        params = [
            SamplingParams(temperature=temperature, max_tokens=r.max_tokens, seed=r.seed, logprobs=0, stop_token_ids=[end_id])
            for r in requests
        ]
        outputs = self._llm.generate(prompts, sampling_params=params, use_tqdm=False)
        return [_completion(output.outputs[0]) for output in outputs]


def _completion(output: Any) -> Completion:
    ids = tuple(output.token_ids)
    return Completion(ids, tuple(float(chosen[i].logprob) for i, chosen in zip(ids, output.logprobs, strict=True)))


class ServedEngine:
    """A vLLM server, through TRL's client, which also carries the weights there."""

    def __init__(self, client: Any) -> None:
        """Take a `trl.generation.vllm_client.VLLMClient`."""
        self._client = client

    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`.

        The client knows one limit for all, so what is beyond a request's own is cut off; and one seed for all, with which a group's
        episodes would be the same, so none is sent and draws cannot be repeated.
        """
        reply = self._client.generate(
            [list(request.history) for request in requests],
            temperature=temperature,
            max_tokens=max(request.max_tokens for request in requests),
            logprobs=0,
            generation_kwargs={"stop_token_ids": [end_id]},
        )
        completions = []
        for request, ids, logprobs in zip(requests, reply["completion_ids"], reply["logprobs"], strict=True):
            kept = slice(request.max_tokens)
            completions.append(Completion(tuple(ids[kept]), tuple(float(values[0]) for values in logprobs[kept])))
        return completions


class VllmWriter:
    """Writes turns with a vLLM engine."""

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
