"""Collapse: what is one, what is not, and how a run returns to its best weights - also after a kill, and in several processes."""

import json
import os
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from slmsearch.artifacts.files import file_hash
from slmsearch.config import MonitorConfig, PolicyConfig
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import CheckpointError, TrainingError
from slmsearch.judge import ExactJudge
from slmsearch.processes.ports import free_port
from slmsearch.sampling.load_sampler import make_sampler
from slmsearch.training.callbacks import STATE, BestWeights, StepCallback
from slmsearch.training.files import ADAPTER, CHECKPOINTS, STEPS
from slmsearch.training.monitor import ALONE, RULES, CollapseMonitor, find_fall
from slmsearch.training.reports import NOT_A_NUMBER, read_reports, truncate_reports
from tests.slmsearch.training import watched
from tests.slmsearch.training.through import train_through
from tests.slmsearch.training.watched import NORMAL, QUESTIONS_PER_STEP, Watched, fell_after, noisy, steady

WINDOW = CollapseMonitor(QUESTIONS_PER_STEP).window


def normal_run(steps=40):
    chance, monitor = random.Random(1), CollapseMonitor(QUESTIONS_PER_STEP)
    assert not any(monitor.look(noisy(chance)) for _ in range(steps))
    return chance, monitor


def test_every_metric_is_one_of_the_test():
    assert {rule.metric for rule in RULES} | {"reward/mean"} == set(NORMAL)


@pytest.mark.parametrize(
    ("metric", "value", "rule"),
    [
        ("optim/grad_norm", 6.0, "gradient"),
        ("stop/malformed", 0.6, "malformed"),
        ("policy/entropy", 2.5, "entropy"),
        ("policy/entropy", 0.03, "entropy"),
        ("policy/logprob_right", -2.0, "likelihood"),
        ("policy/logprob_wrong", -4.0, "likelihood"),
        ("episode/searches", 0.1, "searches"),
        ("episode/single_call_frac", 0.95, "calls"),
        ("episode/common_call_frac", 0.95, "calls"),
        ("answer/words", 20.0, "answer length"),
        ("reward/mean", 0.05, "reward"),
    ],
)
def test_every_rule_suspects_within_a_window(metric, value, rule):
    chance, monitor = normal_run()
    found = [suspicion for suspicion in (monitor.look(noisy(chance, **{metric: value})) for _ in range(WINDOW)) if suspicion]
    assert {suspicion.rule for suspicion in found} == {rule}
    assert (found[0].value > found[0].limit) == (value > NORMAL[metric])
    assert (found[0].confirm > 0) == (rule == "reward"), "the reward alone is confirmed on held-out questions"


@pytest.mark.parametrize(("questions_per_step", "window"), [(1, 24), (2, 24), (4, 24), (8, 16), (16, 8), (64, 8)])
def test_windows_are_sized_in_questions(questions_per_step, window):
    assert CollapseMonitor(questions_per_step).window == window


@pytest.mark.parametrize("seed", range(100))
def test_a_run_that_learns_is_no_collapse(seed):
    """Reward and searches rise, entropy falls to a quarter, single steps are wild, some have no gradient.

    Of 4,816 such runs four were suspected, all by their first gradients, so the seeds are fixed.
    """
    chance, monitor = random.Random(seed), CollapseMonitor(8)
    for step in range(120):
        learnt = min(1.0, step / 60)
        trend = {"reward/mean": 0.5 + 0.4 * learnt, "episode/searches": 1 + 0.6 * learnt, "policy/entropy": 0.4 - 0.3 * learnt}
        metrics = {**noisy(chance, **trend), "reward/mean": trend["reward/mean"] + chance.gauss(0, 0.08)}
        metrics["optim/grad_norm"] *= 20 if chance.random() < 0.05 else chance.random() > 0.2
        suspicion = monitor.look(metrics)
        assert suspicion is None or suspicion.confirm


def test_a_change_that_brings_a_higher_reward_is_learning():
    """A policy that finds out within steps that one search answers the question makes one call, and is sure."""
    chance, monitor = random.Random(1), CollapseMonitor(QUESTIONS_PER_STEP)
    for _ in range(30):
        monitor.look(noisy(chance, **{"reward/mean": 0.2}))
    learnt = {"episode/single_call_frac": 0.8, "policy/entropy": 0.02}
    assert not any(monitor.look(noisy(chance, **{"reward/mean": 0.55}, **learnt)) for _ in range(WINDOW))


def test_steps_without_a_gradient_do_not_make_the_others_explode():
    chance, monitor = random.Random(1), CollapseMonitor(QUESTIONS_PER_STEP)
    for step in range(60):  # first most steps have none, then most have one
        assert monitor.look({**noisy(chance), "optim/grad_norm": 0.2 if chance.random() < step / 60 else 0.0}) is None


def test_after_a_restart_the_past_is_forgotten_but_not_the_reward():
    chance, monitor = normal_run()
    assert any(monitor.look(noisy(chance, **{"policy/entropy": 3.0})) for _ in range(WINDOW))
    monitor.restart()
    # Another normal entropy is no collapse now; a reward far below what the run had is one.
    assert not any(monitor.look(noisy(chance, **{"policy/entropy": 3.0})) for _ in range(WINDOW))
    assert any(monitor.look(noisy(chance, **{"reward/mean": 0.1, "policy/entropy": 3.0})) for _ in range(WINDOW))


def test_a_fall_that_is_dismissed_is_suspected_again_after_half_a_window():
    chance, monitor = normal_run()
    steps = []
    for step in range(WINDOW * 2):
        if monitor.look(noisy(chance, **{"reward/mean": 0.2})):
            steps.append(step)
            monitor.dismiss()
    assert len(steps) > 1 and all(later - earlier >= WINDOW // 2 for earlier, later in pairwise(steps))


def test_metrics_that_are_missing_are_not_judged():
    monitor = CollapseMonitor(QUESTIONS_PER_STEP)
    assert not any(monitor.look({}) for _ in range(30))


RIGHT_BEFORE = [[1.0] * 48 + [0.0] * 16] * 4


def test_held_out_questions_confirm_a_fall_that_is_large_and_sure():
    halved = [1.0] * 24 + [0.0] * 40
    fall = find_fall(RIGHT_BEFORE, halved, ALONE)
    assert fall is not None and fall.value == pytest.approx(0.375) and fall.value < fall.limit < 0.75
    assert find_fall(RIGHT_BEFORE, RIGHT_BEFORE[0], 1.0) is None
    assert find_fall(RIGHT_BEFORE, [1.0] * 44 + [0.0] * 20, 1.0) is None, "sure, but small"
    noise = [[float((i * 7 + j) % 3 > 0) for i in range(8)] for j in range(3)]
    assert find_fall(noise, [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], ALONE) is None, "large, but eight questions say little"


def test_questions_without_a_verdict_are_left_out_of_the_comparison():
    halved = [1.0] * 24 + [0.0] * 40
    assert find_fall(RIGHT_BEFORE, [None] * 64, 1.0) is None
    assert find_fall([], halved, 1.0) is None
    some = find_fall([[None, *scores[1:]] for scores in RIGHT_BEFORE], [*halved[:-1], None], ALONE)
    assert some is not None and some.value == pytest.approx(23 / 62)


def make_best_weights(*scores):
    model = torch.nn.Linear(2, 1, bias=False)
    remaining = iter(scores)
    return model, BestWeights(model, lambda: [next(remaining)])


def test_the_best_weights_come_back(tmp_path):
    model, best_weights = make_best_weights(0.5, 0.9, 0.7)
    for step, value in enumerate((1.0, 2.0, 3.0)):
        with torch.no_grad():
            model.weight.fill_(value)
        best_weights.consider(step)
    best_weights.save(tmp_path)
    best_weights.restore()
    assert model.weight.tolist() == [[2.0, 2.0]]
    other, again = make_best_weights()
    again.load(tmp_path)
    again.restore()
    assert other.weight.tolist() == [[2.0, 2.0]]
    assert again.state == best_weights.state


def test_a_step_is_scored_once():
    _, best_weights = make_best_weights(0.5)
    best_weights.consider(7)
    best_weights.consider(7)
    assert best_weights.state.best_score == 0.5


def test_weights_are_compared_by_questions_that_both_scorings_know():
    scorings = iter([[0.5] * 4, [1.0, None, None, 0.4], [0.9, 0.9, 0.9, 0.4], [1.0, None, 0.9, 0.5]])
    best_weights = BestWeights(torch.nn.Linear(2, 1), lambda: next(scorings))
    bests = []
    for step in range(4):
        best_weights.consider(step)
        bests.append(best_weights.state.best_step)
    assert bests == [0, 1, 1, 3], "the third knows no better than the second where both were scored"


def test_a_scoring_in_which_most_questions_failed_decides_nothing():
    _, best_weights = make_best_weights(None)
    with pytest.raises(TrainingError, match="1 of 1 held-out questions could not be scored"):
        best_weights.consider(1)
    assert best_weights.state.best_step == 0


def test_best_weights_that_are_missing_or_foreign_are_refused(tmp_path):
    _, best_weights = make_best_weights()
    with pytest.raises(CheckpointError, match="lacks the best weights"):
        best_weights.load(tmp_path)
    BestWeights(torch.nn.Linear(3, 3), lambda: [0.0]).save(tmp_path)
    with pytest.raises(CheckpointError, match="belongs to another model"):
        best_weights.load(tmp_path)


def test_a_state_written_before_scorings_were_kept_can_be_read(tmp_path):
    _, best_weights = make_best_weights(0.5)
    best_weights.consider(1)
    best_weights.save(tmp_path)
    state = json.loads((tmp_path / STATE).read_text())
    assert state.pop("scorings") == [[0.5]]
    (tmp_path / STATE).write_text(json.dumps(state))
    best_weights.load(tmp_path)
    assert best_weights.state.best_step == 1 and best_weights.state.scorings == []


def test_a_fall_of_the_reward_counts_only_if_held_out_questions_fell_too():
    quiet, fallen = Watched(steady), Watched(fell_after(30))
    for run, last in ((quiet, 44), (fallen, 33)):
        run.callback.watch(run.best_weights, [], None)
        run.play(range(1, 31))
        run.play(range(31, last + 1), **{"reward/mean": 0.1})
    assert len(quiet.scored) > 1 and quiet.collapses() == []
    assert quiet.optimizer.param_groups[0]["lr"] == 1.0
    ((step, collapse),) = fallen.collapses()
    assert fallen.scored == [0, step] and collapse.rule == "reward" and collapse.learning_rate == pytest.approx(0.3)


def test_the_steps_at_which_weights_are_scored_report_the_held_out_reward():
    run = Watched(steady, save_steps=10)
    run.callback.watch(run.best_weights, [], None)
    run.play(range(1, 25))
    assert {report.step: report.metrics["reward/held_out"] for report in run.reports if "reward/held_out" in report.metrics} == {
        10: 0.5,
        20: 0.5,
    }


def test_held_out_questions_that_fall_by_themselves_are_a_collapse():
    run = Watched(fell_after(12), save_steps=10)
    run.callback.watch(run.best_weights, [], None)
    run.play(range(1, 25))
    assert [(step, collapse.rule) for step, collapse in run.collapses()] == [(20, "held-out reward")]


def test_a_resumed_watch_forgets_what_a_broken_loss_made_it_forget(tmp_path):
    """Every later step is judged as in the run that was not interrupted."""
    whole = Watched(steady)
    whole.callback.watch(whole.best_weights, [], None)
    whole.play(range(1, 12))
    whole.play([12], loss=float("nan"))
    whole.play(range(13, 17))
    assert [collapse.rule for _, collapse in whole.collapses()] == [NOT_A_NUMBER]
    resumed = resume(whole, steady, tmp_path)
    for run in (whole, resumed):
        run.play(range(17, 45), **{"policy/entropy": 3.0})
    assert whole.collapses(16) == resumed.collapses()


@pytest.mark.parametrize("killed_at", range(31, 45))
def test_a_resumed_watch_knows_which_suspicions_were_dismissed(killed_at, tmp_path):
    """It asks the held-out questions at the same steps, compares them with the same scorings, and restores the same weights."""
    whole = Watched(fell_after(40))
    whole.callback.watch(whole.best_weights, [], None)
    whole.play(range(1, 31))
    changes = {"reward/mean": 0.1}
    whole.play(range(31, killed_at + 1), **changes)
    resumed = resume(whole, fell_after(40), tmp_path)
    for run in (whole, resumed):
        run.play(range(killed_at + 1, 60), **changes)
    assert whole.collapses(), "dismissed at first, confirmed later"
    assert whole.collapses(killed_at) == resumed.collapses()
    assert [step for step in whole.scored if step > killed_at] == resumed.scored
    assert whole.best_weights.state == resumed.best_weights.state


def test_a_checkpoint_that_a_stop_asked_for_scores_nothing(tmp_path):
    """Otherwise a run that was stopped and resumed would compare with other scorings than one that was not."""
    run = Watched(steady, save_steps=10)
    run.callback.watch(run.best_weights, [], None)
    run.play(range(1, 16))
    checkpoint = tmp_path / "checkpoint-15"
    checkpoint.mkdir()
    state = SimpleNamespace(global_step=15, is_world_process_zero=True)
    run.callback.on_save(SimpleNamespace(output_dir=str(tmp_path)), state, None)
    assert run.scored == [0, 10] and (checkpoint / STATE).is_file()


def resume(run, held_out, directory):
    run.best_weights.save(directory)
    resumed = Watched(held_out)
    resumed.optimizer.param_groups[0]["lr"] = run.optimizer.param_groups[0]["lr"]
    resumed.callback.watch(resumed.best_weights, list(run.reports), directory)
    return resumed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_decide_alike():
    """The main process suspects for both: they score at the same step, and restore together."""
    port, root = free_port(), os.getcwd()
    environment = {**os.environ, "PYTHONPATH": root, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", watched.__name__],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        told = [json.loads(process.communicate(timeout=500)[0].splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [rank for rank, *_ in told] == [0, 1]
    assert told[0][1:] == told[1][1:]
    assert told[0][2] == 1 and told[0][3][0][1] == "reward"


DESTROYED_AT = 12
COLLAPSING = {"steps": 21, "group_size": 4, "scale_rewards": "group", "checkpoint_steps": 3, "lr_schedule": "constant"}
WATCHED = MonitorConfig(held_out=4)


@pytest.fixture
def destroyed(monkeypatch):
    """One update with a learning rate three hundred times too high destroys the toy policy."""
    begin = StepCallback.on_step_begin

    def begin_too_fast(self, args, state, control, **objects):
        begin(self, args, state, control, **objects)
        if state.global_step == DESTROYED_AT:
            objects["optimizer"].param_groups[0]["lr"] = 1.0

    monkeypatch.setattr(StepCallback, "on_step_begin", begin_too_fast)


def collapses(job):
    return [(report.step, report.collapse) for report in read_reports(job.directory / STEPS) if report.collapse]


def test_an_induced_collapse_ends_no_worse_than_its_best_weights(destroyed, make_job, toolbox, questions):
    job = make_job(monitor=WATCHED, **COLLAPSING)
    train_through(toolbox, questions, job, held_out=questions[:4])
    reports = read_reports(job.directory / STEPS)
    assert [report.step for report in reports] == list(range(1, 22)), "a return repeats no step"
    assert [step > DESTROYED_AT for step, _ in collapses(job)] == [True], [report.metrics["reward/mean"] for report in reports]
    assert collapses(job)[0][1].learning_rate == pytest.approx(0.3 * 3e-3)

    unwatched = make_job("unwatched", monitor=MonitorConfig(held_out=0), **COLLAPSING)
    train_through(toolbox, questions, unwatched, held_out=questions[:4])
    start = share_right(None, toolbox, questions, job)
    assert share_right(job, toolbox, questions) >= start - 0.05
    assert share_right(unwatched, toolbox, questions) < start / 2


def test_a_run_that_only_collapses_is_ended(destroyed, make_job, toolbox, questions, monkeypatch):
    monkeypatch.setattr(MonitorConfig, "max_collapses", 1)
    job = make_job(monitor=WATCHED, **COLLAPSING)
    with pytest.raises(TrainingError, match=r"collapsed 1 times .+ lower train\.learning_rate"):
        train_through(toolbox, questions, job, held_out=questions[:4])


def test_a_resumed_run_remembers_returns_and_ends_with_the_same_bytes(destroyed, make_job, toolbox, questions):
    whole, killed = (make_job(name, monitor=WATCHED, **COLLAPSING) for name in ("whole", "killed"))
    for job in (whole, killed):
        train_through(toolbox, questions, job, held_out=questions[:4])
    kept = sorted(int(path.name.rpartition("-")[2]) for path in (killed.directory / CHECKPOINTS).glob("checkpoint-*"))
    shutil.rmtree(killed.directory / ADAPTER)
    truncate_reports(killed.directory / STEPS, kept[0])
    checkpoint = killed.directory / CHECKPOINTS / f"checkpoint-{kept[0]}"
    train_through(toolbox, questions, killed, checkpoint, held_out=questions[:4])
    assert collapses(whole) == collapses(killed) != []
    adapter = "adapter_model.safetensors"
    assert file_hash(whole.directory / ADAPTER / adapter) == file_hash(killed.directory / ADAPTER / adapter)


def share_right(job, toolbox, questions, base=None):
    """Exact match of sampled episodes with a job's adapter, or with the model that `base` began with."""
    config = (job or base).config
    policy = PolicyConfig(model=config.policy.model, adapter=str(job.directory / ADAPTER) if job else None, device="cpu")
    questions = [question for question in questions for _ in range(16)]
    episodes = play_episodes(questions, make_sampler(policy), toolbox, config.searcher, Sampling(1.0, 0, 16))
    verdicts = ExactJudge().judge([(q, e.answer) for q, e in zip(questions, episodes, strict=True)])
    return sum(bool(verdict.correct) for verdict in verdicts) / len(questions)
