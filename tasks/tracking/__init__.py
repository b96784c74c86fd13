"""MLflow; nothing outside this package imports it.

`run_registry.py` is what is read of all runs and versions, and deleted; `tracker.py` what a run writes beside that; `champions.py` who is
promoted; `service.py` where the store is.
"""

from tasks.tracking.champions import PromotionEvent, move_champion, read_promotions, roll_back
from tasks.tracking.run_registry import RunRecord, RunRegistry, VersionRecord, open_run_registry
from tasks.tracking.service import (
    ADAPTER_HASH,
    BASE_MODEL,
    CHAMPION,
    ENDED,
    FLOW_RUN,
    FLOW_RUN_NAME,
    KEY,
    OWNER,
    PREFIX,
    STAGE,
    tracking_uri,
)
from tasks.tracking.tracker import MAX_PARAM_CHARS, Tracker, describe_stop, open_tracker

__all__ = [
    "ADAPTER_HASH",
    "BASE_MODEL",
    "CHAMPION",
    "ENDED",
    "FLOW_RUN",
    "FLOW_RUN_NAME",
    "KEY",
    "MAX_PARAM_CHARS",
    "OWNER",
    "PREFIX",
    "STAGE",
    "PromotionEvent",
    "RunRecord",
    "RunRegistry",
    "Tracker",
    "VersionRecord",
    "describe_stop",
    "move_champion",
    "open_run_registry",
    "open_tracker",
    "read_promotions",
    "roll_back",
    "tracking_uri",
]
