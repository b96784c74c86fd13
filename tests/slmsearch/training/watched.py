"""A run under the collapse monitor without a trainer: metrics and held-out scores are given.

As a program it is one of several processes, of which only the main one sees the reward fall.
"""

import json
import random
from types import SimpleNamespace
from typing import ClassVar

import torch
from accelerate import PartialState

from slmsearch.config import MonitorConfig, TrainConfig
from slmsearch.training.callbacks import BestWeights, StepCallback
from slmsearch.training.phase_timer import PhaseTimer

QUESTIONS_PER_STEP = 16
NORMAL = {
    "reward/mean": 0.6,
    "optim/grad_norm": 0.2,
    "stop/malformed": 0.02,
    "policy/entropy": 0.3,
    "policy/logprob_right": -0.2,
    "policy/logprob_wrong": -0.5,
    "episode/searches": 1.6,
    "episode/single_call_frac": 0.2,
    "episode/common_call_frac": 0.1,
    "answer/words": 2.0,
}


def noisy(chance, **changes):
    return {name: value * chance.uniform(0.8, 1.2) for name, value in {**NORMAL, **changes}.items()}


class Patient(MonitorConfig):
    max_collapses: ClassVar[int] = 9


class Watched:
    """A run of a callback without a trainer: metrics and held-out scores are given."""

    def __init__(self, held_out, save_steps=10_000):
        self.model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(self.model.weight)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1.0)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)
        self.step, self.scored, self.reports = 0, [], []
        self.best_weights = BestWeights(self.model, lambda: self.scored.append(self.step) or held_out(self.step))
        config = TrainConfig(questions_per_step=QUESTIONS_PER_STEP, monitor=Patient())
        self.args = SimpleNamespace(save_steps=save_steps)
        bridge = SimpleNamespace(metrics={}, rows=[], episodes=[])
        self.callback = StepCallback(bridge, self.reports.append, lambda: False, config, PhaseTimer())

    def play(self, steps, loss=0.1, **changes):
        for self.step in steps:
            self.callback._bridge.metrics = noisy(random.Random(self.step), **changes)
            state = SimpleNamespace(global_step=self.step, is_world_process_zero=True, max_steps=100)
            objects = {"optimizer": self.optimizer, "lr_scheduler": self.scheduler}
            self.callback.on_log(self.args, state, None, {"loss": loss}, **objects)

    def collapses(self, after=0):
        return [(report.step, report.collapse) for report in self.reports if report.collapse and report.step > after]


def steady(step):
    return [1.0, 0.0] * 32


def fell_after(fall):
    return lambda step: [1.0, 0.0] * 32 if step <= fall else [0.0] * 64


def main():
    rank = PartialState(cpu=True).process_index
    run = Watched(fell_after(30))
    run.callback.watch(run.best_weights, [], None)
    run.play(range(1, 31))
    # What another order of sums in a kernel may do to metrics.
    run.play(range(31, 34), **({"reward/mean": 0.1} if rank == 0 else {}))
    print(json.dumps([rank, run.scored, run.best_weights.state.collapses, [[step, collapse.rule] for step, collapse in run.collapses()]]))


if __name__ == "__main__":
    main()
