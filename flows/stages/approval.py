"""A person's word before a promotion: the flow run pauses, and its page in Prefect asks with a form.

Prefect's own function to pause would end the run where nobody answers (so does its server, when the pause has timed out) and where the
server is away for a minute; here the first is an answer, and the second is waited for.
"""

import time
from http import HTTPStatus
from typing import cast
from uuid import UUID, uuid4

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import PrefectHTTPStatusError
from prefect.input import RunInput, keyset_from_paused_state
from prefect.input.run_input import Keyset
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Paused
from pydantic import Field

from flows.stages.pipeline import own_flow_run
from slmsearch.errors import ServiceError

POLL_SECONDS = 2.0
EXPIRY_S = 86_400.0
"""Time by which Prefect's own timeout of a pause comes later than ours: it fails the run."""


class Approval(RunInput):
    """A person's answer."""

    approve: bool = Field(default=False, description="Whether the trained version becomes the champion.")
    reason: str = Field(min_length=1, max_length=500, description="Recorded with the version.")


def ask_to_approve(markdown: str, wait_s: float) -> Approval:
    """Pause the flow run until somebody answers; a time without an answer is a refusal.

    Args:
        markdown: text above the form.
        wait_s: time to wait for an answer, in seconds.

    Raises:
        ServiceError: the run cannot be paused, or was set to another state meanwhile.
    """
    form, run_id = Approval.with_initial_data(description=markdown), UUID(flow_run.id)
    paused: State[None] = Paused(timeout_seconds=int(wait_s + EXPIRY_S), reschedule=False, pause_key=f"approve-{uuid4()}")
    keys = keyset_from_paused_state(paused)
    paused.state_details.run_input_keyset = {str(name): key for name, key in keys.items()}
    with get_client(sync_client=True) as client:
        if client.set_flow_run_state(run_id, paused).status != SetStateStatus.ACCEPT:
            raise ServiceError("Prefect does not let this flow run pause for approval; run it without --approve")
        get_run_logger().info("waiting for approval, %.0f s at most: %s", wait_s, flow_run.ui_url)
        return _wait(client, run_id, form, keys, wait_s)


def _show(client: SyncPrefectClient, run_id: UUID, form: type[Approval], keys: Keyset) -> None:
    """Save the form for the page, also where an earlier try was cut off in the middle."""
    for name in ("schema", "description"):
        try:
            client.delete_flow_run_input(run_id, keys[name])
        except PrefectHTTPStatusError as error:
            if error.response.status_code != HTTPStatus.NOT_FOUND:
                raise
    form.save(keys)


def _wait(client: SyncPrefectClient, run_id: UUID, form: type[Approval], keys: Keyset, wait_s: float) -> Approval:
    until, is_shown, is_away = time.monotonic() + wait_s, False, False
    nobody = Approval(approve=False, reason=f"nobody answered within {wait_s:.0f} s")
    while True:
        try:
            state = client.read_flow_run(run_id).state
            if state is not None and state.is_running():
                own_flow_run()
                given = cast("Approval", Approval.load(keys))
                return given.model_copy(update={"reason": " ".join(given.reason.split()) or "no reason given"})
            if state is None or not state.is_paused():
                raise ServiceError(f"the flow run was set to {state and state.name} while it waited for approval")
            if not is_shown:  # a label counts from the state on that it is younger than; a pause discards what was saved under its keys
                own_flow_run()
                _show(client, run_id, form, keys)
                is_shown = True
            if time.monotonic() > until:
                client.resume_flow_run(run_id, run_input=nobody.model_dump())
            is_away = False
        except (httpx.TransportError, PrefectHTTPStatusError) as error:
            if isinstance(error, PrefectHTTPStatusError) and not error.response.is_server_error:
                raise
            if not is_away:
                get_run_logger().warning("Prefect's server does not answer (%s); still waiting for approval", type(error).__name__)
            is_away = True
        time.sleep(POLL_SECONDS)
