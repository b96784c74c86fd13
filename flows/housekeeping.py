"""The flow `housekeeping`: list data that nothing needs, and delete it only on request."""

from dataclasses import asdict
from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from flows.runtime.worker_secrets import ALL_BUT_TRACKING, settle
from flows.stages.artifacts import show_table
from flows.stages.pipeline import DEFAULTS
from slmsearch.config import RunConfig
from slmsearch.errors import ServiceError
from tasks.housekeeping import Housekeeping, Item, Rules


@flow(name="housekeeping", persist_result=True, result_serializer="json")
def housekeeping(
    config: RunConfig = DEFAULTS,
    apply: bool = False,
    older_than_days: Annotated[float, Field(ge=0)] = 14.0,
    keep_versions: Annotated[int, Field(ge=0)] = 3,
) -> dict[str, object]:
    """List data that nothing needs and that is old enough; with `apply` delete it.

    Args:
        config: names the directories.
        apply: delete; without it nothing changes.
        older_than_days: days since the last change.
        keep_versions: newest versions of each model that stay.
    """
    config = settle(config, ALL_BUT_TRACKING)
    work = Housekeeping(config, Rules(older_than_days, keep_versions))
    items, failed = work.carry_out() if apply else (list(work.plan().items), list[str]())
    size = sum(item.num_bytes for item in items)
    show_table("housekeeping", summarise(items), "What was deleted" if apply else "What may go; nothing was changed")
    get_run_logger().info("%d things, %.1f MB, %s", len(items), size / 1e6, "were deleted" if apply else "may go; nothing was changed")
    if failed:
        raise ServiceError(f"{len(failed)} items could not be deleted, {len(items)} were (first: {failed[0]}); fix that and run it again")
    shown = [{name: value for name, value in asdict(item).items() if name != "path"} for item in items]
    return {"applied": apply, "items": shown, "bytes": size}


def summarise(items: list[Item]) -> list[dict[str, str]]:
    """Return a row for each kind of thing."""
    rows = []
    for kind in dict.fromkeys(item.kind for item in items):
        mine = [item for item in items if item.kind == kind]
        rows.append({"kind": kind, "things": str(len(mine)), "MB": f"{sum(item.num_bytes for item in mine) / 1e6:.1f}"})
    return rows
