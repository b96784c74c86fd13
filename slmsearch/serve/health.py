"""Asking a server how it is."""

from contextlib import suppress

import httpx

from slmsearch.http_client import make_client

ANSWER_SECONDS = 3.0
"""Time a server has to answer; a busy one may miss one check, so that one miss alone proves nothing."""


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


def list_models(base_url: str, timeout_s: float = ANSWER_SECONDS) -> list[str] | None:
    """Return the names an OpenAI-compatible server gives its models, or None where no such server answers."""
    with suppress(httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError):
        with make_client(timeout_s, trust_env=False) as client:
            reply = client.get(f"{base_url}/models")
        if reply.is_success:
            return [str(model["id"]) for model in reply.json()["data"]]
    return None
