"""The flow `learn` with a real store of MLflow, a real index and stand-ins for models and training."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from flows.cli.main import cli
from flows.cli.text import render_result
from flows.learn import choose_first, learn
from flows.runtime.settings import load_config
from flows.stages.pipeline import USED_S
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.store import build_corpus, read_pages
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ConfigError, CorpusError, ModelError, TrainingError
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
from slmsearch.training.budget import plan_training
from tasks.corpus_data import Data
from tasks.learn import ask, held, learnt_dir
from tasks.runs import LATEST, find_run
from tasks.tracking import open_tracker
from tests.flows.fakes import ChildHere, FakeTraining, make_config, replace_heavy_parts
from tests.slmsearch.environments.writer.test_writer import PAGES, Writer
from tests.slmsearch.made_questions.test_make import WordIndex

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(600)]
PLACES = 40


def write_document(folder: Path, number: int, founder: str = "") -> None:
    name = f"Town{chr(65 + number % 26)}{number}"
    text = f"{name} was founded in {1500 + number} by {founder or f'Rosa Mill{number}'} beside the river."
    (folder / f"{name.lower()}.md").write_text(f"# {name}\n\n{name} is a town of {300 + number} houses.\n\n## History\n\n{text}\n")


class Taught:
    """Stands in for supervised training: remembers what it was asked to do."""

    def __init__(self) -> None:
        self.starts: list[RunConfig] = []
        self.measured = 0
        self.digests: list[str] = []
        """Corpora that it was given."""
        self.on_start: Callable[[], None] = lambda: None
        """Called when a start is to be trained."""

    def train_start(self, config: RunConfig, sources: list[str], out: Path, digest: str, **_: Any) -> dict[str, Any]:
        self.starts.append(config)
        self.digests.append(digest)
        self.on_start()
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text("{}")
        (out / "model.safetensors").write_text(out.name)
        root = self.starts[0].policy.model
        (out / "sft.json").write_text(json.dumps({"start": root}))
        return {"source": "gold", "steps": config.sft.steps, "seconds": 2.0}

    def measure_speed(self, config: RunConfig, digest: str) -> dict[str, float]:
        self.measured += 1
        self.digests.append(digest)
        return {"update_s": 0.8, "examples": 60}


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    monkeypatch.setattr("flows.stages.summary.leave_reports", lambda *_: None)
    monkeypatch.setattr("slmsearch.training.budget.MIN_EVALUATED", 6)
    return replace_heavy_parts(monkeypatch)


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Taught:
    made = Taught()
    monkeypatch.setitem(ChildHere.stand_ins, "slmsearch.training.teach:train_start", made.train_start)
    monkeypatch.setitem(ChildHere.stand_ins, "slmsearch.training.teach:measure_speed", made.measure_speed)
    return made


@pytest.fixture
def config(isolated_environment: Path, training: FakeTraining, empty_store: Path) -> RunConfig:
    folder = isolated_environment / "docs"
    folder.mkdir()
    for number in range(PLACES):
        write_document(folder, number)
    made = make_config(isolated_environment, {"pages": str(folder)}, empty_store)
    return made.changed(
        {
            "sft.start": "gold",
            "sft.batch_size": 8,
            "evaluate.split": "test",
            "evaluate.baselines": ("retrieve-then-answer",),
            "decision.min_questions": 6,
            "learn.budget_s": 600.0,
            "train.monitor.held_out": 4,
        }
    )


def test_documents_become_a_champion_and_changes_go_on_from_it(config: RunConfig, taught: Taught, training: FakeTraining) -> None:
    first = learn(config)
    learnt, folder = first["learnt"], learnt_dir(config.paths, config.corpus.pages)
    assert find_run(open_tracker(config.paths, config.tracking), LATEST).id == first["mlflow_run_id"], "a run whose report can be made"
    assert first["decision"] == "promote", first["reason"]
    assert learnt["right"]["n"] == first["n"] >= 3 and learnt["right"]["low"] < learnt["right"]["value"] <= 1
    assert learnt["questions"]["count"] > 50 and not learnt["began_with_champion"]
    planned = learnt["planned"]
    assert set(planned) == {"sft.steps", "evaluate.limit", "train.steps", "train.checkpoint_steps"}
    assert taught.starts[0].sft.steps == planned["sft.steps"] == 30, "four passes over sixty demonstrations"
    assert planned["train.steps"] >= 2 and 2 * planned["train.checkpoint_steps"] >= planned["train.steps"]
    assert {"retrieve-then-answer"} == set(first["baselines"]) and {"reader", "untrained", "few_shot", "closed_book"} <= set(first)
    champion = open_tracker(config.paths, config.tracking).champion(f"slmsearch-{folder.name}")
    assert champion is not None and champion["version"] == first["training"]["version"]
    shown = render_result(first, config.paths, config.decision)
    assert "of pages it never trained on" in shown or "about pages it never trained on" in shown
    assert f"slmsearch ask --config {learnt['settings']}" in shown and "not asked about" not in shown
    assert re.search(r"wrong, % of the surest  .*\n-.*\n(\S+ .*\n)*retrieve-then-answer ", shown)
    told = {**first, "learnt": {**learnt, "questions": {**learnt["questions"], "unasked": 7}}}
    assert "not asked about   7 sections, for lack of time" in render_result(told, config.paths, config.decision)

    settings = load_config([Path(learnt["settings"])], environment={})
    assert settings.corpus.pages == config.corpus.pages and settings.tracking.registered_model == f"slmsearch-{folder.name}"
    assert settings.learn.budget_s == 0 and settings.sft.steps == planned["sft.steps"] and settings.train.steps == planned["train.steps"]

    again = learn(config)
    assert (taught.measured, len(taught.starts)) == (1, 2), "what was decided is found"
    assert again["lineage"]["sft_key"] == first["lineage"]["sft_key"] and again["lineage"]["train_key"] == first["lineage"]["train_key"]
    repeated = learn(settings)
    assert repeated["lineage"]["train_key"] == first["lineage"]["train_key"], "with the steps that were recorded"

    write_document(Path(config.corpus.pages or ""), 7, "Olga Stein")
    training.content = b"another adapter"
    second = learn(config)
    assert second["learnt"]["began_with_champion"] and second["learnt"]["questions"]["kept"] > 50
    began = taught.starts[-1].policy
    assert began.adapter and began.model.endswith(f"sft-{first['lineage']['sft_key']}")
    assert second["lineage"]["sft_key"] != first["lineage"]["sft_key"]
    assert open_tracker(config.paths, config.tracking).champion(f"slmsearch-{folder.name}")["version"] == second["training"]["version"]  # type: ignore[index]
    third = learn(config)
    assert third["lineage"]["train_key"] == second["lineage"]["train_key"], "the same documents begin with the same champion"


def test_the_first_training_begins_with_the_adapter_of_its_model_and_later_ones_with_the_champion(
    config: RunConfig, taught: Taught, training: FakeTraining, isolated_environment: Path
) -> None:
    adapter = isolated_environment / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": config.policy.model}))
    begins = config.changed({"learn.adapter": str(adapter)})
    first = learn(begins)
    assert not first["learnt"]["began_with_champion"]
    assert taught.starts[0].policy == config.policy.model_copy(update={"adapter": str(adapter)})
    settings = load_config([Path(first["learnt"]["settings"])], environment={})
    assert (settings.learn.adapter, settings.policy.adapter) == (str(adapter), None), "the champion answers, and the run can be repeated"
    write_document(Path(config.corpus.pages or ""), 7, "Olga Stein")
    training.content = b"another adapter"
    assert learn(begins)["learnt"]["began_with_champion"] and taught.starts[-1].policy.adapter != str(adapter)


def test_an_adapter_of_another_model_is_not_begun_with_and_one_that_is_missing_is_one_line(isolated_environment: Path) -> None:
    adapter = isolated_environment / "data" / "models" / "smollm2-135m-searcher"
    named = ["--learn.adapter", adapter.name, "--policy.model"]

    def choose(config: RunConfig) -> PolicyConfig:
        return choose_first(config.policy, config.learn.adapter, config.paths)

    config = load_config([], [*named, "smollm2-135m-instruct"])
    with pytest.raises(ModelError, match=r"smollm2-135m-searcher' \(adapter_config\.json is missing\): correct learn\.adapter"):
        choose(config.changed({"learn.adapter": str(adapter)}))
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "smollm2-135m-instruct"}')
    same, other = (load_config([], [*named, model]) for model in ("smollm2-135m-instruct", "Qwen/Qwen2.5-3B-Instruct"))
    assert choose(same) == same.policy.model_copy(update={"adapter": str(adapter)})
    assert choose(other) == other.policy
    own = same.changed({"policy.adapter": "mine"})
    assert choose(own) == own.policy


def test_another_writer_asks_anew_and_pages_keep_their_split(isolated_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, models, tries = Library(PAGES), isolated_environment / "writer", list[tuple[int, set[str], dict[str, str]]]()
    toolbox = Toolbox(library, WordIndex(library), 3, 1500)
    indexed = IndexedCorpus("digest", "index", toolbox, {})
    monkeypatch.setattr("slmsearch.environments.searcher.indexed_corpus.open_indexed_corpus", lambda *_: indexed)
    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", lambda policy, tool_role: ScriptedSampler(Writer()))
    models.mkdir()
    config = load_config(environment={}, base=isolated_environment)
    config = config.changed({"corpus.pages": "pages", "learn.writer": str(models)})
    for content in ("first", "first", "second"):
        (models / "model.safetensors").write_text(content)
        asked = ask(Data("digest", "index"), f"run {len(tries)}", config, lambda done, total: None)
        rows = [json.loads(line) for line in Path(asked["path"]).read_text().splitlines()]
        tries.append((asked["kept"], {row["kind"] for row in rows}, {row["page_ids"][0]: row["split"] for row in rows}))
    assert [kept for kept, _, _ in tries] == [0, len(rows), 0] and all(kinds == {"written"} for _, kinds, _ in tries)
    assert tries[0][2] == tries[1][2] == tries[2][2] and len(tries[0][2]) == len(PAGES)


def test_an_edit_of_the_documents_during_a_run_is_for_the_next_run(
    config: RunConfig, taught: Taught, training: FakeTraining, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's first question, the plan and the start each come upon another edit."""
    folder, models, script = isolated_environment / "harbours", isolated_environment / "writer", Writer()
    folder.mkdir()
    models.mkdir()
    for name in ("config.json", "model.safetensors"):
        (models / name).write_text("{}")
    towns = [chr(65 + number) + "ugrad" for number in range(12)]
    for town in towns:
        (folder / f"{town.lower()}.md").write_text(PAGES[0].content.replace("Alba", town))

    def edit(town: str) -> None:
        (folder / f"{town.lower()}.md").write_text(f"# {town}\n\nIt was closed.\n")

    def write(content: str, results: list[str]) -> str:
        edit(towns[0])
        return script(content, results)

    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", lambda policy, tool_role: ScriptedSampler(write))
    taught.on_start = lambda: edit(towns[1])
    config = config.changed({"corpus.pages": str(folder), "learn.writer": str(models)})
    first = learn(config)
    digest = first["lineage"]["data_digest"]
    assert {digest} == {*taught.digests, *training.digests} and training.digests

    def closed(digest: str) -> list[str]:
        return [page.title for page in read_pages(config.paths.corpora / digest) if "closed" in page.content]

    assert script.tasks and closed(digest) == [], "it is about the documents as they were when the run began"
    second = learn(config)
    assert closed(second["lineage"]["data_digest"]) == towns[:2]
    settings = load_config([Path(second["learnt"]["settings"])], environment={})
    assert build_corpus(settings.corpus, settings.paths.corpora) == second["lineage"]["data_digest"], "other commands find the same"


def test_the_time_of_killed_attempts_counts_for_the_budget(config: RunConfig, taught: Taught, monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [1000.0], list[float]()
    for module in ("tasks.learn", "flows.stages.pipeline"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now[0]))

    def plan(left_s: float, *known: Any) -> dict[str, int]:
        left.append(left_s)
        return plan_training(left_s, *known)

    def die() -> None:
        now[0] += 200.0
        tracker = open_tracker(config.paths, config.tracking)
        (run,) = [run for run in tracker.running() if run.stage == "learn"]
        recorded.append(run.tags[USED_S])
        raise ended

    def measure(config: RunConfig, digest: str) -> dict[str, float]:
        now[0] += 50.0
        return taught.measure_speed(config, digest)

    recorded = list[str]()
    monkeypatch.setattr("tasks.learn.plan_training", plan)
    monkeypatch.setitem(ChildHere.stand_ins, "slmsearch.training.teach:measure_speed", measure)
    taught.on_start = die
    for ended in (TrainingError("no answer"), KeyboardInterrupt()):  # an error costs the next attempt no time
        with pytest.raises(type(ended)):
            learn(config)
    assert recorded == ["50.0", "0.0"], "also of a process that has no time to say good-bye"
    now[0] = 5.0  # another process, another clock
    taught.on_start = lambda: now.append(now.pop() + 100.0)
    learn(config)
    assert left == [config.learn.budget_s - 200 - 100]
    write_document(Path(config.corpus.pages or ""), 7, "Olga Stein")
    learn(config)
    assert left[1] == config.learn.budget_s - 50 - 100, "the next run has all of its time"


def test_two_do_not_learn_from_the_same_pages_at_once(config: RunConfig, taught: Taught) -> None:
    lock = learnt_dir(config.paths, config.corpus.pages) / ".lock"
    hold = f"from filelock import FileLock; lock = FileLock({str(lock)!r}); lock.acquire(); print(flush=True); input()"
    learnt_dir(config.paths, config.corpus.pages).mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(TrainingError, match=f"another `slmsearch learn {config.corpus.pages}` is running; wait for it"):
            learn(config)
        assert not taught.starts
    finally:
        other.kill()
        other.communicate()
    with held(lock.parent, config.corpus.pages):
        pass


def test_what_people_corrected_is_trained_on(config: RunConfig, taught: Taught) -> None:
    first = learn(config)
    rows = [json.loads(line) for line in (learnt_dir(config.paths, config.corpus.pages) / "questions.jsonl").read_text().splitlines()]
    page = next(row["page_ids"][0] for row in rows if row["split"] == "test")
    name = next(row["question"] for row in rows if row["page_ids"] == [page])
    number = int("".join(filter(str.isdigit, page.rpartition("town")[2])))
    log = FeedbackLog(config.paths.feedback)
    asked = f"Who founded\u2028the town {page.rpartition('/')[2]}?"  # as a line that was copied
    log.append(Feedback(asked, "nobody", "wrong", f"Rosa Mill{number}"))
    log.append(Feedback("Who rules the Moon?", "nobody", "wrong", "The Emperor"))
    log.append(Feedback(name, "1500", "right"))
    second = learn(config)
    assert sorted(second["learnt"]["questions"]["corrections"].values()) == [1, 1]
    assert second["learnt"]["questions"]["left_test"] > 0
    states = json.loads((learnt_dir(config.paths, config.corpus.pages) / "corrections.json").read_text())
    assert sorted(states.values()) == ["accepted", "answer in no section that the question finds"]
    assert "corrections       1 accepted" in render_result(second, config.paths, config.decision)
    assert learn(config)["learnt"]["questions"]["corrections"] == second["learnt"]["questions"]["corrections"]
    assert second["n"] < first["n"] or second["learnt"]["planned"]["evaluate.limit"] < first["learnt"]["planned"]["evaluate.limit"]


def test_own_questions_are_taken_as_they_are(config: RunConfig, taught: Taught, isolated_environment: Path) -> None:
    learn(config)
    rows = (learnt_dir(config.paths, config.corpus.pages) / "questions.jsonl").read_text().splitlines()
    own = isolated_environment / "own.jsonl"
    own.write_text("\n".join(rows[::2]) + "\n")
    assert learn(config.changed({"corpus.questions": str(own)}))["learnt"]["questions"]["count"] == len(rows[::2])


def test_pages_of_own_questions_keep_their_split_when_the_file_changes(
    config: RunConfig, taught: Taught, isolated_environment: Path
) -> None:
    """With one page's questions fewer, three of five test questions were training questions of the run before."""
    own, folder = isolated_environment / "own.jsonl", learnt_dir(config.paths, config.corpus.pages)
    learn(config)
    rows = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if name != "split"} for row in rows]

    def splits(kept: list[dict[str, Any]]) -> dict[str, str]:
        own.write_text("".join(json.dumps(row) + "\n" for row in kept))
        learn(config.changed({"corpus.questions": str(own)}))
        learnt = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
        return {page: str(row["split"]) for row in learnt for page in row["page_ids"]}

    first = splits(rows)
    again = splits(rows[9:] + rows[:3])
    assert again.items() <= first.items() and set(again.values()) == {"train", "validation", "test"}


def test_too_little_time_and_pages_without_facts_are_one_line(config: RunConfig, taught: Taught, isolated_environment: Path) -> None:
    with pytest.raises(ConfigError, match=r"s are left of the budget and at least \d+ s are needed; give more time with --budget"):
        learn(config.changed({"learn.budget_s": 30.0}))
    empty = isolated_environment / "empty"
    empty.mkdir()
    (empty / "a.md").write_text("# A\n\nwell, hm.\n")
    with pytest.raises(CorpusError, match="no question could be made of"):
        learn(config.changed({"corpus.pages": str(empty)}))


def test_the_command_puts_the_preset_before_what_is_given(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, RunConfig, bool]] = []

    def run_flow(name: str, config: RunConfig, say: Any, here: bool) -> dict[str, Any]:
        asked.append((name, config, here))
        raise TrainingError("enough was seen")

    monkeypatch.setattr("flows.ops.runner.run_flow", run_flow)
    pages, flags = str(config.corpus.pages), ["--paths.data_dir", config.paths.data_dir, "--sft.steps", "7"]
    found = CliRunner().invoke(cli, ["learn", pages, "--budget", "90s", "--model", config.policy.model, *flags])
    where, _, *shown, error = found.stderr.splitlines()
    assert (found.exit_code, error) == (3, "slmsearch: enough was seen")
    assert where == f"Data in {config.paths.data_dir}, MLflow in {config.paths.mlruns_dir}"
    assert shown[0].startswith("----") and " pages, " in shown[-1], "what was read is shown before anything is made of it"
    ((name, settings, here),) = asked
    assert (name, here, settings.learn.budget_s, settings.corpus.pages) == ("learn", False, 90.0, pages)
    assert (settings.policy.model, settings.sft.steps, settings.sft.start) == (config.policy.model, 7, "gold")
    asked.clear()
    monkeypatch.setattr("flows.cli.commands.learning.multiplies_bfloat16", lambda: True)
    CliRunner().invoke(cli, ["learn", pages, *flags, "--learn.budget_s", "7200"])
    CliRunner().invoke(
        cli, ["learn", pages, *flags], env={"SLMSEARCH_POLICY__MODEL": config.policy.model, "SLMSEARCH_POLICY__DTYPE": "float32"}
    )
    told, varied = (settings for _, settings, _ in asked)
    assert (told.learn.budget_s, varied.learn.budget_s) == (7200.0, 1800.0), "what is given wins, wherever"
    assert (varied.policy.model, varied.policy.dtype) == (config.policy.model, "float32")
    refused = CliRunner().invoke(cli, ["learn", pages, "--budget", "soon"])
    assert refused.exit_code == 2 and "write 45s, 30m or 2h" in refused.stderr
