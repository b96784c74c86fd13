"""vLLM as an engine: in this process, or behind `vllm serve`.

vLLM (extra `gpu`) is imported only when the engine of this process is called.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slmsearch.errors import ServiceError
from slmsearch.foreign import cause_of
from slmsearch.sampling.engine_sampler import Completion, CompletionRequest

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for `--max-lora-rank`."""
SERVE_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-lora-rank R"
"""Command that starts a server which accepts adapters from training."""


class ColocatedEngine:
    """A `vllm.LLM` in this process."""

    def __init__(self, llm: Any, adapter: Path | None = None, number: int = 0) -> None:
        """Take an engine that is awake, with `logprobs_mode="processed_logprobs"`, as TRL makes it.

        Args:
            llm: the engine.
            adapter: directory of a LoRA adapter to sample with, read at the first call; None samples from the bare weights.
            number: an adapter number that the engine has not had before: under it the engine keeps the weights and the prefix cache.
        """
        self._llm, self._adapter, self._number = llm, adapter, number

    def complete(self, requests: Sequence[CompletionRequest], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`."""
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": list(request.history)} for request in requests]
        params = [  # logprobs=0: those of the sampled ids alone
            SamplingParams(temperature=temperature, max_tokens=r.max_tokens, seed=r.seed, logprobs=0, **_stops(r, end_id)) for r in requests
        ]
        lora = None
        if self._adapter is not None:
            from vllm.lora.request import LoRARequest

            lora = LoRARequest(lora_name=f"policy-{self._number}", lora_int_id=self._number, lora_path=str(self._adapter))
        outputs = [output.outputs[0] for output in self._llm.generate(prompts, sampling_params=params, use_tqdm=False, lora_request=lora)]
        return [
            Completion(tuple(one.token_ids), tuple(float(chosen[i].logprob) for i, chosen in zip(one.token_ids, one.logprobs, strict=True)))
            for one in outputs
        ]


def _stops(request: CompletionRequest, end_id: int) -> dict[str, object]:
    """Return where a turn ends: ids come back up to the one that completes a stop text, with all its characters."""
    return {"stop_token_ids": [end_id], "stop": list(request.stop), "include_stop_str_in_output": True}


class ServedEngine:
    """A vLLM server, called through TRL's client, which also sends the weights there."""

    def __init__(self, client: Any, model: str | None = None) -> None:
        """Take a `trl.generation.vllm_client.VLLMClient`; `model` is the adapter to sample with, None the server's own model."""
        self._client, self._model = client, model

    def complete(self, requests: Sequence[CompletionRequest], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`.

        The client takes one limit for all requests, so ids beyond a request's own limit are cut off. It takes one seed for all,
        with which the episodes of a group would be the same; so none is sent, and draws cannot be repeated.
        """
        chosen = {"model": self._model} if self._model else {}
        reply = self._client.generate(
            [list(request.history) for request in requests],
            temperature=temperature,
            max_tokens=max(request.max_tokens for request in requests),  # tokens beyond a request's own limit are cut off below
            logprobs=0,
            generation_kwargs={**_stops(requests[0], end_id), **chosen},
        )
        completions = []
        for request, ids, logprobs in zip(requests, reply["completion_ids"], reply["logprobs"], strict=True):
            kept = slice(request.max_tokens)  # ids and log-probabilities run in parallel
            completions.append(Completion(tuple(ids[kept]), tuple(float(values[0]) for values in logprobs[kept])))
        return completions


@contextmanager
def served_adapter(client: Any, name: str, directory: Path) -> Iterator[ServedEngine]:
    """Have a vLLM server load an adapter, which it reads from its own disk, and unload it if no error occurs.

    Args:
        client: TRL's client of the server.
        name: one that the server has not had before, because its prefix cache goes by the name.
        directory: the adapter's directory on the server's disk.

    Raises:
        ServiceError: the server has not loaded it.
    """
    _ask(client, "load", {"lora_name": name, "lora_path": str(directory)})
    yield ServedEngine(client, name)
    _ask(client, "unload", {"lora_name": name})


def _ask(client: Any, verb: str, body: dict[str, str]) -> None:
    url = f"{client.base_url}/v1/{verb}_lora_adapter"
    try:
        reply = client.session.post(url, json=body)
        cause = "" if reply.status_code == 200 else f"{reply.status_code} {reply.text}"
    except OSError as error:  # of requests
        cause = str(error)
    if cause:
        raise ServiceError(
            f"the vLLM server did not {verb} the adapter: {cause_of(cause)}; it must run on this machine, started with "
            f"{SERVE_LORA}, or take train.vllm.mode colocate"
        )
