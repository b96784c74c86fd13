"""Write a retrieval report into an MLflow run of its own."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.evaluate.retrieval import METRICS
from slmsearch.keys import content_key
from tasks.tracking import open_tracker

STAGE = "retrieval-report"


def record_retrieval(result: Mapping[str, Any], text: str, config: RunConfig) -> str:
    """Record metrics, tables and figure; return the run's id.

    Args:
        result: as `summarise_ranks` gives it, with the index key.
        text: the tables.
        config: run.
    """
    from slmsearch.report.figures import write_charts
    from slmsearch.report.retrieval import draw_retrieval

    tracker = open_tracker(config)
    metrics = {
        f"{name}/{metric}": of[metric]
        for name, of in result["retrievers"].items()
        for metric in (*METRICS, "mrr")
        if of[metric] is not None
    }
    key = content_key(stage=STAGE, index=result["index_key"], questions=result["questions_key"])
    with tracker.run(STAGE, key) as run_id, TemporaryDirectory() as folder:
        tracker.record_params(run_id, {"index": result["index_key"], "questions": result["n"], "split": result["split"]})
        tracker.record_metrics(run_id, metrics)
        tracker.record_json(run_id, result, "retrieval.json")
        tracker.record_text(run_id, text, "retrieval.txt")
        for path in write_charts(Path(folder), {"retrieval": draw_retrieval(result)}):
            tracker.record_file(run_id, path, "figures")
        tracker.set_tags(run_id, {"slmsearch.index_key": result["index_key"]})
    return run_id
