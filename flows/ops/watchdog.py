"""The automation that ends flow runs whose heartbeats have stopped; Prefect's own server has none of that kind.

It is for what nobody is there to notice otherwise: flow, worker and machine gone together. `slmsearch up` and `reconcile`
create it where it is missing; Prefect would make a second one each time.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.settings.context import get_current_settings

from tasks.owners import BEATS, HEARTBEAT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

NAME = "slmsearch: flow runs without a heartbeat"
SHORTEST_S = 30
"""Prefect sends no more heartbeats than one in this time."""
REGRESSED_STATE = "Regressed"
"""Name of the state in which a night ends that is worse than those before."""
ENDS = tuple(f"prefect.flow-run.{state}" for state in ("Completed", REGRESSED_STATE, "Failed", "Cancelled", "Crashed"))


def watch_heartbeats(client: "SyncPrefectClient") -> bool:
    """Create the automation unless one of its name is there; return whether it was created."""
    frequency = get_current_settings().flows.heartbeat_frequency
    if frequency is None or client.read_automations_by_name(NAME):
        return False
    client.create_automation(_automation(max(frequency, SHORTEST_S)))
    return True


def _automation(frequency_s: int) -> AutomationCore:
    return AutomationCore(
        name=NAME,
        description="Ends a flow run whose process, worker and machine are gone: nobody else would say so.",
        trigger=EventTrigger(
            after={HEARTBEAT},
            expect={HEARTBEAT, *ENDS},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=BEATS * frequency_s),
        ),
        actions=[ChangeFlowRunState(name=None, state=StateType.CRASHED, message=f"no heartbeat for {BEATS * frequency_s} s", force=False)],
    )
