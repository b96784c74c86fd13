"""Every seeded fault is caught before the first update; a healthy run passes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.settings import load_config
from slmsearch.bench.judge_server import Behaviour, JudgeServer, always_no
from slmsearch.config import JudgeConfig, LoraSection, PolicyConfig, RewardConfig, RunConfig, SearcherConfig, TrainConfig, VllmConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.errors import ModelError, PreflightError
from slmsearch.judge.cache import FILE, VerdictCache
from slmsearch.learn.files import MANIFEST, PREFLIGHT, STEPS
from slmsearch.learn.launch import read_judge_state
from slmsearch.learn.memory import GIB, Shape, measure_shape, plan_memory
from slmsearch.learn.preflight import check_disk, check_extras, require
from slmsearch.learn.probe import Check, check_qualified
from slmsearch.learn.reports import read_reports
from slmsearch.learn.training import train_through
from slmsearch.retrieval.hits import Hit
from slmsearch.searcher.episode import Episode
from slmsearch.searcher.parsing import ParsedTurn
from slmsearch.searcher.tools import Toolbox


def changed(job, **sections):
    return replace(job, config=job.config.model_copy(update=sections))


def wrong_parser(job, monkeypatch):
    for module in ("slmsearch.learn.probe", "slmsearch.searcher.rollout"):
        monkeypatch.setattr(f"{module}.parse_turn", lambda text: ParsedTurn())
    return job


def inverted_mask(job, monkeypatch):
    right = Episode.sampled_mask.fget
    monkeypatch.setattr(Episode, "sampled_mask", property(lambda self: [1 - m for m in right(self)]))
    return job


def small_cap(job, monkeypatch):
    return changed(job, searcher=job.config.searcher.model_copy(update={"max_episode_tokens": 16, "max_turn_tokens": 2}))


def dead_judge(job, monkeypatch):
    down = JudgeConfig(kind="openai", base_url="http://127.0.0.1:9/v1", timeout_s=2, retries=1, backoff_s=0, require_qualified=False)
    return changed(job, judge=down)


def equal_rewards(job, monkeypatch):
    return changed(job, reward=RewardConfig(correct=0.0, malformed=0.0))


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
    from slmsearch.learn.checkpoints import latest_complete_checkpoint
    from slmsearch.learn.files import CHECKPOINTS

    train_through(toolbox, questions, make_job(steps=2))
    job = make_job(steps=4)
    monkeypatch.setattr("slmsearch.learn.training.check_learning", lambda *a: pytest.fail("probed"))
    train_through(toolbox, questions, job, latest_complete_checkpoint(job.directory / CHECKPOINTS))


def test_require_stops_at_the_first_failure():
    asked = []

    def checks():
        for name, passed in (("a", True), ("b", False), ("c", True)):
            asked.append(name)
            yield Check(name, passed, f"found {name}\nmore", "mend it")

    with pytest.raises(PreflightError, match=r"^pre-flight check 'b' failed: found b; mend it$"):
        require(checks())
    assert asked == ["a", "b"]


LAYER = ((2560, 4096), (2560, 1024), (2560, 1024), (4096, 2560), (2560, 9728), (2560, 9728), (9728, 2560))
FOUR_B = Shape(4_022_468_096, LAYER * 36, 36, 2560, 1024, 151_936)
"""Qwen3-4B's shape, from its published configuration."""


def four_b(**train):
    return RunConfig(
        policy=PolicyConfig(model="x", dtype="float32" if train.get("method") == "full" else "bfloat16", device="cuda"),
        searcher=SearcherConfig(max_turns=10, max_turn_tokens=256, max_episode_tokens=2048),
        train=TrainConfig(**{"questions_per_step": 4, "group_size": 4, "accumulation": 16, "gradient_checkpointing": True, **train}),
    )


def test_four_billion_parameters_fit_24_gib_and_what_to_change_where_not():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    plan = plan_memory(four_b(), FOUR_B, card)
    assert plan.device == "cuda"
    assert 9 * GIB < plan.peak < 22 * GIB
    assert plan_memory(four_b(gradient_checkpointing=False, accumulation=1), FOUR_B, card).largest.setting == "train.gradient_checkpointing"
    assert plan_memory(four_b(accumulation=1), FOUR_B, card).peak > plan.peak
    assert plan_memory(four_b(questions_per_step=64), FOUR_B, card).largest.setting in ("train.questions_per_step", "train.accumulation")
    assert plan_memory(four_b(lora=LoraSection(r=64)), FOUR_B, card).peak > plan.peak


def test_the_config_for_one_card_fits_it_and_its_smoke_run_can_be_split():
    folder = Path(__file__).parents[3] / "deployments" / "configs"
    config = load_config([folder / "rtx3090.yaml"], environment={})
    assert plan_memory(config, FOUR_B, {"cpu": 64 * GIB, "cuda": 24 * GIB}).peak < 0.9 * 24 * GIB
    smoke = load_config([folder / "rtx3090.yaml", folder / "quick.yaml"], environment={})
    for each in (config, smoke):
        assert each.train.questions_per_step * each.train.group_size % each.train.accumulation == 0


def test_four_bits_and_all_weights_in_the_plan():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    whole = four_b()
    quantised = whole.model_copy(update={"policy": whole.policy.model_copy(update={"load_in_4bit": True})})
    assert plan_memory(whole, FOUR_B, card).peak - plan_memory(quantised, FOUR_B, card).peak == pytest.approx(1.45 * FOUR_B.parameters)
    full = plan_memory(four_b(method="full"), FOUR_B, card)
    assert full.peak > 24 * GIB and full.largest.setting == "train.method"


def test_an_engine_of_its_own_takes_its_share_only_where_it_runs_here():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    colocated, served = (plan_memory(four_b(vllm=VllmConfig(mode=mode)), FOUR_B, card) for mode in ("colocate", "server"))
    assert [part.num_bytes for part in colocated.sampling] == [12 * GIB]
    assert served.sampling == ()


def test_what_an_extra_brings_is_asked_for_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("slmsearch.learn.preflight.find_spec", lambda name: None)
    config = four_b(vllm=VllmConfig(mode="colocate"))
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"load_in_4bit": True})})
    found = {check.name: check for check in check_extras(config)}
    assert set(found) == {"vllm", "bitsandbytes"}
    assert all(not check.passed and "uv pip install -e '.[gpu]'" in check.remedy for check in found.values())
    assert not list(check_extras(four_b()))


def test_the_judge_counts_only_while_it_shares_the_card():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    peaks = []
    for keep_loaded in (False, True):
        config = four_b().model_copy(update={"judge": JudgeConfig(kind="ollama", keep_loaded=keep_loaded, overlap=False)})
        peaks.append(plan_memory(config, FOUR_B, card).peak)
    assert peaks[1] - peaks[0] == pytest.approx(4.7e9)


def test_a_judge_that_works_while_others_are_sampled_counts_there():
    card = {"cpu": 64 * GIB, "cuda": 24 * GIB}
    overlapped, afterwards = (
        plan_memory(four_b().model_copy(update={"judge": JudgeConfig(kind="ollama", overlap=overlap)}), FOUR_B, card)
        for overlap in (True, False)
    )
    assert [part.setting for part in overlapped.sampling][-1] == "judge.overlap"
    assert "judge" not in {part.name for part in (*afterwards.sampling, *afterwards.always)}


def served_judge(job, server, **settings):
    return changed(job, judge=JudgeConfig(kind="ollama", model="judge", base_url=server.url, **settings))


def test_a_judge_that_has_not_passed_ends_the_run_before_anything_is_loaded(make_job, toolbox, questions, monkeypatch):
    monkeypatch.setattr("slmsearch.learn.training.load_trainable", lambda *_: pytest.fail("loaded"))
    with JudgeServer(Behaviour(truth=always_no)) as server:
        for preflight in ("require", "record"):
            with pytest.raises(PreflightError, match=r"judge judge .+ has not been measured; run `slmsearch judge qualify`"):
                train_through(toolbox, questions, served_judge(make_job(preflight=preflight), server))


def test_what_is_known_of_the_judge_is_kept_with_the_run(make_job, toolbox, questions):
    with JudgeServer(Behaviour(truth=always_no)) as server:
        job = served_judge(make_job(steps=1), server, require_qualified=False)
        train_through(toolbox, questions, job)
    state = read_judge_state(job)
    assert not state["passed"] and "has not been measured" in state["found"]
    (check,) = [check for check in json.loads((job.directory / PREFLIGHT).read_text()) if check["name"] == "judge qualified"]
    assert check["passed"] and "judge.require_qualified is off" in check["found"]
    assert VerdictCache(Path(job.config.paths.data_dir) / FILE).count() > 0
    (report,) = read_reports(job.directory / STEPS)
    assert report.metrics["time/judge_wait_s"] >= 0
    assert "judging" in json.loads((job.directory / MANIFEST).read_text())["spent"]


def test_the_state_of_the_judge_is_a_check_of_its_own(make_job, tmp_path):
    assert check_qualified(make_job().config) == []
    with JudgeServer(Behaviour()) as server:
        (check,) = check_qualified(served_judge(make_job(), server).config)
    assert not check.passed and "slmsearch judge qualify" in check.remedy
    (check,) = check_qualified(served_judge(make_job(), server, retries=0).config)
    assert not check.passed and server.url in check.found


def test_a_model_that_cannot_fit_is_refused(make_job, toolbox, questions, monkeypatch):
    monkeypatch.setattr("slmsearch.learn.preflight.measure_available", lambda: {"cpu": 1e8})
    with pytest.raises(PreflightError, match=r"check 'memory' failed: .+; change train\.\w+|policy\.\w+"):
        train_through(toolbox, questions, make_job())


def test_the_shape_is_read_without_weights(model_dir):
    shape = measure_shape(str(model_dir))
    assert (shape.layers, shape.hidden, shape.kv_width) == (2, 64, 32)
    assert len(shape.linear_widths) == 14
    assert shape.parameters < 200_000


@pytest.mark.parametrize("model", ["/no/such/model", "nobody/has-published-this", "damaged"])
def test_a_shape_that_cannot_be_read_is_one_clear_error(model, tmp_path):
    if model == "damaged":
        (tmp_path / "config.json").write_text("{")
        model = str(tmp_path)
    with pytest.raises(ModelError, match=r"policy\.model"):
        measure_shape(model)


def test_a_full_disk_is_noticed(make_job, monkeypatch):
    monkeypatch.setattr("slmsearch.learn.preflight.shutil.disk_usage", lambda place: type("Usage", (), {"free": 1e6})())
    check = check_disk(make_job().config, FOUR_B)
    assert not check.passed and "paths.data_dir" in check.remedy
