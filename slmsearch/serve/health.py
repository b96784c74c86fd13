"""Asking a server on this machine how it is."""

from contextlib import suppress

import httpx

from slmsearch.http_client import make_client

ANSWER_SECONDS = 3.0
"""Time a server has to answer; a busy one may miss one check, so that one miss alone proves nothing."""


def answers(address: str, timeout_s: float = ANSWER_SECONDS) -> bool:
    """Say whether a GET succeeds. Proxies are for other machines and are not asked."""
    try:
        with make_client(timeout_s, trust_env=False) as client:
            return client.get(address).is_success
    except httpx.HTTPError:
        return False


def list_models(base_url: str, timeout_s: float = ANSWER_SECONDS) -> list[str] | None:
    """Return the names an OpenAI-compatible server gives its models, or None where no such server answers."""
    with suppress(httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError):
        with make_client(timeout_s, trust_env=False) as client:
            reply = client.get(f"{base_url}/models")
        if reply.is_success:
            return [str(model["id"]) for model in reply.json()["data"]]
    return None
