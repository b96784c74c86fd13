"""Flows without Prefect and without what is slow to draw or check: real keys, real stores, real tracking, in well under a second each."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slmsearch.config import JudgeConfig, PathsConfig, RunConfig, TrackingConfig
from slmsearch.corpus.data_report import DataReport
from slmsearch.evaluate.store import load_evaluation
from tasks.tracking import open_tracker
from tests.flows.fakes import FakeTraining, WordEmbedder, make_config, replace_heavy_parts, write_corpus

STAGES = ("load_corpus_task", "validate_task", "build_index_task", "evaluate_task", "compare_task", "train_task", "train_control_task",
    "register_task", "record_evaluation_task")  # fmt: skip
SHOWN = ("flows.stages.pipeline.show_lineage", "flows.stages.pipeline.show_mlflow_run", "flows.stages.stages.show_table",
    "flows.evaluate.show_table",
    "flows.stages.summary.leave_reports", "flows.stages.summary.show_comparison")  # fmt: skip


class Plain:
    """A task as the function it is; counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)

    def with_options(self, **_: Any) -> "Plain":
        return self


def plain(task: Any) -> Plain:
    """Return the function of a task, or of what has taken its place already."""
    return Plain(task.function if isinstance(task, Plain) else task.fn)


def record_metrics(
    run_id: str, _name: str, key: str, _model: str | None, _judge: JudgeConfig, paths: PathsConfig, tracking: TrackingConfig
) -> None:
    """Record an evaluation without its table and traces."""
    open_tracker(paths, tracking).record_metrics(run_id, load_evaluation(paths.evals, key).metrics)


def small_run(home: Path, empty_store: Path, **sections: dict[str, Any]) -> RunConfig:
    """Make the config of a run with as few stages as its flow can have; it shares data and store with others of the same home."""
    store = home / "mlruns" / "mlflow.db"
    known = store.read_bytes() if store.exists() else None
    fewer = {"evaluate": {"baselines": [], "split": "all"}, "control": {"enabled": False}}
    config = make_config(home, write_corpus(home / "corpus"), empty_store, **{**fewer, **sections})
    if known is not None:
        store.write_bytes(known)
    return config


def without_prefect(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """Replace tasks by their functions, everything shown by nothing, models by stand-ins; call `flow.fn(config)` then."""
    from flows.stages import promotion, stages

    training = replace_heavy_parts(monkeypatch)
    monkeypatch.setattr("slmsearch.retrieval.embedders.load_embedder", lambda _: WordEmbedder())
    for name in STAGES:
        monkeypatch.setattr(stages, name, plain(getattr(stages, name)))
    monkeypatch.setattr(stages, "validate_task", Plain(lambda *_: DataReport("")))
    monkeypatch.setattr(stages, "record_evaluation_task", Plain(record_metrics))
    monkeypatch.setattr(promotion, "promote_task", plain(promotion.promote_task))
    for place in SHOWN:
        monkeypatch.setattr(place, lambda *_, **__: None)
    monkeypatch.setattr(stages, "device", lambda _: nullcontext())
    monkeypatch.setattr("flows.stages.pipeline.flow_run", SimpleNamespace(id=None, name=None, ui_url=None))
    return training
