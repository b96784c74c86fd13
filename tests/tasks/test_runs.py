"""Finding a run and what it left, in a real store of MLflow; the page and figures made of it."""

from pathlib import Path

import pytest

from slmsearch.config import RunConfig
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.store import write_evaluation
from slmsearch.report.page.render import run_charts, write_charts
from slmsearch.report.page.results import AFTER, BEFORE, RunResults
from slmsearch.training.files import STEPS
from slmsearch.training.reports import append_report
from tasks.runs import find_run, load_results, make_page
from tasks.tracking import RunRecord, Tracker, open_tracker
from tests.slmsearch.report.page.synthetic import make_run


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    home = tmp_path_factory.mktemp("runs")
    return RunConfig.model_validate({"paths": {"data_dir": str(home / "data"), "mlruns_dir": str(home / "mlruns")}})


@pytest.fixture(scope="module")
def runs(config: RunConfig) -> dict[str, str]:
    """Name -> id: a finished run with everything, an unfinished one, one of `train` with a child of its own name, a stray one."""
    tracker, data = open_tracker(config.paths, config.tracking), Path(config.paths.data_dir)
    made = make_run(12, steps=6)
    for key, evaluation in made.evaluations.items():
        write_evaluation(data / "evals", f"key-{key}", evaluation, {})
    (data / "training" / "trained").mkdir(parents=True)
    for report in made.steps:
        append_report(data / "training" / "trained" / STEPS, report)
    evaluations = {name: f"key-{name}" for name in (BEFORE, AFTER)}
    found = {}
    with tracker.run("train-and-eval", "k1", tags={"prefect.flow_run_name": "clever-otter", "slmsearch.decision": "promote"}) as run_id:
        summary = {"decision": "promote", "reason": "It rose.", "evaluations": evaluations, "lineage": {"train_key": "trained"}}
        tracker.record_json(run_id, summary, "summary.json")
        tracker.record_json(run_id, {"environment": "searcher", "train": {"steps": 6}, "decision": {"min_questions": 100}}, "config.json")
        found["whole"] = run_id
    with tracker.run("train", "k2", tags={"prefect.flow_run_name": "brave-newt", "slmsearch.train_key": "trained"}) as parent:
        tracker.start_run("train", "trained", parent)
        found["train"] = parent
    with tracker.run("evaluate", "k3", tags={"prefect.flow_run_name": "odd", "slmsearch.eval_key_random": "gone"}) as run_id:
        found["lost"] = run_id
    tracker.start_run("validate", "k4")
    return found


def results_of(config: RunConfig, name: str) -> RunResults:
    tracker = open_tracker(config.paths, config.tracking)
    return load_results(tracker, find_run(tracker, name), config.paths)


def test_a_run_is_found_by_id_beginning_name_and_latest(config: RunConfig, runs: dict[str, str]) -> None:
    whole = runs["whole"]
    assert {
        find_run(open_tracker(config.paths, config.tracking), name).id
        for name in (whole, whole[:12], "clever-otter", "train-and-eval clever-otter", "latest", "train-and-eval")
    } == {whole}
    assert find_run(open_tracker(config.paths, config.tracking), "train").id == runs["train"], "the flow's, not its stage's"


@pytest.mark.parametrize("name", ["nothing", "ab", "", "validate"])
def test_what_is_no_run_is_said_with_what_there_is(config: RunConfig, runs: dict[str, str], name: str) -> None:
    with pytest.raises(EvaluationError, match=r"give latest, an MLflow run id.*train-and-eval clever-otter"):
        find_run(open_tracker(config.paths, config.tracking), name)


def test_two_runs_of_one_name_are_both_named(config: RunConfig, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    where, twin = open_tracker(config.paths, config.tracking).experiment_id, {"prefect.flow_run_name": "twin"}
    double = [RunRecord(f"abcd{i}", where, "evaluate", "k", None, "FINISHED", float(i), None, twin) for i in range(2)]
    monkeypatch.setattr(Tracker, "runs", lambda self: double)
    for name in ("twin", "abcd"):
        with pytest.raises(EvaluationError, match="may be 2 runs"):
            find_run(open_tracker(config.paths, config.tracking), name)


def test_an_empty_store_says_what_to_run_first(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracker, "runs", lambda self: [])
    with pytest.raises(EvaluationError, match="run `slmsearch run train-and-eval` first"):
        find_run(open_tracker(config.paths, config.tracking), "latest")


def test_everything_stored_is_loaded(config: RunConfig, runs: dict[str, str]) -> None:
    results = results_of(config, "latest")
    assert list(results.evaluations) == [BEFORE, AFTER]
    assert results.compared is not None and results.compared.n == 12
    assert [report.step for report in results.steps] == [1, 2, 3, 4, 5, 6]
    assert (results.decision, results.reason, results.status) == ("promote", "It rose.", "FINISHED")
    assert results.settings == {"train.steps": "6", "decision.min_questions": "100"}
    assert results.warnings == ()


def test_a_run_without_a_summary_shows_what_its_lineage_names(config: RunConfig, runs: dict[str, str]) -> None:
    results = results_of(config, runs["train"])
    assert not results.evaluations and len(results.steps) == 6
    with pytest.raises(EvaluationError, match=r"has left nothing to show.*random"):
        results_of(config, runs["lost"])


def test_a_damaged_evaluation_is_named_and_the_rest_is_shown(config: RunConfig, runs: dict[str, str]) -> None:
    rows = Path(config.paths.data_dir) / "evals" / f"key-{BEFORE}" / "rows.jsonl"
    kept = rows.read_bytes()
    rows.write_bytes(kept[:-20])
    try:
        results = results_of(config, "latest")
        assert list(results.evaluations) == [AFTER]
        assert "evaluation of before" in results.warnings[0] and "changed since it was written" in results.warnings[0]
    finally:
        rows.write_bytes(kept)


def test_the_page_is_written_and_kept_with_the_run_once(config: RunConfig, runs: dict[str, str]) -> None:
    for _ in range(2):
        made = make_page(["latest"], config.paths, config.tracking)
    path = Path(made["page"])
    assert path.name == f"clever-otter-{runs['whole'][:8]}.html" and path.parent.name == "reports"
    assert "Report of <bdi>clever-otter</bdi>" in path.read_text(encoding="utf-8")
    client = open_tracker(config.paths, config.tracking).client
    assert [item.path for item in client.list_artifacts(runs["whole"], "report")] == ["report/report.html"]

    both = make_page(["latest", runs["train"], "clever-otter"], config.paths, config.tracking, Path(config.paths.mlruns_dir) / "both.html")
    assert [run["name"] for run in both["runs"]] == ["clever-otter", "brave-newt"], "a run named twice is one"
    for run_id in (runs["whole"], runs["train"]):
        assert both["artifact"] in [item.path for item in client.list_artifacts(run_id, "report")]


def test_charts_are_written_as_files(config: RunConfig, runs: dict[str, str], tmp_path: Path) -> None:
    def write(run: str, folder: Path) -> set[str]:
        return {path.name for path in write_charts(folder, run_charts(results_of(config, run)))}

    names = {f"{name}.svg" for name in ("reward", "stop_reasons_over_training", "accuracy_by_kind")}
    assert names <= write("latest", tmp_path / "whole") == {path.name for path in (tmp_path / "whole").iterdir()}
    curves = write(runs["train"], tmp_path / "curves")
    assert curves and "accuracy_by_kind.svg" not in curves


def test_a_missing_artifact_is_none(config: RunConfig, runs: dict[str, str]) -> None:
    assert open_tracker(config.paths, config.tracking).read_json(runs["whole"], "nothing.json") is None


def test_a_run_of_another_version_is_one_line(config: RunConfig) -> None:
    tracker = open_tracker(config.paths, config.tracking)
    with tracker.run("evaluate", "k9") as run_id:
        tracker.record_json(run_id, {"decision": {"alpha": 0.05}}, "config.json")
    with pytest.raises(EvaluationError, match=r"was recorded by another version of slmsearch \(decision\.alpha: Extra inputs"):
        results_of(config, run_id)
