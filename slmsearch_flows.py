"""Entrypoints of the deployments, under a name that no folder of a user's hides.

Prefect puts the current folder first on `sys.path` while it imports an entrypoint (prefect 3.9.1, `utilities/importtools.py`). In a project
with a `flows/` or a `tasks.py` of its own, those would be imported in place of the packages here. This module therefore takes the current
folder off the path while it imports the flows.
"""

import sys
from pathlib import Path

_path, _code = sys.path[:], Path(__file__).resolve().parent
sys.path[:] = [entry for entry in _path if Path(entry).resolve() != Path.cwd() or Path.cwd() == _code]
try:
    from flows.data import reindex, validate
    from flows.evaluate import evaluate
    from flows.evaluate_shard import evaluate_shard
    from flows.housekeeping import housekeeping
    from flows.learn import learn
    from flows.nightly import nightly
    from flows.reconcile import reconcile
    from flows.refresh import refresh
    from flows.train import forecast, train_and_eval, train_planner
finally:
    sys.path[:] = _path

__all__ = [
    "evaluate",
    "evaluate_shard",
    "forecast",
    "housekeeping",
    "learn",
    "nightly",
    "reconcile",
    "refresh",
    "reindex",
    "train_and_eval",
    "train_planner",
    "validate",
]
