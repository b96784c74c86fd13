"""A sampler that uses an OpenAI-compatible server (llama.cpp, vLLM, Ollama, `transformers serve`), for evaluation only.

The server keeps no rows: every turn sends all messages. The server returns no ids, so such episodes cannot be trained on.
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from slmsearch.episodes.sampler import Message, SampledTurn, Sampling
from slmsearch.episodes.thinking import THINK, THOUGHT
from slmsearch.errors import ConfigError

_MARKUP = re.compile(r"<(?=[^<>\s]{1,60}>)|\[(?=/?[A-Z_]{2,40}\])")
"""Beginnings of strings that some model's template may use as markup: `<|im_end|>`, `</tool_response>`, `[/INST]`."""
_OPEN = re.compile(r"<(tool|answer|code|tool_call)>(?!.*</\1>)", re.DOTALL)
TIMEOUT_S = 120.0
"""Time limit for a turn, in seconds."""
CONCURRENCY = 8
"""Largest number of open requests."""
WHOLE = {"top_p": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
"""Parameters of the model's own distribution, as far as OpenAI's protocol has them; Ollama would take others from the model's file."""
VLLM_SAMPLING = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Parameters that vLLM would otherwise take from the model's generation config (Qwen2.5 has a repetition penalty of 1.05)."""


class OpenAISampler:
    """A sampler of turns by chat completions, several at a time."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str = "none",
        tool_role: str = "tool",
        template_kwargs: Mapping[str, bool | float | str] | None = None,
    ) -> None:
        """Set up the client; no request is sent yet.

        Args:
            model: name the server knows.
            base_url: address ending in `/v1`.
            api_key: key; local servers take any.
            tool_role: role of tool results; `user` where the server's template knows no `tool` message without a call id.
            template_kwargs: variables of the server's chat template; sent only if there are any, because some servers do not know them.
        """
        from slmsearch.http_client import make_openai

        self._client = make_openai(base_url, api_key, TIMEOUT_S, 3)
        self._model, self._tool_role = model, tool_role
        self._extra: dict[str, object] = {"chat_template_kwargs": dict(template_kwargs)} if template_kwargs else {}
        self._known: Mapping[str, object] | None = None
        """Further sampling parameters that the server knows; None until the first `open` asks for them."""
        self._messages: list[list[Message]] = []
        self._headers: list[dict[str, str]] = []
        """Headers of each row's requests: the client's span, where it is known."""
        self._sampling = Sampling()

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`; ids are unknown.

        Raises:
            ConfigError: tools are declared to the chat template, which the server has.
        """
        if any(message.get("tools") for prompt in prompts for message in prompt):
            raise ConfigError(
                "searcher.format native is for models that are loaded here: set it to tags, or name a model instead of a server"
            )
        self._messages = [[self._send(message) for message in prompt] for prompt in prompts]
        self._headers = [{"traceparent": span} if (span := prompt[0].get("traceparent")) else {} for prompt in prompts]
        self._sampling = sampling
        if self._known is None:
            self._known = VLLM_SAMPLING if self._is_vllm() else {}
        return [() for _ in prompts]

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`; a request that fails after its retries makes its row `failed`."""
        for row, result in zip(rows, results, strict=True):
            if result is not None:
                self._messages[row].append(self._send({"role": self._tool_role, "content": result}))
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            return list(pool.map(self._write, rows, room))  # in the order of `rows`

    @staticmethod
    def _send(message: Message) -> Message:
        """Return a message as it is sent; questions and tool results are disarmed."""
        message = {key: value for key, value in message.items() if key != "traceparent"}
        if message["role"] not in ("user", "tool"):
            return message
        # OpenAI's protocol requires the id of the call that a tool answers; llama-cpp-python refuses a message without one.
        call = {"tool_call_id": "call"} if message["role"] == "tool" else {}
        return {**message, "content": disarm(message["content"]), **call}

    def _is_vllm(self) -> bool:
        """Ask which server answers; one that does not say is not vLLM."""
        from slmsearch.http_client import ask_models

        models = ask_models(str(self._client.base_url), self._client.api_key, 10.0, elsewhere=True)
        return any(model.owned_by == "vllm" for model in models or ())

    def close(self) -> None:
        """See `Sampler.close`."""
        self._messages = []

    def _seed(self, row: int) -> int:
        """Return a seed for a row and its turn: with one seed, equal histories would continue alike."""
        drawn = 1_000_003 * (self._sampling.first_row + row) + len(self._messages[row]) if self._sampling.temperature else 0
        return (self._sampling.seed + drawn) % (1 << 31)

    def _write(self, row: int, room: int) -> SampledTurn:
        from slmsearch.http_client import complete

        limit = min(self._sampling.max_new_tokens, room)
        if limit <= 0:
            return SampledTurn("", ended=False)
        reply = complete(
            self._client,
            model=self._model,
            messages=self._messages[row],
            temperature=self._sampling.temperature,
            **WHOLE,
            seed=self._seed(row),
            max_tokens=limit,
            extra_headers=self._headers[row],
            extra_body={**self._extra, **(self._known or {})},
            **({"stop": list(self._sampling.stop)} if self._sampling.stop else {}),
        )
        if isinstance(reply, str):
            return SampledTurn("", ended=False, failure=f"generation: {reply}")
        # A turn cut off by its token limit must not get a closing tag that the policy did not write.
        text = reply.text if reply.is_cut else close_stopped(reply.text, self._sampling.stop)
        self._messages[row].append({"role": "assistant", "content": text})
        return SampledTurn(text, not reply.is_cut, num_tokens=reply.tokens)


def disarm(text: str) -> str:
    """Put an invisible space into anything that could be markup of a template: a server reads markup in contents, too."""
    return _MARKUP.sub(lambda match: match[0] + "\u200b", text)


def close_stopped(text: str, stop: Sequence[str]) -> str:
    """Restore the closing tag that most servers remove, and cut off text behind it from servers that know no stop texts."""
    said = text.rfind(THOUGHT) + 1  # 0 where nothing was thought; stop texts count only behind this index
    if text.find(THINK, said) >= 0:
        return text
    ends = [found + len(mark) for mark in stop if (found := text.find(mark, said)) >= 0]
    if ends:
        return text[: min(ends)]
    opened = _OPEN.search(text, said)
    closing = f"</{opened[1]}>" if opened else ""
    return text + closing if closing in stop and closing else text
