"""Turns written by an OpenAI-compatible server (llama.cpp, vLLM, Ollama, `transformers serve`), for evaluation only.

The server keeps no rows: every turn sends the whole dialogue. No ids come back, so such episodes cannot be trained on.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slmsearch.generate.writer import Message, Sampling, Written


class OpenAIWriter:
    """Writes turns by chat completions, several at a time."""

    def __init__(self, model: str, base_url: str, api_key: str = "none", tool_role: str = "tool", concurrency: int = 8) -> None:
        """Set up the client; nothing is asked yet.

        Args:
            model: name the server knows.
            base_url: address ending in `/v1`.
            api_key: key; local servers take any.
            tool_role: role of tool results; `user` where the server's template knows no `tool` message without a call id.
            concurrency: requests under way at once.
        """
        from openai import OpenAI

        self._client = OpenAI(base_url=base_url, api_key=api_key, max_retries=3, timeout=120.0)
        self._model, self._tool_role, self._concurrency = model, tool_role, concurrency
        self._dialogues: list[list[Message]] = []
        self._sampling = Sampling()

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Writer.open`; ids are unknown."""
        self._dialogues = [list(prompt) for prompt in prompts]
        self._sampling = sampling
        return [() for _ in prompts]

    def write(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[Written]:
        """See `Writer.write`; a request that fails after its retries makes its row `failed`."""
        for row, result in zip(rows, results, strict=True):
            if result is not None:
                self._dialogues[row].append(self._tool_message(result))
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(self._write, rows, room))

    def _tool_message(self, result: str) -> Message:
        # OpenAI's protocol wants to know which call a tool answers, and llama-cpp-python refuses a message that does not say so.
        call = {"tool_call_id": "call"} if self._tool_role == "tool" else {}
        return {"role": self._tool_role, "content": result, **call}

    def close(self) -> None:
        """See `Writer.close`."""
        self._dialogues = []

    def _write(self, row: int, room: int) -> Written:
        from openai import OpenAIError

        limit = min(self._sampling.max_new_tokens, room)
        if limit <= 0:
            return Written("", ended=False)
        messages: Any = self._dialogues[row]
        try:
            reply = self._client.chat.completions.create(
                model=self._model, messages=messages, temperature=self._sampling.temperature, seed=self._sampling.seed, max_tokens=limit
            )
        except OpenAIError as error:
            return Written("", ended=False, failure=f"generation: {type(error).__name__} from {self._client.base_url}: {error}"[:300])
        if not reply.choices:
            return Written("", ended=False, failure=f"generation: {self._client.base_url} sent a reply without choices")
        text = reply.choices[0].message.content or ""
        self._dialogues[row].append({"role": "assistant", "content": text})
        tokens = reply.usage.completion_tokens if reply.usage else 0
        return Written(text, reply.choices[0].finish_reason != "length", num_tokens=tokens)
