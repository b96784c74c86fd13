"""Telling somebody: an event for Prefect's automations, and a webhook. Neither may end what it tells of."""

from collections.abc import Mapping

import httpx
from prefect.events import emit_event

REGRESSED, ENDED, EXPECTED = "slmsearch.eval.regressed", "slmsearch.nightly.ended", "slmsearch.nightly.expected"
"""Events: a night is worse than those before it; a night has ended, green or not; nights are scheduled from now on."""
TIMEOUT_S = 10.0
TRIES = 3
SENT = "sent"


def emit(event: str, model: str, payload: Mapping[str, object]) -> None:
    """Emit an event about the nights of a registered model."""
    resource = {"prefect.resource.id": f"slmsearch.nightly.{model}", "prefect.resource.name": f"nights of {model}"}
    emit_event(event, resource=resource, payload=dict(payload))


def post_alarm(address: str, payload: Mapping[str, object]) -> str:
    """Post an alarm to a webhook as JSON; return `sent`, or why it was not. The address holds a secret and is never in what is returned.

    `text` in the payload says it in one sentence, for chats; the rest is for programs.
    """
    if not address.startswith(("http://", "https://")):
        return "failed: nightly.webhook is no address; it begins with http:// or https://"
    outcome = ""
    for _ in range(TRIES):
        try:
            answer = httpx.post(address, json=dict(payload), timeout=TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            outcome = f"failed: {type(error).__name__}"
            continue
        if answer.is_success:
            return SENT
        outcome = f"failed: it answered {answer.status_code}"
        if answer.status_code < 500:  # it will not take the same again
            break
    return outcome
