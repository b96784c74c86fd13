"""Episodes of a training as traces of its run: each once, whatever was killed when, and looked up with the training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import RunConfig
from slmsearch.training.job import TrainJob
from slmsearch.training.reports import StepReport, make_report
from slmsearch.training.samples import SampledEpisode, SampleKind
from tasks import train as training
from tasks.tracking import Tracker, open_tracker
from tests.slmsearch.evaluate.builders import make, play, say, search

STEPS = 4


def make_step(step: int) -> StepReport:
    """A step whose best and worst episode are of the same question, as in every other step."""
    episode = play(search("mira"), say("1823"))
    kinds = (SampleKind.BEST, SampleKind.WORST)
    samples = tuple(SampledEpisode(kind, make("q1", kind is SampleKind.BEST), episode) for kind in kinds)
    return replace(make_report(step, {"reward/mean": step / 10}), samples=samples if step % 2 else ())


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A run whose training says four steps, two of them with episodes."""

    def train(job: TrainJob, on_step: Callable[[StepReport], None], after_step: int = 0) -> dict[str, Any]:
        for step in range(after_step + 1, STEPS + 1):
            on_step(make_step(step))
        return {"adapter_hash": "h", "steps": STEPS, "seconds": 1.0, "spent": {}}

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr("slmsearch.training.job.model_hash", lambda _: "model")
    return RunConfig.model_validate({"paths": {"data_dir": str(tmp_path / "data"), "mlruns_dir": str(tmp_path / "mlruns")}})


def traced(tracker: Tracker, run_id: str) -> list[tuple[str, str]]:
    found = tracker.client.search_traces(locations=[tracker.experiment_id], run_id=run_id)
    return sorted((trace.info.tags["step"], trace.info.tags["sample"]) for trace in found)


def test_a_trace_is_written_once_whatever_was_killed(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, killed = open_tracker(config.paths, config.tracking), []
    record_step = Tracker.record_step

    def record_step_or_die(self: Tracker, run_id: str, step: int, *rest: Any) -> None:
        if step == 3 and not killed:  # between its traces and its metrics
            killed.append(step)
            raise SystemExit(143)
        record_step(self, run_id, step, *rest)

    monkeypatch.setattr(Tracker, "record_step", record_step_or_die)
    expected = [("1", "best"), ("1", "worst"), ("3", "best"), ("3", "worst")]
    with pytest.raises(SystemExit), tracker.run("train", "key") as broken:
        training.train_task.fn("digest", "index", broken, config)
    with tracker.run("train", "key") as run_id:
        training.train_task.fn("digest", "index", run_id, config)
    assert run_id == broken and killed == [3]
    assert traced(tracker, run_id) == expected
    assert [point.step for point in tracker.client.get_metric_history(run_id, "reward/mean")] == [1, 2, 3, 4]

    with tracker.run("train", "looked up") as other:  # by another run, with the same settings
        training.train_task.fn("digest", "index", other, config)
    assert traced(tracker, other) == expected
    found = tracker.client.search_traces(locations=[tracker.experiment_id])
    assert len(found) == 4, "linked, not written again"
    root, *turns = found[0].data.spans
    assert root.attributes["reward"] == 0.96 and root.attributes["reward_parts"]["correct"] == 1.0
    assert [span.name for span in turns if span.name.startswith("turn")] == ["turn 1", "turn 2"]
    (job,) = {trace.info.tags["train_key"] for trace in found}
    assert {key for *_, key, _ in tracker.traces(before_s=1e12)} == {job}
