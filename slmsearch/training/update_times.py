"""The time of an update of supervised training, measured by some of its updates."""

import time
from statistics import median
from typing import Any

from transformers import TrainerCallback

TRIED_S = 30.0
"""Seconds after which enough updates were measured: 24 of SmolLM2 took six minutes."""


class UpdateTimes(TrainerCallback):
    """A callback that measures the time of each update."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._started = 0.0

    @property
    def total(self) -> float:
        """Seconds of all updates."""
        return sum(self._times)

    @property
    def usual(self) -> float:
        """Median seconds of an update, without the first ones, which compile kernels."""
        return median(self._times[len(self._times) // 4 :])

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock, and the training after enough updates."""
        self._times.append(time.perf_counter() - self._started)
        control.should_training_stop |= self.total >= TRIED_S and len(self._times) > 1
