"""Callbacks around every step: the report, the collapse monitor with the best weights, the checkpoint, the stop request."""

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils import get_total_norm
from transformers import TrainerCallback

from slmsearch.artifacts.files import replace_json
from slmsearch.config import TrainConfig
from slmsearch.errors import CheckpointError, TrainingError
from slmsearch.training.files import prune_checkpoints, seal_checkpoint
from slmsearch.training.monitor import ALONE, SCORINGS, CollapseMonitor, Scores, Suspicion, find_fall, mean_score
from slmsearch.training.phase_timer import UPDATE, PhaseTimer
from slmsearch.training.reports import HELD_OUT, NOT_A_NUMBER, Collapse, StepReport, make_report
from slmsearch.training.rollout_bridge import MAX_FAILED_FRAC, RolloutBridge
from slmsearch.training.samples import choose_samples, is_sampled

logger = logging.getLogger(__name__)

_TRL_NAMES = {
    "loss": "loss",
    "grad_norm": "optim/grad_norm",
    "learning_rate": "optim/learning_rate",
    "kl": "policy/kl_reference",
    "policy/kl_sampler": "policy/kl_sampler",
}
"""TRL's names of its metrics -> the project's; TRL's other metrics repeat, less precisely, metrics of the episodes."""


STATE = "best.json"
"""File in every checkpoint with the state of this class."""
WEIGHTS = "best.safetensors"
"""File in every checkpoint with the best weights so far."""
_REMEDY = "delete the directory of that run and train anew"


@dataclass(slots=True)
class BestWeightsState:
    """State of `BestWeights` that must survive a kill."""

    best_step: int = 0
    best_score: float = float("-inf")
    best_scores: Scores = field(default_factory=list)
    """Held-out rewards of the best weights, by question."""
    collapses: int = 0
    """Collapses so far."""
    scorings: list[Scores] = field(default_factory=list)
    """Last scorings without a collapse."""


class BestWeights:
    """The best weights of a run by held-out reward: scores weights at intervals, remembers the best, and restores them.

    Every training process keeps its own copy. All processes have the same scores (`RolloutBridge.score` gathers them) and decide alike.
    """

    def __init__(self, model: Any, score: Callable[[], Scores]) -> None:
        """Remember a model's current trainable weights; `score` plays the held-out questions with the weights in the model."""
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._score = score
        self._best = self._copy()
        self._considered = -1
        self.state = BestWeightsState()
        self.score_of = dict[int, float]()
        """Mean held-out reward by the step at which the weights were scored in this process."""

    def consider(self, step: int, sure: float = ALONE) -> Suspicion | None:
        """Score the current weights, unless this step has a score, and remember them if they are better than the best.

        Weights are compared by the questions that both scorings know.

        Returns:
            The fall, if the score lies `sure` standard errors below the earlier ones; later scorings are not compared with it.

        Raises:
            TrainingError: more than `MAX_FAILED_FRAC` of the questions could not be scored.
        """
        if step == self._considered:  # the last checkpoint and the end of training
            return None
        self._considered = step
        scores = self._score()
        if (failed := scores.count(None)) > MAX_FAILED_FRAC * len(scores):
            raise TrainingError(
                f"{failed} of {len(scores)} held-out questions could not be scored; fix the service that failed, and run it again"
            )
        fall = find_fall(self.state.scorings, scores, sure)
        if fall is None:
            self.state.scorings = [*self.state.scorings, scores][-SCORINGS:]
        score = self.score_of[step] = mean_score(scores)
        pairs = zip(scores, self.state.best_scores, strict=False)
        shared = [(now, best) for now, best in pairs if now is not None and best is not None]
        if sum(now - best for now, best in shared) > 0 or not shared:
            self._best = self._copy()
            self.state.best_step, self.state.best_score, self.state.best_scores = step, score, scores
        return fall

    @torch.no_grad()
    def restore(self) -> None:
        """Put the best weights into the model."""
        for name, weight in self._weights.items():
            weight.copy_(self._best[name])

    def save(self, directory: Path) -> None:
        """Write the best weights and the state into a checkpoint."""
        save_file(self._best, directory / WEIGHTS)
        replace_json(directory / STATE, asdict(self.state))

    def load(self, directory: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: it is not there or does not fit the model.
        """
        try:
            self.state = BestWeightsState(**json.loads((directory / STATE).read_text(encoding="utf-8")))
            best = load_file(directory / WEIGHTS)
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"checkpoint {directory} lacks the best weights ({error}); {_REMEDY}") from error
        if best.keys() != self._best.keys():
            raise CheckpointError(f"checkpoint {directory} belongs to another model; {_REMEDY}")
        self._best = {name: best[name].to(weight.device) for name, weight in self._weights.items()}

    def _copy(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self._weights.items()}


class StepCallback(TrainerCallback):
    """A callback that reports every step, watches for collapse, seals checkpoints, and stops on request."""

    def __init__(
        self,
        bridge: RolloutBridge,
        on_step: Callable[[StepReport], None],
        should_stop: Callable[[], bool],
        config: TrainConfig,
        timer: PhaseTimer,
    ) -> None:
        """Bind the callables.

        Args:
            bridge: source of a step's episodes and their metrics.
            on_step: receives each report, on the main process only.
            should_stop: called after every step, on every process; True saves a checkpoint and ends training.
            config: settings of a step and of the reaction to a collapse.
            timer: counts the time.
        """
        self._bridge, self._on_step, self._should_stop = bridge, on_step, should_stop
        self._config, self._monitor = config, CollapseMonitor(config.questions_per_step)
        self._timer, self._started = timer, 0.0
        self.best_weights: BestWeights | None = None
        """Best weights; set once a model is loaded."""

    def watch(self, best_weights: BestWeights, past: list[StepReport], checkpoint: Path | None) -> None:
        """Begin to watch a run, or continue from a killed run's checkpoint; `past` are the reports of the steps that count."""
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

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Keep AdamW's momentum from moving the weights in a step without a gradient, where every group had zero variance.

        AdamW skips a weight without a gradient, and its moments. Gradients are summed over all processes, so that all do the same.
        """
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if not get_total_norm(gradients, math.inf):  # the largest of all gradients at once: the host waits for the card once
            model.zero_grad(set_to_none=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock; save and stop on request."""
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
        """Report the step; after a collapse, restore the best weights first.

        Raises:
            TrainingError: the loss is NaN or infinite, or the run has collapsed too often.
        """
        if not logs or "loss" not in logs:
            return
        measured = {ours: logs[theirs] for theirs, ours in _TRL_NAMES.items() if logs.get(theirs) is not None}
        card = self._timer.card.metrics() if self._timer.card is not None else {}
        metrics = {**self._bridge.metrics, **measured, **card, "time/step_s": time.perf_counter() - self._started}
        broken = not math.isfinite(logs["loss"]) or not math.isfinite(logs.get("grad_norm", 0.0))
        report, best = make_report(state.global_step, metrics), self.best_weights
        if best is None and broken:
            what = f"loss {logs['loss']}, gradient norm {logs.get('grad_norm')}"
            raise TrainingError(f"{what} at step {state.global_step}: lower train.learning_rate")
        if best is not None:
            suspicion = self._find_collapse(best, report, broken, args.save_steps)
            collapse = self._restore(best, suspicion, optimizer, lr_scheduler) if suspicion else None
            scored = {HELD_OUT: best.score_of[report.step]} if report.step in best.score_of else {}
            report = make_report(report.step, {**report.metrics, **scored}, collapse)
        if report.collapse is not None:
            logger.warning("step %d: %s", report.step, report.collapse.describe())
        if state.is_world_process_zero:
            sampled, played = is_sampled(report.step, state.max_steps), self._bridge
            chosen = choose_samples(played.rows, played.episodes, self._config.group_size) if sampled else ()
            self._on_step(replace(report, samples=chosen))
        if best is not None and report.collapse is not None and best.state.collapses >= self._config.monitor.max_collapses:
            raise TrainingError(
                f"collapsed {best.state.collapses} times (last: {report.collapse.rule} at step {report.step}); "
                f"the best weights are those of step {report.collapse.returned_to}: lower train.learning_rate"
            )

    def _find_collapse(self, best: BestWeights, report: StepReport, broken: bool, save_steps: int) -> Suspicion | None:
        """Ask the monitor and, where a checkpoint is due or the reward may have fallen, score the held-out questions.

        The main process decides for all, so that either all score or none does; the scores are the same everywhere.
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
            return suspicion or fall
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
        optimizer.state.clear()  # they hold gradients of the collapse
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
