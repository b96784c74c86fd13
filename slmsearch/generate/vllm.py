"""vLLM as an engine: in this process, or behind `vllm serve`.

vLLM (extra `gpu`) is imported only where the engine of this process is asked.
"""

from collections.abc import Sequence
from typing import Any

from slmsearch.generate.engine_writer import Completion, Request


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
