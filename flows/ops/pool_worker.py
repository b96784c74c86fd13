"""`python -m flows.ops.pool_worker worker start ...`: Prefect's command, whose worker takes no more flow runs once it is told so (SIGUSR1).

Prefect's own takes what is scheduled until it ends. While it waits for its flow runs to stop, it would take the rest of the queue, which
would be stopped in turn, although another worker could play it.
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
    """Take what is scheduled, as the worker does, until it is closed."""
    return [] if _closed else await _take(self)


if __name__ == "__main__":
    from prefect.cli import app

    signal.signal(CLOSE, close)
    BaseWorker.get_and_submit_flow_runs = take_unless_closed  # type: ignore[method-assign]
    app()
