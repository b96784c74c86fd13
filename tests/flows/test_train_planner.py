"""The flow `train-planner` as Prefect runs it, with a real store of MLflow and stand-ins for models and training."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli.text import render_result
from flows.evaluate import evaluate
from flows.train import train_planner
from slmsearch.config import RunConfig
from slmsearch.corpus.data_report import DataFinding, DataReport
from slmsearch.environments.planner.plan import DIRECT, render_plan
from slmsearch.environments.planner.problems import generate_problems, gold_plan
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import CorpusError, InvalidDataError
from slmsearch.training.job import TrainJob
from tasks.tracking import open_tracker
from tests.flows.fakes import FakeTraining, make_config, replace_heavy_parts
from tests.slmsearch.environments.planner.words import WordIndependence

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(600)]

PROBLEMS = 600
GOLD = {problem.text: render_plan(gold_plan(problem)) for problem in generate_problems(21, PROBLEMS)}


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """The untrained planner leaves everything to the worker; the trained one writes gold plans."""

    def make_sampler(policy: Any, tool_role: str) -> ScriptedSampler:
        return ScriptedSampler(lambda problem, results: GOLD[problem] if policy.adapter else render_plan(DIRECT))

    def lay_out(job: TrainJob, out: Path) -> Path:
        out.mkdir(parents=True, exist_ok=True)
        return out

    training = replace_heavy_parts(monkeypatch)
    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", make_sampler)
    monkeypatch.setattr("slmsearch.environments.planner.planner_environment.make_independence", lambda _: WordIndependence())
    monkeypatch.setattr("slmsearch.training.export.lay_out", lay_out)
    return training


@pytest.fixture
def config(isolated_environment: Path, training: FakeTraining, empty_store: Path) -> RunConfig:
    planner = {"limit": PROBLEMS, "max_plan_tokens": 10_000}
    return make_config(isolated_environment, {}, empty_store, planner=planner)


def runs_of(config: RunConfig) -> dict[str, Any]:
    tracker = open_tracker(config.paths, config.tracking)
    found = tracker.client.search_runs([tracker.experiment_id], max_results=100)
    return {run.data.tags["slmsearch.stage"]: run for run in found}


def test_the_whole_flow(config: RunConfig) -> None:
    summary = train_planner(config)
    latest = json.loads((Path(config.paths.mlruns_dir) / "latest-planner.json").read_text())
    assert latest["n"] == PROBLEMS
    assert latest["after"]["answer/correct"] == 1.0
    assert 0.2 <= latest["worker_alone"]["answer/correct"] == latest["before"]["answer/correct"] <= 0.5
    assert set(latest["difference"]) == {"mean", "low", "high", "p"}
    assert latest["difference"]["low"] > 0.4 and latest["gain"]["low"] > 0.4
    assert latest["controls"]["plan-is-question"]["plan/restated_frac"] == 1.0
    assert latest["controls"]["plans-shuffled"]["answer/correct"] < 0.1
    assert latest["decision"] == "promote"
    assert not (Path(config.paths.mlruns_dir) / "latest.json").exists()
    assert "Gain over the worker alone" not in (page := Path(latest["report"]["page"]).read_text()), "the stand-in reports no gain"
    assert "Suspected reward hacks" in page and latest["warnings"] == []

    stages = runs_of(config)
    expected = {"validate", "evaluate-worker-alone", "evaluate-before", "train", "lay-out", "evaluate-after", "compare", "report"}
    assert expected <= set(stages)
    parent = stages["train-planner"].data
    assert parent.params["planner.worker.kind"] == "arithmetic"
    assert not any(name.startswith(("searcher.", "corpus.")) for name in parent.params)
    assert parent.metrics["eval/plan/gain"] > 0.4
    tracker = open_tracker(config.paths, config.tracking)
    assert tracker.champion("slmsearch-planner") is not None
    assert tracker.champion("slmsearch-searcher") is None

    text = render_result(summary, config.paths, config.decision)
    for part in ("worker-alone", "plan-is-question", "plans-shuffled", "gain over worker", "hops=6", "promote"):
        assert part in text


def test_a_run_with_supervised_plans_starts_from_them(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_start(config: RunConfig, sources: list[str], out: Path, on_log: Any, **_: Any) -> dict[str, Any]:
        assert sources == ["demonstrations"]
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text("{}")
        on_log(50, {"loss": 0.5})
        return {"source": "generated", "examples": 0, "steps": 50, "seconds": 1.0}

    monkeypatch.setattr("slmsearch.training.teach.train_start", train_start)
    plans = config.planner.sft.model_copy(update={"enabled": True})
    config = config.model_copy(update={"planner": config.planner.model_copy(update={"sft": plans})})
    summary = train_planner(config)
    assert "sft_key" in summary["lineage"]
    assert runs_of(config)["train-sft"].data.metrics["loss"] == 0.5


def test_what_is_missing_is_said_before_anything_is_done(config: RunConfig, training: FakeTraining) -> None:
    gone = config.model_copy(update={"planner": config.planner.model_copy(update={"problems": "/no/such.jsonl"})})
    with pytest.raises(CorpusError, match=r"planner\.problems: .* give a \.jsonl or \.parquet file, or hub:"):
        train_planner(gone)
    assert training.calls == 0


def test_bad_problems_stop_before_anything_expensive(config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = DataFinding("e", "problems", "c", "critical", 1, ("p7",), "bad")
    monkeypatch.setattr(
        "slmsearch.environments.planner.planner_environment.check_problems",
        lambda digest, problems: DataReport(digest, findings=(finding,)),
    )
    with pytest.raises(InvalidDataError, match="p7"):
        train_planner(config)
    assert training.calls == 0
    assert runs_of(config)["train-planner"].info.status == "FAILED"


def test_the_other_flows_know_what_a_planner_plays_on(config: RunConfig) -> None:
    planner = config.model_copy(update={"environment": "planner"})
    found = evaluate(planner)
    assert (found["policy"], found["n"]) == ("untrained", PROBLEMS)
    assert found["metrics"]["plan/gain"] == 0.0
