"""Clients of judge servers: Ollama by its own API, all others by OpenAI's.

A client requests a short reply without thoughts. If the reply is incomplete, it asks once more, with thoughts and room for them. The error
says whether the same request may succeed later (`ServerError.passing`); `judge/llm.py` repeats it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slmsearch.config import JudgeConfig
from slmsearch.errors import JudgeError, ServiceError
from slmsearch.foreign import without_credentials
from slmsearch.judge.prompt import MAX_REPLY_TOKENS, REPLY_SCHEMA, THOUGHT_TOKENS
from slmsearch.judge.reply import Reply

DEFAULT_URLS = {"ollama": "http://127.0.0.1:11434", "openai": "http://127.0.0.1:8000/v1"}
PASSING_STATUS = frozenset({408, 425, 429})
"""HTTP statuses below 500 after which the same request may succeed."""
KEEP_ALIVE = {True: "30m", False: "1m"}
"""Time that Ollama keeps the model after its last reply: True if `judge.loaded` is `always`, else the time to sample one turn."""
THOUGHT_TIMES = 5
"""Factor on `judge.timeout_s` for a reply with thoughts."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """Form of a model's reply."""

    name: str
    schema: Mapping[str, object]
    """JSON schema, for servers that can enforce one."""
    max_tokens: int
    """Maximum number of tokens, without thoughts."""


VERDICT = ReplyForm("verdict", REPLY_SCHEMA, MAX_REPLY_TOKENS)


class ServerError(JudgeError):
    """Error of a server without a reply; `passing`: the same request may succeed later, after `retry_after_s` if the server gave it."""

    def __init__(self, message: str, passing: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.passing, self.retry_after_s = passing, retry_after_s


class JudgeClient(Protocol):
    """Client of one model on one server; called from several threads.

    Every method raises a `ServerError` if the server does not answer, lacks the model, or does not identify it.
    """

    def ask(self, prompt: str) -> Reply:
        """Return the model's reply."""

    def identify(self) -> str:
        """Return a name of the model that changes when its verdicts may, as far as the server can tell."""

    def release(self) -> None:
        """Free the device until the next question, if configured."""


def make_client(config: JudgeConfig, form: ReplyForm = VERDICT) -> JudgeClient:
    """Create the client of the configured server, for replies of that form, without connecting.

    Raises:
        ValueError: the kind is not a language model.
    """
    if config.kind == "ollama":
        return OllamaClient(config, form)
    if config.kind == "openai":
        return OpenAIClient(config, form)
    raise ValueError(f"judge kind {config.kind!r} asks no model")


class _Client:
    """Common parts of both clients: address, model, and the form of outages."""

    server: ClassVar[str]
    kind: ClassVar[str]

    def __init__(self, config: JudgeConfig, form: ReplyForm = VERDICT) -> None:
        self._address = config.base_url or DEFAULT_URLS[self.kind]
        self._config, self._url, self._form = config, without_credentials(self._address), form
        self._key = config.api_key.get_secret_value() if config.api_key else None
        self._thinks = False
        """True if the model thinks although thoughts are disabled."""

    def ask(self, prompt: str) -> Reply:
        """Implement `JudgeClient.ask`; a model that always thinks is asked for thoughts from its second question on."""
        if not self._thinks:
            reply = self._ask(prompt, thoughts=False)
            if not reply.cut_off and (reply.said or not reply.thinks):
                return reply
        reply = self._ask(prompt, thoughts=True)
        self._thinks = self._thinks or reply.thinks
        return reply

    def _ask(self, prompt: str, thoughts: bool) -> Reply:
        """Send one request."""
        raise NotImplementedError

    def _room(self, thoughts: bool) -> int:
        return self._form.max_tokens + (THOUGHT_TOKENS if thoughts else 0)

    def _outage(self, cause: object, status: int = 0, retry_after_s: float = 0.0) -> ServerError:
        """Describe an outage; `status` is the HTTP status, 0 without a complete reply."""
        passing = not 0 < status < 500 or status in PASSING_STATUS
        text = without_credentials(" ".join((str(cause) or type(cause).__name__).split()), self._key)[:200]
        remedy = "start it" if passing else "check judge.model, judge.base_url and judge.api_key"
        told = f"{self.server} at {self._url} gave no verdict with model {self._config.model!r} ({text})"
        return ServerError(f"{told}; {remedy}, or set judge.kind=exact", passing, retry_after_s)


class OllamaClient(_Client):
    """Client of a model in Ollama, identified by the digest of its weights and settings."""

    server, kind = "Ollama", "ollama"

    def __init__(self, config: JudgeConfig, form: ReplyForm = VERDICT) -> None:
        """Set address, model, timeout and the time that the model stays loaded."""
        import httpx
        import ollama

        from slmsearch.http_client import bounded

        super().__init__(config, form)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else None
        waits = (config.timeout_s, config.timeout_s * THOUGHT_TIMES)
        clients = [ollama.Client(host=self._address, timeout=wait, headers=headers, **bounded()) for wait in waits]
        self._clients = dict(zip((False, True), clients, strict=True))
        """Clients without (False) and with (True) thoughts."""
        self._think: bool | None = False
        """Value of Ollama's option for thoughts; None if the model has no such option."""
        self._outages = (ollama.ResponseError, ollama.RequestError, ConnectionError, httpx.HTTPError)

    def _ask(self, prompt: str, thoughts: bool) -> Reply:
        think = None if thoughts else self._think
        try:
            reply = self._call(
                self._clients[thoughts].chat,
                model=self._config.model,
                messages=[{"role": "user", "content": prompt}],
                format=self._form.schema,
                options={"temperature": 0.0, "seed": 0, "num_predict": self._room(thoughts)},
                keep_alive=KEEP_ALIVE[self._config.loaded == "always"],
                think=think,
            )
        except ServerError as error:  # Ollama before 0.12.5 refuses even `false` for a model that does not think
            if think is None or "not support thinking" not in str(error.__cause__):
                raise
            self._think = None
            return self._ask(prompt, thoughts)
        message = reply.message
        if (message.content is None and message.thinking is None) or not reply.done:
            raise self._outage("the reply is incomplete")
        cut_off = reply.done_reason == "length"
        return Reply(message.content or "", message.thinking or "", cut_off, reply.eval_count or self._room(thoughts))

    def identify(self) -> str:
        """Implement `JudgeClient.identify`: `ollama:<digest>`, the same wherever the same model is served."""
        wanted = self._config.model if ":" in self._config.model.rpartition("/")[2] else f"{self._config.model}:latest"
        for model in self._call(self._clients[False].list).models:
            if model.model == wanted and model.digest:
                return f"ollama:{model.digest}"
        remedy = f"ollama pull {self._config.model}"
        raise ServerError(f"Ollama at {self._url} has no model {self._config.model!r}; {remedy}, or set judge.model", passing=False)

    def release(self) -> None:
        """Implement `JudgeClient.release`; an empty request with a keep-alive of 0 unloads the model."""
        if self._config.loaded != "always":
            self._call(self._clients[False].generate, model=self._config.model, keep_alive=0)

    def _call(self, method: Any, **arguments: Any) -> Any:
        from slmsearch.http_client import misfit

        try:
            return method(**arguments)
        except self._outages as error:
            raise self._outage(error, getattr(error, "status_code", 0)) from error
        except (ValueError, TypeError, AttributeError) as error:  # Ollama's client raises these for an unexpected body
            raise self._outage(f"it sent no reply of {self.server}'s: {misfit(error)}") from error


class OpenAIClient(_Client):
    """Client of a model behind an OpenAI-compatible endpoint, which does not reveal its weights."""

    server, kind = "judge server", "openai"

    def __init__(self, config: JudgeConfig, form: ReplyForm = VERDICT) -> None:
        """Set address, model and timeout."""
        from slmsearch.http_client import make_openai

        super().__init__(config, form)
        # Local servers need no key, but without one the client would read the environment.
        self._client = make_openai(self._address, self._key or "none", config.timeout_s, 0)
        schema = {"name": form.name, "schema": form.schema, "strict": True}
        self._forms: tuple[dict[str, object], ...] = (
            {"response_format": {"type": "json_schema", "json_schema": schema}},
            {"response_format": {"type": "json_object", "schema": form.schema}},  # the only form that llama-cpp-python's server accepts
            {},
        )
        self._switches: tuple[dict[str, object], ...] = ({"chat_template_kwargs": {"enable_thinking": False}}, {})

    def _ask(self, prompt: str, thoughts: bool) -> Reply:
        """Send a request with an enforced form and without thoughts, unless the server refuses either."""
        import openai

        for switch in self._switches[-1:] if thoughts else self._switches:
            for form in self._forms:
                try:
                    reply = self._complete(prompt, thoughts, {**form, **switch})
                except openai.OpenAIError as error:
                    if not (form or switch) or not _refuses_form(error):
                        raise self._describe(error) from error
                    if switch and "chat_template_kwargs" in error.response.text:  # type: ignore[attr-defined]
                        break
                else:  # the server refused the form or the switch, and always will
                    self._forms = self._forms[self._forms.index(form) :]
                    if not thoughts:
                        self._switches = self._switches[self._switches.index(switch) :]
                    return reply
        raise AssertionError("the last form refuses nothing")

    def _complete(self, prompt: str, thoughts: bool, more: dict[str, object]) -> Reply:
        from slmsearch.http_client import read_completion

        sent = self._client.chat.completions.with_raw_response.create(
            model=self._config.model,
            messages=[{"role": "user", "content": prompt}],
            temperature=0.0,
            seed=0,
            max_tokens=self._room(thoughts),
            timeout=self._config.timeout_s * (THOUGHT_TIMES if thoughts else 1),
            extra_body=more,
        )
        try:
            read = read_completion(sent.http_response)
        except ServiceError as error:
            is_page = "json" not in sent.http_response.headers.get("content-type", "")  # would come again; a partial reply may not
            raise self._outage(f"it {error}", sent.http_response.status_code if is_page else 0) from error
        return Reply(read.text, read.thoughts, read.is_cut, read.tokens or self._room(thoughts))

    def identify(self) -> str:
        """Implement `JudgeClient.identify` by model id and address; other weights under the same name go unnoticed."""
        return f"openai:{self._config.model}@{self._url.rstrip('/')}"

    def release(self) -> None:
        """Implement `JudgeClient.release`; the protocol has no such request."""

    def _describe(self, error: Any) -> ServerError:
        response = getattr(error, "response", None)
        if response is None:
            return self._outage(f"{error} {error.__cause__ or ''}")
        wait = response.headers.get("retry-after", "")
        return self._outage(f"{error} {response.text}", response.status_code, float(wait) if wait.isdecimal() else 0.0)


def _refuses_form(error: Any) -> bool:
    """Return True if a server refuses the form or the switch; llama-cpp-python's does so with status 500."""
    response = getattr(error, "response", None)
    return response is not None and (response.status_code in (400, 422) or "response_format" in response.text)
