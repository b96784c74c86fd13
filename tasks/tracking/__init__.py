"""MLflow; no module outside this package imports it.

`run_registry.py` reads and deletes runs and versions; `tracker.py` writes runs; `champions.py` moves the champion; `question_sets.py`
keeps questions as data sets; `service.py` knows the place of the store.
"""

from tasks.tracking.champions import PromotionEvent, move_champion, read_promotions, roll_back
from tasks.tracking.question_sets import WrongQuestion, find_wrong, hash_questions, keep_questions, record_questions
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
    "WrongQuestion",
    "describe_stop",
    "find_wrong",
    "hash_questions",
    "keep_questions",
    "move_champion",
    "open_run_registry",
    "open_tracker",
    "read_promotions",
    "record_questions",
    "roll_back",
    "tracking_uri",
]
