"""The flows as Prefect runs them, with a real store of MLflow and stand-ins for models and training."""

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from flows.cli.text import render_result, render_summary
from flows.data import reindex, validate
from flows.evaluate import evaluate
from flows.nightly import nightly
from flows.runtime.device import device, device_names
from flows.train import train, train_and_eval
from slmsearch.config import JudgeConfig, RunConfig
from slmsearch.errors import CorpusError, InvalidDataError, ModelError, PreflightError, TrainingError
from slmsearch.judge.prompt import render_prompt
from slmsearch.judge.qualify import load_cases, qualify, require_qualified
from slmsearch.retrieval.versions import current_key
from slmsearch.training.files import JUDGE
from slmsearch.training.job import TrainJob
from slmsearch.training.reports import Collapse
from tasks import record
from tasks.lineage import made_by, named_by
from tasks.nights import nights_dir
from tasks.promotion import find_champion
from tasks.runs import LATEST, find_run, load_results
from tasks.tracking import Tracker, open_tracker
from tasks.tracking.run_registry import _run_record
from tests.flows.fakes import STEPS_TRAINED, FakeTraining, make_config, replace_heavy_parts, shown_artifacts, write_corpus
from tests.judge_server import Behaviour, JudgeServer

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(600)]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    return replace_heavy_parts(monkeypatch)


@pytest.fixture
def config(isolated_environment: Path, training: FakeTraining, empty_store: Path) -> RunConfig:
    return make_config(isolated_environment, write_corpus(isolated_environment / "corpus"), empty_store)


@pytest.fixture
def small(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The same without what takes time and only the first test looks at: the page, the control and what is traced."""
    monkeypatch.setattr("flows.stages.summary.leave_reports", lambda *_: None)
    monkeypatch.setattr(record, "TRACED_EPISODES", 0)
    return config.model_copy(update={"control": config.control.model_copy(update={"enabled": False})})


def task_states(flow_run_id: Any) -> dict[str, str]:
    """Name of each task run, without its suffix -> name of its state."""
    mine = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=mine, limit=200)
    short = {run.name: run.name if run.name.startswith(("evaluate-", "compare-")) else run.name.rpartition("-")[0] for run in runs}
    return {short[run.name]: str(run.state_name) for run in runs}


def run_states(flow: Callable[..., Any], config: RunConfig) -> dict[str, str]:
    state = flow(config, return_state=True)
    state.result()
    return task_states(state.state_details.flow_run_id)


def mlflow_runs(config: RunConfig) -> dict[str, list[Any]]:
    """Stage -> runs, the newest first."""
    tracker = open_tracker(config.paths, config.tracking)
    found: dict[str, list[Any]] = {}
    for run in tracker.client.search_runs([tracker.experiment_id], order_by=["attributes.start_time DESC"]):
        found.setdefault(run.data.tags["slmsearch.stage"], []).append(run)
    return found


def curve(tracker: Tracker, run_id: str, name: str) -> list[int]:
    return [point.step for point in tracker.client.get_metric_history(run_id, name)]


def test_train_and_eval_leaves_everything_where_people_and_machines_look(config: RunConfig) -> None:
    summary = train_and_eval(config)
    latest = json.loads((Path(config.paths.mlruns_dir) / "latest.json").read_text())
    assert latest == summary
    assert summary["n"] == 30
    assert summary["before"]["answer/typed_match"] == 0.0
    assert summary["after"]["answer/typed_match"] > 0.8
    assert summary["difference"]["low"] > 0
    assert summary["decision"] == "promote"
    assert summary["control"]["seconds"] == 1.5
    assert set(summary["rl_adds"]) == {"mean", "low", "high", "p"}
    assert set(summary["baselines"]) == {"random"}
    assert {"validate", "index", "evaluate-before", "train", "evaluate-after", "compare"} <= set(summary["seconds"])

    runs, tracker = mlflow_runs(config), open_tracker(config.paths, config.tracking)
    parent = runs["train-and-eval"][0]
    assert parent.info.run_id == summary["mlflow_run_id"]
    assert parent.info.run_name == f"train-and-eval {parent.data.tags['prefect.flow_run_name']}"
    compared = {name: summary[name]["answer/typed_match"] for name in ("before", "after")}
    compared |= {"difference": summary["difference"]["mean"], "low": summary["difference"]["low"], "high": summary["difference"]["high"]}
    metrics = parent.data.metrics
    assert {name: value for name, value in metrics.items() if name.startswith("compare/")} == {
        f"compare/{n}": v for n, v in compared.items()
    }
    assert (parent.data.tags["slmsearch.decision"], parent.data.tags["slmsearch.reason"]) == (summary["decision"], summary["reason"])
    stages = {"validate", "index", "evaluate-before", "evaluate-random", "train", "train-control", "evaluate-control", "evaluate-after"}
    assert set(runs) == {"train-and-eval", "report", "compare", "compare-control", *stages}, "one run a stage and no stray one"
    for found in runs.values():
        assert [run.info.status for run in found] == ["FINISHED"]
        assert found[0].data.tags.get("prefect.flow_run_id") == summary["flow_run_id"]
    assert {runs[stage][0].data.tags["mlflow.parentRunId"] for stage in stages} == {parent.info.run_id}
    assert parent.data.params["train.lora.r"] == "16"
    assert curve(tracker, runs["train"][0].info.run_id, "reward/mean") == [1, 2, 3, 4]
    assert curve(tracker, runs["train-control"][0].info.run_id, "optim/grad_norm") == [1]
    artifacts = {item.path for item in tracker.client.list_artifacts(parent.info.run_id)}
    assert {"config.json", "lineage.json", "summary.json", "report.md", "figures", "report"} <= artifacts
    assert "Report of <bdi>" in Path(summary["report"]["page"]).read_text()
    assert summary["warnings"] == []
    address = f"/runs/{parent.info.run_id}/artifacts/report/report.html"
    assert [address in str(a.data) for a in shown_artifacts(summary["flow_run_id"]) if a.key == "report"] == [True]
    traces = tracker.client.search_traces(locations=[tracker.experiment_id], run_id=runs["evaluate-after"][0].info.run_id)
    assert len(traces) == 24 and all(trace.info.token_usage["output_tokens"] > 0 for trace in traces)

    assert {name for name, found in runs.items() if "slmsearch.prompt_version" in found[0].data.tags} == {
        "evaluate-before", "evaluate-after", "evaluate-control", "train",
    }  # fmt: skip
    prompt = tracker.client.load_prompt("slmsearch-searcher-prompt", version=1)
    assert prompt is not None and prompt.template[-1] == {"role": "user", "content": "{{question}}"}

    champion = tracker.champion(config.tracking.registered_model)
    assert champion is not None
    lineage = summary["lineage"]
    (shown,) = (str(a.data) for a in shown_artifacts(summary["flow_run_id"]) if a.key == "lineage")
    assert json.loads(shown.removeprefix("```json").removesuffix("```")) == lineage
    assert champion["slmsearch.adapter_hash"] == lineage["adapter_hash"] == summary["training"]["hash"]
    assert champion["slmsearch.data_digest"] == lineage["data_digest"]
    assert champion["slmsearch.index_key"] == lineage["index_key"]
    assert champion["slmsearch.train_key"] == lineage["train_key"]
    assert lineage["model_version"] == champion["version"] == "1"


def test_a_run_on_real_pages_is_shown_beside_reading_and_remembering(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_start(config: RunConfig, sources: list[str], out: Path, on_log: Any, **_: Any) -> dict[str, Any]:
        assert (sources, config.searcher.reads) == (["gold"], "tools")
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text("{}")
        (out / "model.safetensors").write_bytes(b"start")
        (out / "sft.json").write_text(json.dumps({"start": config.policy.model}))
        return {"source": "gold", "steps": 5, "seconds": 2.0}

    monkeypatch.setattr("slmsearch.training.teach.train_start", train_start)
    monkeypatch.setattr("flows.stages.summary.leave_reports", lambda *_: None)
    monkeypatch.setattr("flows.train.FEW", 6)
    config = config.changed({"decision.min_questions": 6, "evaluate.baselines": ["retrieve-then-answer"]})
    summary = train_and_eval(config.changed({"sft.start": "gold"}))
    assert summary["decision"] == "promote", "the start with its adapter is better than the model as it came"
    assert summary["n"] > 6
    assert "after - closed_book" in render_result(summary, config.paths, config.decision), (
        "policies on fewer questions are compared on these"
    )
    assert json.loads((Path(config.paths.mlruns_dir) / "latest-real.json").read_text()) == summary
    for name in ("untrained", "few_shot", "closed_book", "reader", "retrieve_then_answer", "start", "sft_continued", "after"):
        assert {"answer/typed_match", "answer/exact_match", "answer/f1", "episode/tool_calls"} <= set(summary[name]), name
        by = summary[name]["by"]
        assert list(by) == ["hops=1", "kind=one_hop", "source=towns"], name
        asked = 6 if name in ("untrained", "few_shot", "closed_book") else summary["n"]
        assert by["source=towns"]["n"] == summary[name]["n"] == asked, name
        assert by["hops=1"]["answer/correct"] == summary[name]["answer/correct"], name
    for name in ("difference", "difference_sft", "difference_reader", "difference_untrained"):
        assert set(summary[name]) == {"mean", "low", "high", "p"}
    said = "Untrained, without worked examples, answer/typed_match is 0.000 on 6 of these questions, trained 1.000"
    assert summary["beside_untrained"].startswith(said)
    assert said in render_result(summary, config.paths, config.decision)
    tracker = open_tracker(config.paths, config.tracking)
    assert load_results(tracker, find_run(tracker, LATEST), config.paths).reason == f"{summary['reason']} {summary['beside_untrained']}"
    start = config.paths.training / f"sft-{summary['lineage']['sft_key']}"
    champion = find_champion(config.paths, config.tracking)
    assert champion is not None
    assert champion.policy(config.policy).model == str(start), "the champion plays on the start that it was trained on"
    with pytest.raises(ModelError, match="was trained on"):
        champion.policy(config.policy.changed({"model": str(start.parent)}))
    runs = mlflow_runs(config)
    assert {"train-sft", "train-reader", "evaluate-reader", "compare-reader", "evaluate-base", "evaluate-closed-book"} <= set(runs)
    assert runs["train-reader"][0].data.params["control.seconds"] == "1.5", "as long as GRPO"
    assert runs["train-control"][0].data.params["control.seconds"] == "1.5"
    baselines = ("evaluate-base", "evaluate-few-shot", "evaluate-closed-book", "evaluate-reader")
    assert len({runs[name][0].data.tags["slmsearch.eval_key"] for name in baselines}) == 4
    first, other = summary["lineage"], train_and_eval(config.changed({"sft.start": "gold", "train.seed": 1}))["lineage"]
    keys = ("sft_key", "reader_key", "control_key", "train_key")
    assert [first[key] == other[key] for key in keys] == [True, True, False, False], "seeds share the start and the reader"
    kept = {f"control-{first[key]}" for key in ("reader_key", "control_key")}
    assert kept <= {ref.key for ref in named_by({f"slmsearch.{key}": value for key, value in first.items()}) if ref.kind == "training"}
    assert f"control-{first['reader_key']}" in {made.key for name in runs for made in map(made_by, map(_run_record, runs[name])) if made}


def test_a_second_run_finds_what_has_not_changed(small: RunConfig) -> None:
    expensive = ("validate", "build-index", "evaluate-untrained", "evaluate-random")
    first = run_states(train_and_eval, small)
    assert {name: first[name] for name in expensive} == dict.fromkeys(expensive, "Completed")
    changed = small.model_copy(update={"train": small.train.model_copy(update={"learning_rate": 0.5})})
    second = run_states(train_and_eval, changed)
    assert {name: second[name] for name in expensive} == dict.fromkeys(expensive, "Cached")


def test_a_stored_result_is_not_believed_without_its_artefact(small: RunConfig) -> None:
    small = small.model_copy(update={"evaluate": small.evaluate.model_copy(update={"policy": "random"})})
    first = evaluate(small)
    shutil.rmtree(Path(small.paths.data_dir) / "index")
    shutil.rmtree(Path(small.paths.data_dir) / "evals" / first["key"])
    states = run_states(evaluate, small)
    assert (states["validate"], states["build-index"], states["evaluate-random"]) == ("Cached", "Completed", "Completed")
    assert evaluate(small)["metrics"] == first["metrics"] | {"time/episode_s": pytest.approx(first["metrics"]["time/episode_s"], abs=5)}


def test_changed_data_are_validated_and_indexed_again(config: RunConfig, isolated_environment: Path) -> None:
    first = reindex(config)

    def rename(questions: list[dict[str, Any]]) -> None:
        questions[0]["question"] = "In which year was TownA0 founded?"

    write_corpus(isolated_environment / "corpus", rename)
    states = run_states(reindex, config)
    assert states["validate"] == "Completed", "the questions are others"
    assert states["build-index"] == "Cached", "the pages are the same"
    assert reindex(config)["data_digest"] != first["data_digest"]


def test_a_critical_finding_stops_before_anything_expensive(isolated_environment: Path, training: FakeTraining, empty_store: Path) -> None:
    def spoil(questions: list[dict[str, Any]]) -> None:
        questions[7]["answer"] = "1066"

    config = make_config(isolated_environment, write_corpus(isolated_environment / "corpus", spoil), empty_store)
    state = train_and_eval(config, return_state=True)
    with pytest.raises(InvalidDataError, match="q7"):
        state.result()
    assert state.is_failed()
    assert set(task_states(state.state_details.flow_run_id)) == {"load-corpus", "validate"}
    assert training.calls == 0
    assert not (Path(config.paths.data_dir) / "index").exists()
    assert not (Path(config.paths.mlruns_dir) / "latest.json").exists()
    runs, tracker = mlflow_runs(config), open_tracker(config.paths, config.tracking)
    assert {stage: run[0].info.status for stage, run in runs.items()} == {"train-and-eval": "FAILED", "validate": "FAILED"}
    folder = tracker.client.list_artifacts(runs["validate"][0].info.run_id, "validation")
    table = tracker.client.load_table(tracker.experiment_id, folder[0].path, [runs["validate"][0].info.run_id])
    assert list(table["failing_ids"]) == ["q7"]
    shown = [a for a in shown_artifacts(state.state_details.flow_run_id) if a.key == "validation-findings"]
    assert "q7" in str(shown[0].data)


@pytest.mark.parametrize(("error", "status"), [(TrainingError("out of luck"), "FAILED"), (SystemExit(143), "KILLED")])
def test_an_interrupted_training_goes_on_in_the_same_runs(
    small: RunConfig, training: FakeTraining, error: BaseException, status: str
) -> None:
    training.fail_with = error
    with pytest.raises(type(error)):
        train_and_eval(small)
    broken = mlflow_runs(small)
    assert broken["train-and-eval"][0].info.status == broken["train"][0].info.status == status

    train_and_eval(small)
    whole, tracker = mlflow_runs(small), open_tracker(small.paths, small.tracking)
    for stage in ("train-and-eval", "train"):
        assert [run.info.run_id for run in whole[stage]] == [broken[stage][0].info.run_id]
        assert whole[stage][0].info.status == "FINISHED"
    assert curve(tracker, whole["train"][0].info.run_id, "reward/mean") == list(range(1, STEPS_TRAINED + 1))


def test_a_collapse_is_a_tag_in_mlflow_and_an_event_in_prefect(
    small: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr("tasks.train.emit_event", lambda event, resource, payload: events.append((event, payload)))
    training.collapse = Collapse("entropy", 3.0, 1.5, returned_to=2, learning_rate=1e-4)
    train_and_eval(small)
    run = mlflow_runs(small)["train"][0]
    assert run.data.tags[f"slmsearch.collapse.{STEPS_TRAINED}"] == training.collapse.describe()
    assert events == [("slmsearch.train.collapsed", {"step": STEPS_TRAINED, **asdict(training.collapse)})]


def test_what_a_training_took_of_a_card_is_recorded_and_shown(small: RunConfig, training: FakeTraining) -> None:
    assert "card" not in train(small), "without a card there is no such figure"
    training.content, training.card = b"another", {"update": {"allocated_gib": 2.5, "reserved_gib": 3.0, "busy_frac": 0.75}}
    summary = train_and_eval(small.changed({"train.seed": 5}))
    params = mlflow_runs(small)["train"][0].data.params
    assert summary["training"]["card"] == training.card
    assert {name: value for name, value in params.items() if name.startswith("train.card.")} == {
        "train.card.update.allocated_gib": "2.5",
        "train.card.update.reserved_gib": "3.0",
        "train.card.update.busy_frac": "0.75",
    }
    assert "update 75 % busy, 2.5 GiB" in render_summary(summary, small.paths, small.decision)


def test_a_worse_adapter_does_not_replace_the_champion(small: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    train_and_eval(small)
    training.content = b"another adapter"
    other = small.model_copy(update={"train": small.train.model_copy(update={"seed": 1})})
    monkeypatch.setattr("flows.stages.promotion.compare_evaluations", lambda *_: {"decision": "reject", "reason": "It fell."})
    summary = train_and_eval(other)
    assert summary["decision"] == "hold"
    assert "champion" in summary["reason"]
    champion = open_tracker(small.paths, small.tracking).champion(small.tracking.registered_model)
    assert champion is not None
    assert champion["version"] == "1"


def test_evaluate_takes_the_champion_once_there_is_one(small: RunConfig) -> None:
    assert evaluate(small)["policy"] == "untrained"
    train_and_eval(small)
    found = evaluate(small)
    assert found["policy"] == "champion"
    assert found["metrics"]["answer/typed_match"] > 0.8


def test_a_night_is_played_anew_and_ends_as_a_flow_run_with_its_record(small: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    played = small.evaluate.model_copy(update={"policy": "random"})
    nights = small.nightly.model_copy(update={"fresh_pages": 40})
    small = small.model_copy(update={"evaluate": played, "nightly": nights})
    known = evaluate(small)
    reindexed = current_key(small.paths.index)
    state = nightly(small, return_state=True)
    result, states = state.result(), task_states(state.state_details.flow_run_id)
    assert (states["evaluate-random"], states["judge-night"]) == ("Completed", "Completed"), "not looked up"
    assert result["state"] == "green" and result["night"]["fixed"]["eval_key"] != known["key"]
    assert current_key(small.paths.index) == reindexed, "a fresh world's index is current for nobody"
    assert {path.stem for path in nights_dir(small.paths, small.tracking).iterdir()} == {result["night"]["night"]}
    assert [a.key for a in shown_artifacts(result["flow_run_id"]) if a.key == "night"] == ["night"]
    run = mlflow_runs(small)["nightly"][0]
    assert run.info.status == "FINISHED" and run.data.tags["slmsearch.state"] == "green"

    monkeypatch.setattr("flows.nightly.tell", lambda _, night: replace(night, state="regressed"))
    monkeypatch.setattr("flows.nightly.describe_night", lambda _: "worse than before")
    state = nightly(small, return_state=True)
    assert (state.type.value, state.name, state.message) == ("COMPLETED", "Regressed", "worse than before")
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(state.state_details.flow_run_id).state_name == "Regressed"
    assert nightly(small)["state"] == "regressed", "who calls the flow gets what it found"


def test_asking_for_a_champion_where_there_is_none_is_an_error(config: RunConfig) -> None:
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"policy": "champion"})})
    with pytest.raises(ModelError, match="no champion yet"):
        evaluate(config)


def test_what_is_missing_is_said_before_anything_is_done(config: RunConfig) -> None:
    gone = config.model_copy(update={"policy": config.policy.model_copy(update={"model": "/no/such/model"})})
    with pytest.raises(ModelError, match="/no/such/model"):
        train_and_eval(gone)
    gone = config.model_copy(update={"corpus": config.corpus.model_copy(update={"pages": "/no/such/pages.jsonl"})})
    with pytest.raises(CorpusError, match=r"corpus\.pages"):
        validate(gone)
    assert not mlflow_runs(config)


def test_a_stage_holds_its_device_and_gives_it_back(config: RunConfig) -> None:
    name = device_names(config.train, {})[0]
    assert name == f"gpu:{socket.gethostname()}:0"
    assert device_names(config.train, {"CUDA_VISIBLE_DEVICES": "2,3"}) == [f"gpu:{socket.gethostname()}:2"]
    with get_client(sync_client=True) as client:
        with device(config.train):
            assert client.read_global_concurrency_limit_by_name(name).active_slots == 1
        limit = client.read_global_concurrency_limit_by_name(name)
    assert (limit.limit, limit.active_slots) == (1, 0)


def test_training_takes_only_a_judge_that_has_passed_and_its_run_says_how(
    small: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_as_the_process_does(job: TrainJob, *args: Any, **options: Any) -> Any:
        job.directory.mkdir(parents=True, exist_ok=True)
        (job.directory / JUDGE).write_text(json.dumps(asdict(require_qualified(job.config.judge, job.config.paths.data_dir))))  # type: ignore[arg-type]
        return training.train(job, *args, **options)

    monkeypatch.setattr("tasks.train.train", train_as_the_process_does)
    right = {render_prompt(case.as_question(), case.answer): case.correct for case in load_cases()}
    with JudgeServer(Behaviour(truth=lambda prompt: right.get(prompt, False))) as server:
        judge = JudgeConfig(kind="ollama", model="judge", base_url=server.url)
        small = small.model_copy(update={"judge": judge})
        with pytest.raises(PreflightError, match="has not been measured; run `slmsearch judge qualify`"):
            train(small)
        assert training.calls == 0 and not (Path(small.paths.data_dir) / "index").exists()
        qualify(judge, small.paths.data_dir)
        train(small)
    (run,) = [run for run in mlflow_runs(small)["train"] if "mlflow.parentRunId" in run.data.tags]
    assert "passed on" in run.data.tags["slmsearch.judge"]
    assert "judge.json" in {item.path for item in open_tracker(small.paths, small.tracking).client.list_artifacts(run.info.run_id)}
