"""What happens around every step: the report, the sentinel, the checkpoint, the wish to stop."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from slmsearch.config import SentinelConfig
from slmsearch.errors import TrainingError
from slmsearch.learn.checkpoints import prune_checkpoints, seal_checkpoint
from slmsearch.learn.keeper import Keeper
from slmsearch.learn.reports import NOT_A_NUMBER, Collapse, StepReport, make_report
from slmsearch.learn.rollout_bridge import RolloutBridge
from slmsearch.learn.sentinel import Sentinel
from slmsearch.learn.spent import UPDATE, Spent

logger = logging.getLogger(__name__)

_TRL_NAMES = {
    "loss": "loss",
    "grad_norm": "optim/grad_norm",
    "learning_rate": "optim/learning_rate",
    "kl": "policy/kl_reference",
    "policy/kl_sampler": "policy/kl_sampler",
}
"""TRL's names of what it measures itself -> the project's; its other metrics repeat what the episodes tell better."""


class StepCallback(TrainerCallback):
    """Reports every step, watches for collapse, seals checkpoints, and stops when asked to."""

    def __init__(
        self,
        bridge: RolloutBridge,
        on_step: Callable[[StepReport], None],
        should_stop: Callable[[], bool],
        keep_checkpoints: int,
        sentinel: SentinelConfig,
        spent: Spent,
    ) -> None:
        """Set what is called.

        Args:
            bridge: source of a step's episode metrics.
            on_step: takes each report, on the main process only.
            should_stop: asked after every step, on every process; True saves a checkpoint and ends training.
            keep_checkpoints: complete checkpoints kept.
            sentinel: its settings.
            spent: counts the time.
        """
        self._bridge, self._on_step, self._should_stop, self._keep = bridge, on_step, should_stop, keep_checkpoints
        self._settings, self._sentinel = sentinel, Sentinel(sentinel)
        self._spent, self._started = spent, 0.0
        self.keeper: Keeper | None = None
        """Holds the best weights; set once there is a model."""

    def watch(self, keeper: Keeper, past: list[StepReport], checkpoint: Path | None) -> None:
        """Begin to watch a run, or go on where a killed one stood.

        Args:
            keeper: of the model that is trained.
            past: reports of the steps that count.
            checkpoint: checkpoint that training goes on from.
        """
        self.keeper = keeper
        if checkpoint is None:
            keeper.consider(0)
            return
        keeper.load(checkpoint)
        for report in past:
            self._sentinel.look(report.metrics)
            if report.collapse is not None:  # a loss that was no number made it forget, and trips no rule here
                self._sentinel.forget()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._spent.begin(UPDATE)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock; save and stop if asked to."""
        self._spent.end()
        if self._should_stop():
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **objects: Any) -> None:
        """Report the step; where the sentinel trips, return to the best weights first.

        Raises:
            TrainingError: the loss is no longer a number, or the run has collapsed too often.
        """
        if not logs or "loss" not in logs:
            return
        measured = {ours: logs[theirs] for theirs, ours in _TRL_NAMES.items() if logs.get(theirs) is not None}
        metrics = {**self._bridge.metrics, **measured, "time/step_s": time.perf_counter() - self._started}
        broken = not math.isfinite(logs["loss"]) or not math.isfinite(logs.get("grad_norm", 0.0))
        if broken and self.keeper is None:
            what = f"loss {logs['loss']}, gradient norm {logs.get('grad_norm')}"
            raise TrainingError(f"{what} at step {state.global_step}: lower train.learning_rate")
        report = make_report(state.global_step, metrics)
        if self.keeper is not None:
            report = self._look(report, broken, objects)
        if state.is_world_process_zero:
            self._on_step(report)
        if self.keeper is not None and report.collapse is not None and self.keeper.state.trips >= self._settings.max_trips:
            raise TrainingError(
                f"collapsed {self.keeper.state.trips} times (last: {report.collapse.rule} at step {report.step}); "
                f"the best weights are those of step {report.collapse.returned_to}: lower train.learning_rate"
            )

    def _look(self, report: StepReport, broken: bool, objects: dict[str, Any]) -> StepReport:
        """Ask the sentinel; on a trip put the best weights back and lower the learning rate."""
        assert self.keeper is not None
        trip = self._sentinel.look(report.metrics)
        if broken:
            self._sentinel.forget()
        if trip is None and not broken:
            return report
        self.keeper.put_back()
        self.keeper.state.trips += 1
        for group in objects["optimizer"].param_groups:
            group["lr"] *= self._settings.lr_factor
        scheduler = objects["lr_scheduler"]
        scheduler.base_lrs = [rate * self._settings.lr_factor for rate in scheduler.base_lrs]
        objects["optimizer"].state.clear()  # moments of gradients that led astray
        rate = objects["optimizer"].param_groups[0]["lr"]
        rule, value, limit = (trip.rule, trip.value, trip.limit) if trip else (NOT_A_NUMBER, 0.0, 0.0)
        collapse = Collapse(rule, value, limit, self.keeper.state.best_step, rate)
        logger.warning("step %d: %s", report.step, collapse.describe())
        return make_report(report.step, report.metrics, collapse)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Score the weights, complete and seal the checkpoint just written, and delete the oldest."""
        if self.keeper is not None:
            self.keeper.consider(state.global_step)
        if torch.distributed.is_initialized():  # the other processes write their random state
            torch.distributed.barrier()
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if self.keeper is not None:
                self.keeper.save(checkpoint)
            seal_checkpoint(checkpoint, state.global_step)
            prune_checkpoints(Path(args.output_dir), self._keep)
