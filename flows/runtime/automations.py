"""Automations for events that no run can report: its death, a night that was lost or never came. Created once, by name.

- `slmsearch: a night regressed` waits for the event of the flow `nightly`, which calls the webhook itself; users may add actions here.
- `slmsearch: a night was lost`: the flow failed, crashed or was cancelled.
- `slmsearch: a night is missing`: none has ended since the last one for 26 hours. Each end restarts the clock, and so does each
  deployment (`expect_nights`) if no clock runs; the alarm is raised once.

The last two call the webhook from the server, through a block that holds its address. Changes that people make to an automation stay;
only one without actions gets the webhook once there is one.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events import (
    ActionTypes,
    AutomationCore,
    CallWebhook,
    ChangeFlowRunState,
    DoNothing,
    EventTrigger,
    Posture,
    ResourceSpecification,
    emit_event,
)
from prefect.settings.context import get_current_settings

from tasks.owners import BEATS, HEARTBEAT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

REGRESSED, ENDED, EXPECTED = "slmsearch.eval.regressed", "slmsearch.nightly.ended", "slmsearch.nightly.expected"
"""Events: a night is worse than those before it; a night has ended, green or not; nights are scheduled from now on."""
HELD_BACK, HELD_BACK_STATE = "slmsearch.documents.held-back", "HeldBack"
"""Event and state of a flow run that left edited documents unserved."""
HEARTBEATS = "slmsearch: flow runs without a heartbeat"
SHORTEST_S = 30
"""Minimum interval of Prefect's heartbeats."""
LATE_H = 26.0
"""Hours after the end of a night by which the next must have ended; later raises an alarm."""
REGRESSED_STATE = "Regressed"
"""Name of the state of a night that is worse than those before."""
ENDS = tuple(f"prefect.flow-run.{state}" for state in ("Completed", REGRESSED_STATE, HELD_BACK_STATE, "Failed", "Cancelled", "Crashed"))
NAMES = REGRESSION, LOST, MISSING = "slmsearch: a night regressed", "slmsearch: a night was lost", "slmsearch: a night is missing"
BLOCK = "slmsearch-alarms"
"""Name of the webhook block with the address."""
LOST_STATES = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed", "prefect.flow-run.Cancelled", "prefect.flow-run.TimedOut"}
ANY_MODEL = ResourceSpecification({"prefect.resource.id": "slmsearch.nightly.*"})
ANY_RUN = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
OF_NIGHTLY = ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": "nightly"})
LOST_TEXT = (
    '{"alarm": "lost", "text": {{ ("The nightly evaluation " ~ flow_run.name ~ " ended as " ~ flow_run.state.name ~ ": "'
    ' ~ (flow_run.state.message or "no reason was given")) | tojson }}, "flow_run_id": {{ (flow_run.id | string) | tojson }}}'
)
MISSING_TEXT = '{"alarm": "missing", "text": "No nightly evaluation has ended for %g hours; see worker, schedule and pool."}'


def emit(event: str, model: str, payload: Mapping[str, object], of: str = "nightly") -> None:
    """Emit an event about the nights of a registered model, or about its documents."""
    resource = {"prefect.resource.id": f"slmsearch.{of}.{model}", "prefect.resource.name": f"{of} of {model}"}
    emit_event(event, resource=resource, payload=dict(payload))


def watch_heartbeats(client: "SyncPrefectClient") -> bool:
    """Create the automation that ends flow runs whose heartbeats have stopped, unless it exists; return whether it was created.

    It covers the case in which flow, worker and machine die together. Prefect's own server has no such automation.
    """
    frequency = get_current_settings().flows.heartbeat_frequency
    if frequency is None or client.read_automations_by_name(HEARTBEATS):
        return False
    within_s = BEATS * max(frequency, SHORTEST_S)
    client.create_automation(
        AutomationCore(
            name=HEARTBEATS,
            description="Ends a flow run whose process, worker and machine are gone: nobody else would say so.",
            trigger=_silence(ANY_RUN, {HEARTBEAT}, {HEARTBEAT, *ENDS}, timedelta(seconds=within_s)),
            actions=[ChangeFlowRunState(name=None, state=StateType.CRASHED, message=f"no heartbeat for {within_s} s", force=False)],
        )
    )
    return True


def _silence(match: ResourceSpecification, after: set[str], expect: set[str], within: timedelta, alone: bool = True) -> EventTrigger:
    """Return a trigger that fires if a resource, or unless `alone` all of them, sends none of the expected events in time after one that
    starts the clock."""
    each = {"prefect.resource.id"} if alone else set[str]()
    return EventTrigger(match=match, for_each=each, after=after, expect=expect, within=within, posture=Posture.Proactive, threshold=1)


def create_alarms(client: "SyncPrefectClient", address: str | None) -> list[str]:
    """Create the missing automations, with a webhook's address as their action if there is one; return their names.

    The server looks for their events some moments after it has answered.
    """
    block = _save_block(address) if address else None
    known = {found.name: found for found in client.read_automations()}
    created = []
    for wanted in _automations(block):
        found = known.get(wanted.name)
        if found is None:
            client.create_automation(wanted)
            created.append(wanted.name)
        elif all(isinstance(action, DoNothing) for action in found.actions) and wanted.actions != found.actions:
            client.delete_automation(found.id)  # an update would have to leave out what the server alone may set
            client.create_automation(wanted.model_copy(update={"enabled": found.enabled}))
    return created


def expect_nights(model: str) -> None:
    """Start the clock of the next night of a registered model, unless one runs."""
    emit(EXPECTED, model, {"late_h": LATE_H})


def _automations(block: UUID | None) -> Sequence[AutomationCore]:
    def told(payload: str) -> list[ActionTypes]:
        return [CallWebhook(block_document_id=block, payload=payload)] if block else [DoNothing()]

    return [
        AutomationCore(
            name=REGRESSION,
            description="The champion is worse than on the nights before. The flow calls the webhook itself; add other actions here.",
            trigger=EventTrigger(expect={REGRESSED}, match=ANY_MODEL),
            actions=[DoNothing()],
        ),
        AutomationCore(
            name=LOST,
            description="A nightly evaluation failed, crashed or was cancelled.",
            trigger=EventTrigger(expect=LOST_STATES, match=ANY_RUN, match_related=OF_NIGHTLY),
            actions=[*told(LOST_TEXT)],
        ),
        AutomationCore(
            name=MISSING,
            description="No nightly evaluation has ended in time.",
            trigger=_silence(ANY_MODEL, {ENDED, EXPECTED}, {ENDED}, timedelta(hours=LATE_H), alone=False),  # one model is scheduled
            actions=[*told(MISSING_TEXT % LATE_H)],
        ),
    ]


def _save_block(address: str) -> UUID:
    from prefect.blocks.webhook import Webhook
    from prefect.types import SecretDict
    from pydantic import SecretStr

    block = Webhook(url=SecretStr(address), method="POST", headers=SecretDict({"Content-Type": "application/json"}))
    saved = block.save(BLOCK, overwrite=True)
    assert isinstance(saved, UUID)
    return saved
