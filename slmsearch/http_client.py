"""HTTP clients for servers that the settings name: judges, models, embedders.

Such a server is trusted with the prompts that it gets, and with nothing else: it cannot redirect a client to another address, and no answer
is read beyond `MAX_BYTES`.
"""

import functools
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

import httpx
from pydantic import BaseModel, Field, ValidationError

from slmsearch.errors import ServiceError
from slmsearch.foreign import one_line, without_credentials

if TYPE_CHECKING:
    from openai import OpenAI

MAX_BYTES = 64 << 20
"""Maximum size of an answer; 1,000 embeddings of 1,024 numbers, written as text, take 20 MB."""
BROKEN_OFF = frozenset({"abort", "error", "content_filter"})
"""Finish reasons of a turn that the server broke off: its text is incomplete."""
BEGINNING = 80
"""Characters shown of an unexpected body."""
ANSWER_SECONDS = 3.0
"""Timeout of a server on this machine, in seconds; a busy one may miss one check, so one miss alone proves nothing."""


def make_client(timeout_s: float, **settings: Any) -> httpx.Client:
    """Create a client that follows no redirects and limits the size of answers; a longer one raises `httpx.ReadError`."""
    return httpx.Client(timeout=timeout_s, verify=_trusted(), **bounded(), **settings)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Load the certificates once per process: each load takes some 50 ms."""
    return httpx.create_ssl_context()


def make_openai(base_url: str, api_key: str, timeout_s: float, max_retries: int) -> "OpenAI":
    """Create OpenAI's client with the same limits; a timed-out request is not repeated, others are up to `max_retries` times."""
    from openai import OpenAI

    http_client: Any = _AsksOnce(timeout=timeout_s, verify=_trusted(), **bounded())  # the types of openai 3 ask for httpx2's
    return OpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=max_retries, http_client=http_client)


class _AsksOnce(httpx.Client):
    """Client that keeps OpenAI's from repeating a timed-out request: the server may still be working on it."""

    def send(self, request: httpx.Request, **settings: Any) -> httpx.Response:
        from openai import APITimeoutError

        try:
            return super().send(request, **settings)
        except httpx.ReadTimeout as error:
            raise APITimeoutError(request) from error


class ChatReply(BaseModel):
    """Chat completion, with the fields that are read."""

    choices: list["_Choice"] = Field(min_length=1)
    usage: "_Usage | None" = None

    @property
    def text(self) -> str:
        """Text that the model wrote."""
        return self.choices[0].message.content or ""

    @property
    def thoughts(self) -> str:
        """Reasoning that the server returned separately."""
        return self.choices[0].message.reasoning_content or self.choices[0].message.reasoning or ""

    @property
    def is_cut(self) -> bool:
        """True if a token limit ended the text."""
        return self.choices[0].finish_reason == "length"

    @property
    def tokens(self) -> int:
        """Tokens written; 0 if the server does not report them."""
        return (self.usage and self.usage.completion_tokens) or 0

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return (self.usage and self.usage.total_tokens) or 0


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    """Reasoning, as vLLM, SGLang and llama.cpp name it."""
    reasoning: str | None = None
    """Reasoning, as newer vLLM and Ollama name it."""


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    completion_tokens: int | None = None
    total_tokens: int | None = None


def complete(client: "OpenAI", **request: Any) -> ChatReply | str:
    """Request a chat completion; if there is none, return the reason, without the key."""
    from openai import OpenAIError

    place = without_credentials(str(client.base_url))
    try:
        return read_completion(client.chat.completions.with_raw_response.create(**request).http_response)
    except OpenAIError as error:
        return without_credentials(f"{type(error).__name__} from {place}: {error}", client.api_key)[:300]
    except ServiceError as error:
        return without_credentials(f"{place} {error}; does the address end in /v1?", client.api_key)


def read_completion(response: Any) -> ChatReply:
    """Parse a chat completion.

    OpenAI's client returns any body with status 200: a page of HTML as a string, other JSON as an object without choices.

    Raises:
        ServiceError: the body is no chat completion, or the server broke it off; the message shows the body.
    """
    try:
        reply = ChatReply.model_validate_json(response.content)
    except ValidationError as error:
        kind = response.headers.get("Content-Type", "text").partition(";")[0]
        raise ServiceError(f"sent no chat completion but {kind} {one_line(response.text)[:BEGINNING]!r} ({misfit(error)})") from error
    if (reason := reply.choices[0].finish_reason) in BROKEN_OFF:
        raise ServiceError(f"ended the turn early ({reason})")
    return reply


def misfit(error: Exception) -> str:
    """Describe in one line how a reply departs from its protocol."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    return str(error) if isinstance(error, ValueError) else "it is no JSON object"


def answers(address: str, timeout_s: float = ANSWER_SECONDS, auth: str = "", elsewhere: bool = False) -> bool:
    """Return True if a GET succeeds.

    Args:
        address: URL.
        timeout_s: timeout, in seconds.
        auth: `user:password`, if the server requires it.
        elsewhere: use proxies, since the server may be on another machine.
    """
    try:
        with make_client(timeout_s, trust_env=elsewhere) as client:
            return client.get(address, auth=tuple(auth.split(":", 1)) if auth else None).is_success  # type: ignore[arg-type]
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


class ServedModel(BaseModel):
    """Model in a server's list."""

    id: str
    owned_by: str | None = None


class _Models(BaseModel):
    data: list[ServedModel]


def list_models(base_url: str, api_key: str | None = None, timeout_s: float = ANSWER_SECONDS, elsewhere: bool = False) -> list[str] | None:
    """Return the names of the models on an OpenAI-compatible server, or None if no such server answers."""
    models = ask_models(base_url, api_key, timeout_s, elsewhere)
    return None if models is None else [model.id for model in models]


def ask_models(base_url: str, api_key: str | None, timeout_s: float, elsewhere: bool) -> list[ServedModel] | None:
    """Request the models of an OpenAI-compatible server; None if no such server answers."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError):
        with make_client(timeout_s, trust_env=elsewhere) as client:
            reply = client.get(f"{base_url.rstrip('/')}/models", headers=headers)
        if reply.is_success:
            return _Models.model_validate_json(reply.content).data
    return None


class Bounds(TypedDict):
    """Settings of a client that limit its server."""

    follow_redirects: bool
    event_hooks: dict[str, list[Callable[..., Any]]]


def bounded() -> Bounds:
    """Return these settings, for libraries that create their own clients."""
    return {
        "follow_redirects": False,
        "event_hooks": {"request": [lambda request: request.headers.update({"Accept-Encoding": "identity"})], "response": [_limit]},
    }


class _Limited(httpx.SyncByteStream):
    """Stream that ends with an error at the size limit."""

    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request) -> None:
        self._stream, self._request = stream, request

    def __iter__(self) -> Iterator[bytes]:
        total = 0
        for part in self._stream:
            total += len(part)
            if total > MAX_BYTES:
                raise httpx.ReadError(f"the answer is longer than {MAX_BYTES >> 20} MiB", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()


def _limit(response: httpx.Response) -> None:
    """Limit the size of an answer. Refuse one that is compressed without request: it could expand to a thousand times its length."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.ReadError("the answer is compressed without a request for compression", request=response.request)
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _Limited(response.stream, response.request)
