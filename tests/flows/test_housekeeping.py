"""Taking away what nothing needs, after real flows over several corpora in one store; a month later."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from filelock import FileLock
from prefect.exceptions import ParameterTypeError

from flows.cli.main import cli
from slmsearch.artifacts.files import STAGING_PREFIX
from slmsearch.config import RetrievalConfig, RunConfig
from slmsearch.corpus.documents.memory import ParsedDocuments
from slmsearch.corpus.sources import PARSED
from slmsearch.corpus.store import SOURCES
from slmsearch.errors import ServiceError
from slmsearch.evaluate.shards import shards_dir
from slmsearch.judge.cache import FILE as VERDICTS
from slmsearch.judge.cache import StoredVerdict, VerdictCache
from slmsearch.retrieval.vectors import PARTIAL_PREFIX
from slmsearch.retrieval.versions import current_key, is_complete
from slmsearch.training.export_gguf import FILES
from slmsearch.training.files import CHECKPOINTS, LOCK, SCRATCH, scratch_of
from tasks import housekeeping
from tasks.housekeeping import DeletionPlan, Housekeeping, Item, Rules
from tasks.lineage import read_tracked, trace
from tasks.promotion import promote_by_hand, roll_back_by_hand
from tasks.traces import Assessment, Span
from tasks.tracking import CHAMPION, open_run_registry, open_tracker
from tests.flows.fakes import write_corpus
from tests.flows.plain import small_run, without_prefect

LATER = time.time() + 30 * 86_400
RULES = Rules(older_than_days=14, kept_versions=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[tuple[Path, RunConfig, list[dict[str, Any]]]]:
    """An evaluation and three trainings on four corpora, the first training promoted and the last one's index current."""
    from flows.evaluate import evaluate
    from flows.train import train_and_eval

    home, results = tmp_path_factory.mktemp("housekeeping"), []
    played = {"baselines": [], "split": "all", "policy": "random"}
    with pytest.MonkeyPatch.context() as patch:
        training = without_prefect(patch)
        for number in range(4):
            config = small_run(home, empty_store, retrieval={"max_passage_chars": 500 + number % 3}, evaluate=played)

            def rename(questions: list[dict[str, Any]], number: int = number) -> None:
                questions[0]["question"] += f" (asked for the {number}th time)"

            write_corpus(home / "corpus", rename)
            training.content = f"adapter {number}".encode()
            results.append((evaluate if number == 0 else train_and_eval).fn(config))
        open_tracker(config.paths, config.tracking).client.set_registered_model_alias(config.tracking.registered_model, CHAMPION, "1")
        yield home, config, results


@pytest.fixture
def history(made: tuple[Path, RunConfig, list[dict[str, Any]]], tmp_path: Path) -> Iterator[tuple[RunConfig, list[dict[str, Any]]]]:
    """The same for every test: what one takes away is restored where it was, for MLflow knows absolute places."""
    home, config, results = made
    for name in ("data", "mlruns"):
        shutil.copytree(home / name, tmp_path / name)
    yield config, results
    shutil.rmtree(home / "data")
    for name in ("data", "mlruns"):
        shutil.copytree(tmp_path / name, home / name, dirs_exist_ok=True)


def named(planned: DeletionPlan | list[Item], kind: str) -> set[str]:
    items = planned.items if isinstance(planned, DeletionPlan) else planned
    return {item.key for item in items if item.kind == kind}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not path.name.endswith((".lock", ".db"))}


def test_the_flow_only_reports_unless_it_is_told_to_apply(
    history: tuple[RunConfig, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import housekeeping as flow

    shown: list[tuple[list[dict[str, str]], str]] = []
    monkeypatch.setattr(flow, "show_table", lambda _key, rows, told: shown.append((rows, told)))
    monkeypatch.setattr(flow, "get_run_logger", lambda: SimpleNamespace(info=lambda *_: None))
    config, _ = history
    before = files(Path(config.paths.data_dir))
    told = flow.housekeeping.fn(config, older_than_days=0, keep_versions=1)
    assert told["items"] and not told["applied"] and files(Path(config.paths.data_dir)) == before
    done = flow.housekeeping.fn(config, apply=True, older_than_days=0, keep_versions=1)
    assert {item["key"] for item in done["items"]} == {item["key"] for item in told["items"]}
    assert files(Path(config.paths.data_dir)) < before
    assert [told for _, told in shown] == ["What may go; nothing was changed", "What was deleted"] and shown[0][0] == shown[1][0]


def test_what_aliases_and_current_need_stays_and_the_rest_goes(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (evaluated, champion, other, current) = history
    data_dir = Path(config.paths.data_dir)
    for result in (champion, other):
        (config.paths.training / result["lineage"]["train_key"] / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    half = config.paths.index / f"{STAGING_PREFIX}x-999999999"
    half.mkdir()
    shard = shards_dir(config.paths.evals, "e" * 20)
    shard.mkdir(parents=True)
    partial = config.paths.index / f"{PARTIAL_PREFIX}abc"
    partial.mkdir()
    (shard / "file").write_text("x")
    (exported := data_dir / FILES / "abc").mkdir(parents=True)
    (exported.parent / f"{STAGING_PREFIX}y-999999999").mkdir()
    scratch = config.paths.training / f".sft-x{SCRATCH}"
    (scratch / "checkpoint-3").mkdir(parents=True)
    before = files(data_dir)

    planned = Housekeeping(config, RULES, LATER).plan()
    assert files(data_dir) == before, "a plan changes nothing"
    assert named(planned, "trainings") == {other["lineage"]["train_key"]}
    assert named(planned, "checkpoints") == {champion["lineage"]["train_key"]}, "the other training goes as a whole"
    assert other["lineage"]["index_key"] in named(planned, "indexes")
    assert other["lineage"]["data_digest"] in named(planned, "corpora")
    assert {evaluated["key"], other["lineage"]["eval_key_after"]} <= named(planned, "evals")
    assert {half.name, partial.name, scratch.name, f"{STAGING_PREFIX}y-999999999"} <= named(planned, "half-written")
    assert named(planned, "gguf") == {"abc"} and not named(Housekeeping(config, RULES).plan(), "gguf")
    (exported / "abc.gguf").write_text("weights")
    with (exported / "abc.gguf").open("rb") as playing:
        fcntl.flock(playing, fcntl.LOCK_SH)
        assert not named(Housekeeping(config, RULES, LATER).plan(), "gguf"), "a service plays it"
        with pytest.raises(ServiceError, match="a process has begun to play it"):
            housekeeping._delete(Item("gguf", exported.name, 30, path=exported), None, config.retrieval)
    assert scratch.name not in named(Housekeeping(config, RULES).plan(), "half-written"), (
        "a training that was killed lately goes on from it"
    )
    assert named(planned, "shards") == {shard.name}
    assert evaluated["mlflow_run_id"] in named(planned, "runs")
    registry = open_run_registry(config.paths, config.tracking)
    assert registry is not None
    makers = {version.run_id for version in registry.versions()}
    families = {run.parent for run in registry.runs() if run.id in makers} | makers
    assert not families & named(planned, "runs"), "no run behind a registered version"

    gone, failed = Housekeeping(config, RULES, LATER).carry_out()
    assert failed == [] and {(item.kind, item.key) for item in gone} == {(item.kind, item.key) for item in planned.items}
    assert not shard.exists() and not any((data_dir / FILES).iterdir())
    assert not (half.exists() or partial.exists() or scratch.exists())
    assert not (config.paths.index / other["lineage"]["index_key"]).exists()
    artifacts = Path(config.paths.mlruns_dir) / "artifacts" / evaluated["mlflow_run_id"]
    assert artifacts.is_dir() and not named(Housekeeping(config, RULES).plan(), "deleted runs"), "they can be restored"
    gone, failed = Housekeeping(config, RULES, LATER).carry_out()
    assert failed == [] and {item.kind for item in gone} == {"deleted runs"} and named(gone, "deleted runs") == named(planned, "runs")
    assert not artifacts.exists() and Housekeeping(config, RULES, LATER).plan().items == ()
    for kept in (champion, current):
        found = trace(read_tracked(config.paths, config.tracking), kept["lineage"]["train_key"], again=True)
        assert found.verified is not None and found.gaps == []
        assert {change.kind for change in found.verified.changes} <= {"source"}, "the questions were written anew for the next run"
        assert is_complete(config.paths.index / kept["lineage"]["index_key"])
    assert current_key(config.paths.index) == current["lineage"]["index_key"]
    assert trace(read_tracked(config.paths, config.tracking), f"{config.tracking.registered_model}@{CHAMPION}").gaps == []
    told = trace(read_tracked(config.paths, config.tracking), f"{config.tracking.registered_model}/2")
    assert other["lineage"]["index_key"] in {step.name[1] for step in told.up}, "the version's tags still name it"
    assert any(f"index {other['lineage']['index_key']} is named and is not stored here" in gap for gap in told.gaps)


def test_a_supervised_training_that_runs_keeps_its_scratch(tmp_path: Path) -> None:
    scratch = scratch_of(tmp_path / "sft-x")
    scratch.mkdir()
    item = Item("half-written", scratch.name, 15.0, path=scratch)
    with FileLock(tmp_path / ".sft-x.lock"), pytest.raises(OSError):
        housekeeping._delete(item, None, RetrievalConfig())
    assert scratch.exists()
    housekeeping._delete(item, None, RetrievalConfig())
    assert not scratch.exists()


def test_what_every_run_adds_a_little_to_is_bounded(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, _ = history
    data_dir, mlruns_dir = Path(config.paths.data_dir), Path(config.paths.mlruns_dir)
    old = [data_dir / "prefect" / "results" / "ab" / "old", mlruns_dir / "reports" / "old.html", mlruns_dir / "plots" / "run" / "old.png"]
    young = [path.with_name("young") for path in old]
    for path in (*old, *young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 100)
    for path in young:
        os.utime(path, (LATER, LATER))
    cache = VerdictCache(data_dir / VERDICTS)
    cache.store([StoredVerdict("k", True, "j", "q", "[]", "a")])
    assert not {"results", "pages", "verdicts"} & {item.kind for item in Housekeeping(config, RULES).plan().items}
    planned = Housekeeping(config, RULES, LATER).plan()
    assert named(planned, "results") == {"1 of results"} and named(planned, "pages") == {"1 of reports", "1 of plots"}
    assert named(planned, "verdicts") == {"1 of verdicts.sqlite"}
    _, failed = Housekeeping(config, RULES, LATER).carry_out()
    assert not failed
    assert not any(path.exists() for path in old) and all(path.exists() for path in young)
    assert cache.count() == 0


def test_what_is_young_or_was_touched_lately_stays(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (_, _, other, _) = history
    assert Housekeeping(config, RULES).plan().items == ()
    place = config.paths.index / other["lineage"]["index_key"]
    month_ago = time.time() - 30 * 86_400
    os.utime(place, (month_ago, month_ago))
    assert named(Housekeeping(config, RULES).plan(), "indexes") == set(), "old, and a run used it today"
    assert named(Housekeeping(config, RULES, LATER).plan(), "indexes") != set()


def test_more_versions_can_be_kept(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (_, _, other, _) = history
    assert other["lineage"]["train_key"] not in named(Housekeeping(config, Rules(kept_versions=2), LATER).plan(), "trainings")


def test_what_a_rollback_returns_to_stays(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (_, first, other, _) = history
    for version in ("2", "3"):
        promote_by_hand(config.paths, config.tracking, version, "better")
    planned = Housekeeping(config, RULES, LATER).plan()
    assert named(planned, "trainings") == {first["lineage"]["train_key"]}
    assert other["lineage"]["index_key"] not in named(planned, "indexes")
    assert roll_back_by_hand(config.paths, config.tracking, "worse").version == "2"


def test_a_live_run_keeps_everything_it_may_use(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (_, _, other, _) = history
    tracker = open_tracker(config.paths, config.tracking)
    parent = tracker.start_run("train-and-eval", "whole")
    tracker.start_run("index", other["lineage"]["index_key"], parent)
    (shards_dir(config.paths.evals, "e" * 20)).mkdir(parents=True)
    planned = Housekeeping(config, RULES, LATER).plan()
    assert other["lineage"]["index_key"] not in named(planned, "indexes")
    assert not named(planned, "shards")


def test_traces_of_evaluations_and_trainings_in_use_stay(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (evaluated, champion, other, _) = history
    tracker = open_tracker(config.paths, config.tracking)
    root = Span("episode", "AGENT", {"question": "?"}, {"answer": "!"}, 0.0, 1.0)
    with tracker.run("traced", "key") as run_id:
        for key in (evaluated["key"], champion["lineage"]["eval_key_after"]):
            tracker.record_traces(run_id, key, [(root, {"question_id": "q"})])
        for key in (other["lineage"]["train_key"], champion["lineage"]["train_key"]):
            tracker.record_traces(run_id, key, [(root, {"question_id": "q", "step": "1", "sample": "best"})], "train_key")
    assert len(named(Housekeeping(config, RULES, LATER).plan(), "traces")) == 2
    Housekeeping(config, RULES, LATER).carry_out()
    left = tracker.client.search_traces(locations=[tracker.experiment_id])
    assert {trace.info.tags.get("eval_key") for trace in left} == {champion["lineage"]["eval_key_after"], None}
    assert {trace.info.tags.get("train_key") for trace in left} == {champion["lineage"]["train_key"], None}


def test_what_people_said_of_answers_stays(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, _ = history
    tracker = open_tracker(config.paths, config.tracking)
    for name, by in (("judged", "HUMAN"), ("measured", "CODE")):
        said = Assessment("correct", False, "somebody", by)  # type: ignore[arg-type]
        tracker.record_trace(Span("episode", "AGENT", {}, {}, 0.0, 1.0, assessments=(said,)), {"question_id": name, "source": "service"})
    other = tracker.client.create_experiment("another team's chatbot")
    chat = tracker.client.start_trace("chat", experiment_id=other)
    tracker.client.end_trace(chat.trace_id)
    mlflow.flush_trace_async_logging()
    assert tracker.assess("judged", []) and tracker.assess("measured", [])
    Housekeeping(config, RULES, LATER).carry_out()
    assert tracker.assess("judged", []) and not tracker.assess("measured", [])
    assert len(tracker.client.search_traces(locations=[other])) == 1


def test_a_training_that_goes_on_between_plan_and_deletion_stays(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, (_, _, other, _) = history
    place = config.paths.training / other["lineage"]["train_key"]
    (place / CHECKPOINTS / "checkpoint-2").mkdir(parents=True)
    (place / LOCK).write_text(str(os.getpid()))
    for item in (Item("trainings", place.name, 30, path=place), Item("checkpoints", place.name, 30, path=place / CHECKPOINTS)):
        with pytest.raises(ServiceError, match="a process has begun to train"):
            housekeeping._delete(item, None, config.retrieval)
    assert (place / CHECKPOINTS / "checkpoint-2").is_dir()


def test_parsed_folders_go_when_nobody_has_read_them_for_long(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, _ = history
    kept, gone = (config.paths.corpora / SOURCES / PARSED / f"{name}.lines" for name in ("read", "old"))
    for path in (kept, gone):
        with ParsedDocuments(path, "parsers"):
            pass
        os.utime(path, (1e9, 1e9))
    with ParsedDocuments(kept, "parsers"):
        pass
    Housekeeping(config, RULES).carry_out()
    assert kept.is_file() and not gone.exists()


@pytest.mark.parametrize("wrong", [{"older_than_days": -1.0}, {"keep_versions": -5}])
def test_a_deployment_takes_no_ages_below_zero(wrong: dict[str, float]) -> None:
    from flows.housekeeping import housekeeping as flow

    with pytest.raises(ParameterTypeError):
        flow.validate_parameters({"config": {}, **wrong})


def test_without_knowing_what_aliases_need_nothing_goes(history: tuple[RunConfig, list[dict[str, Any]]]) -> None:
    config, _ = history
    (Path(config.paths.mlruns_dir) / "mlflow.db").write_text("this is no database, not even a small one")
    before = files(Path(config.paths.data_dir))
    with pytest.raises(ServiceError):
        Housekeeping(config, RULES, LATER).carry_out()
    assert files(Path(config.paths.data_dir)) == before


def test_what_cannot_go_is_named_and_the_rest_goes(
    history: tuple[RunConfig, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, (evaluated, _, other, _) = history
    remove = shutil.rmtree

    def stubborn(path: Path, *args: Any, **options: Any) -> None:
        if other["lineage"]["index_key"] in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        remove(path, *args, **options)

    monkeypatch.setattr(housekeeping.shutil, "rmtree", stubborn)
    gone, failed = Housekeeping(config, RULES, LATER).carry_out()
    assert len(failed) == 1 and failed[0].startswith(f"indexes {other['lineage']['index_key']}: ")
    assert evaluated["key"] in named(gone, "evals") and not (config.paths.evals / evaluated["key"]).exists()


def test_the_command_says_first_and_does_when_told(
    history: tuple[RunConfig, list[dict[str, Any]]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, (_, champion, other, _) = history
    places = [f"--paths.{name}={value}" for name, value in config.paths.model_dump().items()]
    monkeypatch.setattr("tasks.housekeeping.time.time", lambda: LATER)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli(["housekeeping", "--keep-versions", "1", *arguments, *places], prog_name="slmsearch")
        assert not ended.value.code
        return capfd.readouterr().out

    said = run()
    assert "nothing was changed: --apply takes them away" in said and "Chroma server" not in said
    served = run("--retrieval.chroma_url", "http://user:PASSWORD@host:8000").splitlines()[-1]
    assert served.startswith("the disk of the Chroma server at http://host:8000 stays as full") and "PASSWORD" not in served
    told = json.loads(run("--json"))
    assert other["lineage"]["train_key"] in {item["key"] for item in told["items"]}
    assert champion["lineage"]["train_key"] in told["in_use"]["trainings"]
    assert "things deleted" in run("--apply")
    assert "nothing to delete" in run()
