"""`python -m flows.ops.pool_worker worker start ...`: Prefect's command with a worker that takes no more flow runs after SIGUSR1.

Prefect's own worker takes scheduled flow runs until it ends. While it waits for its flow runs to stop, it would take the rest of the
queue and stop that in turn, although another worker could play it.
"""

import signal
from types import FrameType
from typing import TYPE_CHECKING, Any

from prefect.workers.base import BaseWorker

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

CLOSE = signal.SIGUSR1
CLOSED = "takes no more flow runs"

_take = BaseWorker.get_and_submit_flow_runs
_closed = False


def close(_number: int, _frame: FrameType | None) -> None:
    """Take no more flow runs."""
    global _closed
    _closed = True
    print(CLOSED, flush=True)


async def take_unless_closed(self: "BaseWorker[Any, Any, Any]") -> "list[FlowRun]":
    """Take scheduled flow runs, as Prefect's worker does, until the worker is closed."""
    return [] if _closed else await _take(self)


if __name__ == "__main__":
    from prefect.cli import app

    signal.signal(CLOSE, close)
    BaseWorker.get_and_submit_flow_runs = take_unless_closed  # type: ignore[method-assign]
    app()
