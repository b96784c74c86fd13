"""Collapse: what trips, what does not, and how a run returns to its best weights - also after a kill."""

import random
import shutil
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import PolicyConfig, SentinelConfig
from slmsearch.errors import CheckpointError, TrainingError
from slmsearch.generate.load import make_writer
from slmsearch.generate.writer import Sampling
from slmsearch.judge import ExactJudge
from slmsearch.learn.callbacks import StepCallback
from slmsearch.learn.checkpoints import file_hash
from slmsearch.learn.files import ADAPTER, CHECKPOINTS, STEPS
from slmsearch.learn.keeper import Keeper
from slmsearch.learn.reports import NOT_A_NUMBER, read_reports, truncate_reports
from slmsearch.learn.sentinel import Sentinel
from slmsearch.learn.spent import Spent
from slmsearch.learn.training import train_through
from slmsearch.searcher.rollout import play_episodes

CONFIG = SentinelConfig(window=4, warmup=4)
NORMAL = {
    "reward/mean": 0.6,
    "optim/grad_norm": 0.2,
    "stop/malformed": 0.02,
    "policy/entropy": 0.3,
    "policy/logprob_right": -0.2,
    "policy/logprob_wrong": -0.5,
    "episode/searches": 1.6,
    "answer/words": 2.0,
}


def noisy(chance, **changes):
    return {name: value * chance.uniform(0.8, 1.2) for name, value in {**NORMAL, **changes}.items()}


@pytest.mark.parametrize(
    ("metric", "value", "rule"),
    [
        ("optim/grad_norm", 6.0, "gradient"),
        ("stop/malformed", 0.6, "malformed"),
        ("policy/entropy", 2.5, "entropy"),
        ("policy/logprob_right", -2.0, "likelihood"),
        ("policy/logprob_wrong", -4.0, "likelihood"),
        ("episode/searches", 0.1, "searches"),
        ("answer/words", 20.0, "answer length"),
        ("reward/mean", 0.05, "reward"),
    ],
)
def test_every_rule_trips_within_a_window(metric, value, rule):
    chance, sentinel = random.Random(1), Sentinel(CONFIG)
    assert not any(sentinel.look(noisy(chance)) for _ in range(40))
    trips = [trip for trip in (sentinel.look(noisy(chance, **{metric: value})) for _ in range(CONFIG.window)) if trip]
    assert [trip.rule for trip in trips] == [rule]
    assert (trips[0].value > trips[0].limit) == (value > NORMAL[metric])


@given(st.integers(0, 10_000))
def test_a_run_that_learns_does_not_trip(seed):
    """Reward and searches rise, entropy falls, single steps are wild."""
    chance, sentinel = random.Random(seed), Sentinel(SentinelConfig())
    for step in range(120):
        learnt = min(1.0, step / 60)
        trend = {"reward/mean": 0.5 + 0.4 * learnt, "episode/searches": 1 + 0.6 * learnt, "policy/entropy": 0.4 - 0.3 * learnt}
        metrics = {**noisy(chance, **trend), "reward/mean": trend["reward/mean"] + chance.gauss(0, 0.08)}
        if chance.random() < 0.05:
            metrics["optim/grad_norm"] *= 6
        assert sentinel.look(metrics) is None


def test_after_a_trip_the_past_is_forgotten_but_not_the_best_reward():
    chance, sentinel = random.Random(1), Sentinel(CONFIG)
    for _ in range(20):
        sentinel.look(noisy(chance))
    assert any(sentinel.look(noisy(chance, **{"policy/entropy": 3.0})) for _ in range(4))
    # Another normal entropy is no trip now; a reward far below what the run had is one.
    assert not any(sentinel.look(noisy(chance, **{"policy/entropy": 3.0})) for _ in range(20))
    assert any(sentinel.look(noisy(chance, **{"reward/mean": 0.1, "policy/entropy": 3.0})) for _ in range(8))


def test_metrics_that_are_missing_are_not_judged():
    sentinel = Sentinel(CONFIG)
    assert not any(sentinel.look({}) for _ in range(30))


def make_keeper(*scores):
    model = torch.nn.Linear(2, 1, bias=False)
    remaining = iter(scores)
    return model, Keeper(model, lambda: next(remaining))


def test_the_best_weights_come_back(tmp_path):
    model, keeper = make_keeper(0.5, 0.9, 0.7)
    for step, value in enumerate((1.0, 2.0, 3.0)):
        with torch.no_grad():
            model.weight.fill_(value)
        keeper.consider(step)
    keeper.save(tmp_path)
    keeper.put_back()
    assert model.weight.tolist() == [[2.0, 2.0]]
    other, again = make_keeper()
    again.load(tmp_path)
    again.put_back()
    assert other.weight.tolist() == [[2.0, 2.0]]
    assert again.state == keeper.state


def test_a_step_is_scored_once():
    _, keeper = make_keeper(0.5)
    keeper.consider(7)
    keeper.consider(7)
    assert keeper.state.best_score == 0.5


def test_best_weights_that_are_missing_or_foreign_are_refused(tmp_path):
    _, keeper = make_keeper()
    with pytest.raises(CheckpointError, match="lacks the best weights"):
        keeper.load(tmp_path)
    Keeper(torch.nn.Linear(3, 3), lambda: 0.0).save(tmp_path)
    with pytest.raises(CheckpointError, match="belongs to another model"):
        keeper.load(tmp_path)


def test_a_resumed_watch_forgets_what_a_broken_loss_made_it_forget(tmp_path):
    """Every later step is judged as in the run that was not interrupted."""
    model, keeper = make_keeper(0.5)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    state = SimpleNamespace(global_step=0, is_world_process_zero=True)

    def play(callback, steps, **changes):
        for step in steps:
            state.global_step = step
            callback._bridge.metrics = noisy(random.Random(step), **changes)
            loss = float("nan") if step == 12 else 0.1
            callback.on_log(None, state, None, {"loss": loss}, optimizer=optimizer, lr_scheduler=scheduler)

    def begin():
        reports = []
        config = CONFIG.model_copy(update={"max_trips": 9})
        return StepCallback(SimpleNamespace(metrics={}), reports.append, lambda: False, 1, config, Spent()), reports

    whole, reports = begin()
    whole.watch(keeper, [], None)
    play(whole, range(1, 17))
    assert [report.collapse.rule for report in reports if report.collapse] == [NOT_A_NUMBER]
    keeper.save(tmp_path)
    resumed, later = begin()
    resumed.watch(keeper, list(reports), tmp_path)
    for callback in (whole, resumed):
        play(callback, range(17, 29), **{"policy/entropy": 3.0})
    expected = [(report.step, report.collapse.rule) for report in reports[16:] if report.collapse]
    assert [(report.step, report.collapse.rule) for report in later if report.collapse] == expected


COLLAPSING = {
    "steps": 14,
    "group_size": 8,
    "learning_rate": 1.0,
    "scale_rewards": "group",
    "checkpoint_steps": 3,
    "lr_schedule": "constant",
}
WATCHED = SentinelConfig(window=2, warmup=2, held_out=4, max_trips=9)


def collapses(job):
    return [(report.step, report.collapse) for report in read_reports(job.directory / STEPS) if report.collapse]


def test_an_induced_collapse_ends_no_worse_than_its_best_weights(make_job, toolbox, questions):
    """A learning rate three hundred times too high destroys the toy policy within steps."""
    job = make_job(sentinel=WATCHED, **COLLAPSING)
    train_through(toolbox, questions, job, held_out=questions[:4])
    reports = read_reports(job.directory / STEPS)
    assert [report.step for report in reports] == list(range(1, 15)), "a return repeats no step"
    assert collapses(job), [report.metrics["reward/mean"] for report in reports]
    assert collapses(job)[0][1].learning_rate == pytest.approx(0.3)

    unwatched = make_job("unwatched", sentinel=SentinelConfig(enabled=False), **COLLAPSING)
    train_through(toolbox, questions, unwatched, held_out=questions[:4])
    start = share_right(None, toolbox, questions, job)
    assert share_right(job, toolbox, questions) >= start - 0.05
    assert share_right(unwatched, toolbox, questions) < start / 2


def test_a_run_that_only_collapses_is_ended(make_job, toolbox, questions):
    job = make_job(sentinel=WATCHED.model_copy(update={"max_trips": 1}), **COLLAPSING)
    with pytest.raises(TrainingError, match=r"collapsed 1 times .+ lower train\.learning_rate"):
        train_through(toolbox, questions, job, held_out=questions[:4])


def test_a_resumed_run_remembers_returns_and_ends_with_the_same_bytes(make_job, toolbox, questions):
    whole, killed = (make_job(name, sentinel=WATCHED, **COLLAPSING) for name in ("whole", "killed"))
    for job in (whole, killed):
        train_through(toolbox, questions, job, held_out=questions[:4])
    checkpoint = killed.directory / CHECKPOINTS / "checkpoint-12"
    shutil.rmtree(killed.directory / ADAPTER)
    truncate_reports(killed.directory / STEPS, 12)
    train_through(toolbox, questions, killed, checkpoint, held_out=questions[:4])
    assert collapses(whole) == collapses(killed) != []
    adapter = "adapter_model.safetensors"
    assert file_hash(whole.directory / ADAPTER / adapter) == file_hash(killed.directory / ADAPTER / adapter)


def share_right(job, toolbox, questions, base=None):
    """Exact match of sampled episodes with a job's adapter, or with the model that `base` began with."""
    config = (job or base).config
    policy = PolicyConfig(model=config.policy.model, adapter=str(job.directory / ADAPTER) if job else None, device="cpu")
    questions = [question for question in questions for _ in range(16)]
    episodes = play_episodes(questions, make_writer(policy), toolbox, config.searcher, Sampling(1.0, 0, 16))
    verdicts = ExactJudge().judge([(q, e.answer) for q, e in zip(questions, episodes, strict=True)])
    return sum(bool(verdict.correct) for verdict in verdicts) / len(questions)
