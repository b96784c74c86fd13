"""Every seeded fault is caught before the first update; a healthy run passes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.artifacts.files import read_json
from slmsearch.config import JudgeConfig, PolicyConfig, RewardConfig, RunConfig, SearcherConfig, TrainConfig, VllmConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.parsing import ParsedTurn
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.playable import Check
from slmsearch.errors import PreflightError
from slmsearch.evaluate.worked_examples import longest_prompt
from slmsearch.judge.cache import FILE, VerdictCache
from slmsearch.judge.llm import make_judge
from slmsearch.models.load import load_tokenizer
from slmsearch.retrieval.hits import Hit
from slmsearch.training.files import JUDGE, MANIFEST, PREFLIGHT, STEPS
from slmsearch.training.memory import ModelShape
from slmsearch.training.preflight import check_disk, check_extras, check_qualified, preflight_here, require
from slmsearch.training.reports import read_reports
from tests.judge_server import Behaviour, JudgeServer, always_no
from tests.slmsearch.training.through import train_through


def changed(job, **sections):
    return replace(job, config=job.config.model_copy(update=sections))


def wrong_parser(job, monkeypatch):
    for module in ("slmsearch.environments.searcher.searcher_environment", "slmsearch.environments.searcher.rollout"):
        monkeypatch.setattr(f"{module}.parse_turn", lambda text, **more: ParsedTurn())
    return job


def inverted_mask(job, monkeypatch):
    right = Episode.sampled_mask.fget
    monkeypatch.setattr(Episode, "sampled_mask", property(lambda self: [1 - m for m in right(self)]))
    return job


def small_cap(job, monkeypatch):
    return changed(job, searcher=job.config.searcher.model_copy(update={"max_episode_tokens": 16, "max_turn_tokens": 2}))


def dead_judge(job, monkeypatch):
    monkeypatch.setattr(JudgeConfig, "backoff_s", 0.0)
    down = JudgeConfig(kind="openai", base_url="http://127.0.0.1:9/v1", timeout_s=2, require_qualified=False)
    return changed(job, judge=down)


def equal_rewards(job, monkeypatch):
    monkeypatch.setattr("slmsearch.environments.searcher.reward._task_parts", lambda *_: {})
    return changed(job, reward=RewardConfig(malformed=0.0))


FAULTS = {
    wrong_parser: "tool calls",
    inverted_mask: "mask",
    small_cap: "truncated",
    dead_judge: "judge",
    equal_rewards: "equal rewards",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_ends_the_run_before_its_first_update(fault, make_job, toolbox, questions, monkeypatch):
    job = fault(make_job(), monkeypatch)
    with pytest.raises(PreflightError, match=f"check '{FAULTS[fault]}' failed: .+; .+"):
        train_through(toolbox, questions, job)
    assert not (job.directory / STEPS).exists()


def test_a_control_run_only_records_what_failed(make_job, toolbox, questions, monkeypatch):
    job = equal_rewards(make_job(steps=1, preflight="record"), monkeypatch)
    train_through(toolbox, questions, job)
    found = {check["name"]: check["passed"] for check in json.loads((job.directory / PREFLIGHT).read_text())}
    assert not found["equal rewards"] and found["mask"]


def test_an_embedder_that_does_not_fit_its_index(make_job, toolbox, questions):
    class Noise:
        key = "noise"

        def search(self, queries, top_k):
            return [[Hit("p0", "Page 0", 1.0, "p0")] for _ in queries]

    pages = [Page(f"p{i}", f"Page {i}", f"# Page {i}\nText.\n") for i in range(10)]
    with pytest.raises(PreflightError, match=r"check 'index' failed: 10% of 10 pages found.+; .*slmsearch reindex"):
        train_through(Toolbox(Library(pages), Noise(), 3, 1500), questions, make_job())


def test_a_healthy_run_passes_and_keeps_what_was_found(make_job, toolbox, questions):
    job = make_job(steps=1)
    train_through(toolbox, questions, job)
    found = {check["name"]: check for check in json.loads((job.directory / PREFLIGHT).read_text())}
    assert all(check["passed"] for check in found.values())
    assert {"memory", "disk", "template", "mask", "searching", "equal rewards", "time"} <= set(found)
    assert "peak" in found["memory"]["found"]


def test_a_resumed_run_is_not_probed_again(make_job, toolbox, questions, monkeypatch):
    from slmsearch.training.files import CHECKPOINTS, latest_complete_checkpoint

    train_through(toolbox, questions, make_job(steps=2))
    job = make_job(steps=4)
    monkeypatch.setattr("slmsearch.training.training_run.check_learning", lambda *a: pytest.fail("probed"))
    train_through(toolbox, questions, job, latest_complete_checkpoint(job.directory / CHECKPOINTS))


def test_require_stops_at_the_first_failure():
    asked = []

    def checks():
        for name, passed in (("a", True), ("b", False), ("c", True)):
            asked.append(name)
            yield Check(name, passed, f"found {name}\nmore", "fix it")

    with pytest.raises(PreflightError, match=r"^pre-flight check 'b' failed: found b; fix it$"):
        require(checks())
    assert asked == ["a", "b"]


def test_what_an_extra_brings_is_asked_for_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("slmsearch.training.preflight.find_spec", lambda name: None)
    config = RunConfig(policy=PolicyConfig(model="x")).model_copy(update={"train": TrainConfig(vllm=VllmConfig(mode="colocate"))})
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"load_in_4bit": True})})
    found = {check.name: check for check in check_extras(config.policy, config.train)}
    assert set(found) == {"vllm", "bitsandbytes"}
    assert all(not check.passed and "uv pip install -e '.[gpu]'" in check.remedy for check in found.values())
    assert not list(check_extras(PolicyConfig(), TrainConfig()))


def test_a_card_needs_a_compiler_and_the_headers_of_python(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for compiler, headers, passed in (("cc", True, True), ("", True, False), ("cc", False, False)):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("CC", compiler)
        monkeypatch.setattr("sysconfig.get_path", lambda name, there=headers: str(tmp_path / name if there else tmp_path / "none"))
        (tmp_path / "include").mkdir(exist_ok=True)
        (tmp_path / "include" / "Python.h").touch()
        (found,) = check_extras(PolicyConfig(), TrainConfig())
        assert (found.name, found.passed) == ("compiler", passed) and "install gcc" in found.remedy
    assert not list(check_extras(PolicyConfig(device="cpu"), TrainConfig()))


def served_judge(job, server, **settings):
    return changed(job, judge=JudgeConfig(kind="ollama", model="judge", base_url=server.url, **settings))


def test_a_judge_that_has_not_passed_ends_the_run_before_anything_is_loaded(make_job, toolbox, questions, monkeypatch):
    monkeypatch.setattr("slmsearch.training.training_run.load_trainable", lambda *_: pytest.fail("loaded"))
    with JudgeServer(Behaviour(truth=always_no)) as server:
        for preflight in ("require", "record"):
            with pytest.raises(PreflightError, match=r"judge judge .+ has not been measured; run `slmsearch judge qualify`"):
                train_through(toolbox, questions, served_judge(make_job(preflight=preflight), server))


def test_what_is_known_of_the_judge_is_kept_with_the_run(make_job, toolbox, questions):
    with JudgeServer(Behaviour(truth=always_no)) as server:
        job = served_judge(make_job(steps=1), server, require_qualified=False)
        train_through(toolbox, questions, job)
    state = read_json(job.directory / JUDGE)
    assert not state["passed"] and "has not been measured" in state["found"]
    (check,) = [check for check in json.loads((job.directory / PREFLIGHT).read_text()) if check["name"] == "judge qualified"]
    assert check["passed"] and "judge.require_qualified is off" in check["found"]
    assert VerdictCache(Path(job.config.paths.data_dir) / FILE).count() > 0
    (report,) = read_reports(job.directory / STEPS)
    assert report.metrics["time/judge_wait_s"] >= 0
    assert "judging" in json.loads((job.directory / MANIFEST).read_text())["spent"]


def test_the_state_of_the_judge_is_a_check_of_its_own(make_job, tmp_path, monkeypatch):
    monkeypatch.setattr(JudgeConfig, "retries", 0)
    data_dir = make_job().config.paths.data_dir
    assert check_qualified(make_job().config.judge, data_dir) == []
    with JudgeServer(Behaviour()) as server:
        (check,) = check_qualified(served_judge(make_job(), server).config.judge, data_dir)
    assert not check.passed and "slmsearch judge qualify" in check.remedy
    (check,) = check_qualified(served_judge(make_job(), server).config.judge, data_dir)
    assert not check.passed and server.url in check.found


def test_a_model_that_cannot_fit_is_refused(make_job, toolbox, questions, monkeypatch):
    monkeypatch.setattr("slmsearch.training.preflight.measure_available", lambda: {"cpu": 1e8})
    with pytest.raises(PreflightError, match=r"check 'memory' failed: .+; change train\.\w+|policy\.\w+"):
        train_through(toolbox, questions, make_job())


def test_a_full_disk_is_noticed(make_job, monkeypatch):
    monkeypatch.setattr("slmsearch.training.preflight.shutil.disk_usage", lambda place: type("Usage", (), {"free": 1e6})())
    config, shape = make_job().config, ModelShape(4_022_468_096, ((2560, 4096),) * 252, 36, 2560, 1024, 151_936, 4096, 9728, 0.0, 0.0)
    check = check_disk(config.paths, config.train, shape)
    assert not check.passed and "paths.data_dir" in check.remedy


def test_the_command_plans_with_the_longest_opening(monkeypatch, model_dir, questions, toolbox):
    prompt = "word " * 300
    config = RunConfig(policy=PolicyConfig(model=str(model_dir), device="cpu"), searcher=SearcherConfig(system_prompt=prompt))
    environment = SearcherEnvironment(config).with_tools(toolbox, make_judge(config.judge, config.paths.data_dir))
    monkeypatch.setattr(SearcherEnvironment.data, "build", lambda *_: "digest")
    monkeypatch.setattr(SearcherEnvironment, "open", lambda *_: environment)
    monkeypatch.setattr("slmsearch.training.preflight.load_questions", lambda *_: {"train": questions})
    planned = []

    def too_much(config, tokens):
        planned.append(tokens)
        yield Check("memory", False, "none", "buy some")

    monkeypatch.setattr("slmsearch.training.preflight.check_resources", too_much)
    assert [check.name for check in preflight_here(config, lambda check: None, print)] == ["memory"]
    renderer = ChatRenderer(load_tokenizer(config.policy), config.searcher.tool_role)
    assert planned == [longest_prompt((environment.opening(question.question) for question in questions), renderer)]
