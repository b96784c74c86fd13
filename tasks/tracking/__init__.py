"""MLflow; nothing outside this package imports it.

It was one file until reading what other runs recorded came to writing one's own, which together are too much for a file.
`tracker.py` is what a run writes, `champions.py` who is promoted, `registry.py` what people and other commands read of all runs,
`service.py` where the store is.
"""

from tasks.tracking.champions import PromotionEvent, move_champion, read_promotions, roll_back
from tasks.tracking.run_registry import RunRecord, RunRegistry, VersionRecord, open_run_registry
from tasks.tracking.service import ADAPTER_HASH, BASE_MODEL, CHAMPION, ENDED, FLOW_RUN, KEY, OWNER, PREFIX, STAGE, tracking_uri
from tasks.tracking.tracker import MAX_PARAM_CHARS, Tracker, describe_stop, open_tracker

__all__ = [
    "ADAPTER_HASH",
    "BASE_MODEL",
    "CHAMPION",
    "ENDED",
    "FLOW_RUN",
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
