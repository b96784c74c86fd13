"""How this package speaks to servers that its settings name: judges, models, embedders.

Such a server is trusted with the prompts that it gets, and with nothing else: it can send no client to another address, and no answer is
read further than `MAX_BYTES`.
"""

import functools
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

import httpx

from slmsearch.foreign import without_credentials

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletion

MAX_BYTES = 64 << 20
"""Of an answer; 1,000 embeddings of 1,024 numbers, written as text, take 20 MB."""
ANSWER_SECONDS = 3.0
"""Time a server of this machine has to answer; a busy one may miss one check, so that one miss alone proves nothing."""


def make_client(timeout_s: float, **settings: Any) -> httpx.Client:
    """Make a client that follows no redirect and reads no answer without a limit; one that is too long is an `httpx.ReadError`."""
    return httpx.Client(timeout=timeout_s, verify=_trusted(), **bounded(), **settings)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Read the certificates once a process: each time takes some 50 ms."""
    return httpx.create_ssl_context()


def make_openai(base_url: str, api_key: str, timeout_s: float, max_retries: int) -> "OpenAI":
    """Make OpenAI's client on top of it."""
    from openai import OpenAI

    http_client: Any = make_client(timeout_s)  # its types ask for httpx2's, it takes httpx's as well
    return OpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=max_retries, http_client=http_client)


def complete(client: "OpenAI", **request: Any) -> "ChatCompletion | str":
    """Ask for a chat completion; where there is none, return why, without the key."""
    from openai import OpenAIError

    place = without_credentials(str(client.base_url))
    try:
        reply = client.chat.completions.create(**request)
    except OpenAIError as error:
        return without_credentials(f"{type(error).__name__} from {place}: {error}", client.api_key)[:300]
    return reply if reply.choices else f"{place} sent a reply without choices"


def answers(address: str, timeout_s: float = ANSWER_SECONDS, auth: str = "", elsewhere: bool = False) -> bool:
    """Say whether a GET succeeds.

    Args:
        address: what is asked for.
        timeout_s: time to answer.
        auth: `user:password`, where the server wants one.
        elsewhere: the server may be on another machine, for which proxies are asked.
    """
    try:
        with make_client(timeout_s, trust_env=elsewhere) as client:
            return client.get(address, auth=tuple(auth.split(":", 1)) if auth else None).is_success  # type: ignore[arg-type]
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def list_models(base_url: str, api_key: str | None = None, timeout_s: float = ANSWER_SECONDS, elsewhere: bool = False) -> list[str] | None:
    """Return the names an OpenAI-compatible server gives its models, or None where no such server answers."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, KeyError, AttributeError):
        with make_client(timeout_s, trust_env=elsewhere) as client:
            reply = client.get(f"{base_url.rstrip('/')}/models", headers=headers)
        if reply.is_success:
            return [str(model["id"]) for model in reply.json()["data"]]
    return None


class Bounds(TypedDict):
    """Settings of a client that bound what its server can do."""

    follow_redirects: bool
    event_hooks: dict[str, list[Callable[..., Any]]]


def bounded() -> Bounds:
    """Return the settings of such a client, for libraries that make their own."""
    return {
        "follow_redirects": False,
        "event_hooks": {"request": [lambda request: request.headers.update({"Accept-Encoding": "identity"})], "response": [_limit]},
    }


class _Limited(httpx.SyncByteStream):
    """Hands on a stream, up to the limit."""

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
    """Limit what is read of an answer. One that is compressed although nobody asked for it could unfold to a thousand times its length."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.ReadError("the answer is compressed, which was not asked for", request=response.request)
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _Limited(response.stream, response.request)
