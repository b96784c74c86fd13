"""What happens around every step: the report, the collapse monitor, the checkpoint, the wish to stop."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from slmsearch.config import TrainConfig
from slmsearch.errors import TrainingError
from slmsearch.learn.best_weights import BestWeights
from slmsearch.learn.checkpoints import prune_checkpoints, seal_checkpoint
from slmsearch.learn.monitor import ALONE, CollapseMonitor, Suspicion
from slmsearch.learn.phase_timer import UPDATE, PhaseTimer
from slmsearch.learn.reports import NOT_A_NUMBER, Collapse, StepReport, make_report
from slmsearch.learn.rollout_bridge import RolloutBridge

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
        config: TrainConfig,
        timer: PhaseTimer,
    ) -> None:
        """Set what is called.

        Args:
            bridge: source of a step's episode metrics.
            on_step: takes each report, on the main process only.
            should_stop: asked after every step, on every process; True saves a checkpoint and ends training.
            config: what is a step, what follows a collapse.
            timer: counts the time.
        """
        self._bridge, self._on_step, self._should_stop = bridge, on_step, should_stop
        self._config, self._monitor = config, CollapseMonitor(config.questions_per_step)
        self._timer, self._started = timer, 0.0
        self.best_weights: BestWeights | None = None
        """Holds the best weights; set once there is a model."""

    def watch(self, best_weights: BestWeights, past: list[StepReport], checkpoint: Path | None) -> None:
        """Begin to watch a run, or go on from a checkpoint where a killed one stood; `past` are the reports of the steps that count."""
        self.best_weights = best_weights
        if checkpoint is None:
            best_weights.consider(0)
            return
        best_weights.load(checkpoint)
        for report in past:
            suspicion = self._monitor.look(report.metrics)
            if report.collapse is not None:
                self._monitor.restart()
            elif suspicion is not None:
                self._monitor.dismiss()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._timer.begin(UPDATE)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock; save and stop if asked to."""
        self._timer.end()
        if self._should_stop():
            control.should_save = control.should_training_stop = True

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, float] | None = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Report the step; where it is a collapse, restore the best weights first.

        Raises:
            TrainingError: the loss is no longer a number, or the run has collapsed too often.
        """
        if not logs or "loss" not in logs:
            return
        measured = {ours: logs[theirs] for theirs, ours in _TRL_NAMES.items() if logs.get(theirs) is not None}
        metrics = {**self._bridge.metrics, **measured, "time/step_s": time.perf_counter() - self._started}
        broken = not math.isfinite(logs["loss"]) or not math.isfinite(logs.get("grad_norm", 0.0))
        report, best = make_report(state.global_step, metrics), self.best_weights
        if best is None and broken:
            what = f"loss {logs['loss']}, gradient norm {logs.get('grad_norm')}"
            raise TrainingError(f"{what} at step {state.global_step}: lower train.learning_rate")
        if best is not None and (suspicion := self._find_collapse(best, report, broken, args.save_steps)):
            report = make_report(report.step, report.metrics, self._restore(best, suspicion, optimizer, lr_scheduler))
        if report.collapse is not None:
            logger.warning("step %d: %s", report.step, report.collapse.describe())
        if state.is_world_process_zero:
            self._on_step(report)
        if best is not None and report.collapse is not None and best.state.collapses >= self._config.monitor.max_collapses:
            raise TrainingError(
                f"collapsed {best.state.collapses} times (last: {report.collapse.rule} at step {report.step}); "
                f"the best weights are those of step {report.collapse.returned_to}: lower train.learning_rate"
            )

    def _find_collapse(self, best: BestWeights, report: StepReport, broken: bool, save_steps: int) -> Suspicion | None:
        """Ask the monitor and, where a checkpoint is due or a fall of the reward is suspected, the held-out questions.

        The main process suspects for all, so that all score or none does; what they then see is the same.
        """
        box = [(self._monitor.look(report.metrics), broken)]
        broadcast_object_list(box, from_process=0)
        suspicion, broken = box[0]
        if broken:
            return Suspicion(NOT_A_NUMBER, 0.0, 0.0)
        if (suspicion is None and report.step % save_steps) or (suspicion is not None and not suspicion.confirm):
            return suspicion
        fall = best.consider(report.step, suspicion.confirm if suspicion else ALONE)
        if fall is not None:
            return suspicion or Suspicion("held-out reward", fall.value, fall.limit)
        if suspicion is not None:
            self._monitor.dismiss()
            logger.info("step %d: the reward fell to %.3g, held-out questions did not", report.step, suspicion.value)
        return None

    def _restore(self, best: BestWeights, suspicion: Suspicion, optimizer: Any, scheduler: Any) -> Collapse:
        """Restore the best weights and lower the learning rate."""
        factor = self._config.monitor.lr_factor
        self._monitor.restart()
        best.restore()
        best.state.collapses += 1
        for group in optimizer.param_groups:
            group["lr"] *= factor
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
        optimizer.state.clear()  # moments of gradients that led astray
        rate = optimizer.param_groups[0]["lr"]
        return Collapse(suspicion.rule, suspicion.value, suspicion.limit, best.state.best_step, rate)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Complete and seal the checkpoint just written, and delete the oldest; its weights were scored for the report."""
        if torch.distributed.is_initialized():  # the other processes write their random state
            torch.distributed.barrier()
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if self.best_weights is not None:
                self.best_weights.save(checkpoint)
            seal_checkpoint(checkpoint, state.global_step)
            prune_checkpoints(Path(args.output_dir))
