"""Simulated runs under the real monitor; seeds are fixed, so that the same runs are healthy and the same collapse every time."""

import pytest

from slmsearch.config import MonitorConfig, PlannerConfig, RunConfig, TrainConfig
from slmsearch.config.playing import PlanSftConfig
from slmsearch.extensions.bench import monitor
from slmsearch.extensions.bench.monitor import KINDS, SHAPES, SPREADS, Run, RunShape, measure, run_monitor, shape_of, watch

OLD_GPU = RunShape(questions=4, group=4, steps=600, held_out=128, checkpoint=25, max_collapses=3, planner=False)
"""Sixteen episodes a step: comparing their mean reward with the best of many windows stopped every healthy run of this shape."""
SMALL = RunShape(questions=8, group=8, steps=200, held_out=64, checkpoint=40, max_collapses=3, planner=False)


@pytest.mark.parametrize("conc", SPREADS)
@pytest.mark.parametrize(("start", "end"), SHAPES.values(), ids=SHAPES)
def test_healthy_runs_of_few_episodes_a_step_are_left_alone(start, end, conc):
    assert list(watch(Run(OLD_GPU, (start, end, conc), seed=3))) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [SMALL, RunShape(2, 4, 200, 128, 50, 3, True)], ids=["8 x 8", "2 x 4"])
def test_planted_collapses_are_seen_and_called_by_their_names(shape, kind):
    at, names = 90, {"single call": {"calls"}, "same call": {"calls"}, "malformed": {"malformed", "reward"}}.get(kind, {kind})
    found = list(watch(Run(shape, (0.6, 0.6, 3.0), 5, kind, at)))
    assert found and at < found[0][0] <= at + 40
    assert found[0][1] in names | {"held-out reward"}


def test_a_planted_collapse_has_its_size():
    runs = {kind: Run(SMALL, (0.6, 0.6, 3.0), 7, kind, 90) for kind in ("", *KINDS)}

    def mean(kind, metric, steps=slice(100, 200)):
        values = [metrics[metric] for metrics in runs[kind].metrics[steps]]
        return sum(values) / len(values)

    before = slice(0, 90)
    assert mean("reward", "reward/mean") == pytest.approx(0.5 * mean("reward", "reward/mean", before), rel=0.15)
    assert mean("entropy", "policy/entropy") == pytest.approx(0.1 * mean("entropy", "policy/entropy", before), rel=0.3)
    assert mean("malformed", "stop/malformed") >= 0.58
    assert mean("single call", "episode/single_call_frac") >= 0.9 > 0.5 > mean("single call", "episode/single_call_frac", before)
    assert mean("same call", "episode/common_call_frac") >= 0.9 > 0.5 > mean("same call", "episode/common_call_frac", before)
    assert mean("entropy", "reward/mean") > 0.8 * mean("", "reward/mean"), "what it need not change stays"


def test_presets_without_a_long_reinforced_run_are_left_out_with_the_reason():
    quick = RunConfig(train=TrainConfig(steps=0, limit=3, questions_per_step=1))
    supervised = RunConfig(planner=PlannerConfig(sft=PlanSftConfig(enabled=True)))
    unwatched = RunConfig(train=TrainConfig(monitor=MonitorConfig(held_out=0)))
    reasons = run_monitor({"quick": quick, "sft": supervised, "unwatched": unwatched}, 1).values["left_out"]
    assert [word in reasons[name] for name, word in (("quick", "3 steps"), ("sft", "supervision"), ("unwatched", "off"))] == [True] * 3
    epochs = shape_of(RunConfig(train=TrainConfig(steps=0, epochs=3, questions_per_step=8)))
    assert isinstance(epochs, RunShape) and epochs.steps > 200


def test_the_result_and_its_table(monkeypatch: pytest.MonkeyPatch):
    row = measure(SMALL, 2)
    assert (row["healthy_stopped_frac"], row["caught_frac"]) == (0.0, 1.0) and row["median_steps"] <= 40
    assert row == measure(SMALL, 2), "the same seeds give the same result"
    monkeypatch.setattr(monitor, "measure", lambda shape, runs: row)
    found = run_monitor({"small": RunConfig(), "quick": RunConfig(train=TrainConfig(steps=3))}, 2)
    text = found.render()
    assert "| small | 8 x 8 | 0.0% / 0.0% | 100.0% |" in text and "quick is left out: it has 3 steps" in text
    assert set(found.values["presets"]["small"]["kinds"]) == set(KINDS)
