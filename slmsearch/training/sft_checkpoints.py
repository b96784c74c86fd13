"""Checkpoints of a supervised training: saved at time intervals, sealed, and found again after a kill.

A checkpoint counts if it is sealed (`files.py`) and belongs to the training that the key names. Its time changes no result: `Trainer`
restores weights, optimiser, schedule and random state, and skips the seeded stream up to the same update.
"""

import logging
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.training.files import (
    MANIFEST,
    checkpoint_step,
    discard_after,
    find_damage,
    list_checkpoints,
    prune_checkpoints,
    seal_checkpoint,
)

SAVE_S = 120.0
"""Seconds of training between two checkpoints; a shorter training saves none."""
SAVES_APART = 20
"""Interval between checkpoints of a large model, in units of the time of saving one, so that saving costs 5 % of the time at most."""
WEIGHT_BYTES = 12
"""Bytes of a checkpoint for each trained weight: the weight and Adam's two moments."""
PROGRESS = "progress.json"
"""File in every checkpoint: key of the training, seconds trained, and whether updates go over trees."""

logger = logging.getLogger(__name__)


class SftCheckpoints(TrainerCallback):
    """A callback that saves a trainer's checkpoints in its output directory, and finds the one to resume from."""

    def __init__(self, trainer: Any, key: str) -> None:
        """Find the newest intact checkpoint of the training with this key, and delete those after it.

        Args:
            trainer: a `DemonstrationTrainer`, about to train; a checkpoint records whether it still uses trees, which the first update
                decides.
            key: hash of what the training is made from.
        """
        self._trainer, self._key = trainer, key
        self._directory = Path(trainer.args.output_dir)
        self._started = self._saved = time.perf_counter()
        self._pause_s = SAVE_S
        self.found = self._find()
        """Checkpoint to resume from; None: start at the beginning."""
        self.step = checkpoint_step(self.found) if self.found else 0
        """Number of updates in it."""
        self.earlier_s = 0.0
        """Seconds that these updates took in killed processes."""
        discard_after(self._directory, self.step)
        if self.found:
            told = read_json(self.found / PROGRESS)
            self.earlier_s, trainer.tokens_per_tree = float(told["seconds"]), int(told["tokens_per_tree"])
            logger.warning("supervised training goes on from update %d of %d", self.step, trainer.args.max_steps)
        trainer.add_callback(self)

    def _find(self) -> Path | None:
        for checkpoint in list_checkpoints(self._directory):
            if not (checkpoint / MANIFEST).is_file():  # killed while it was written
                continue
            if (damage := find_damage(checkpoint)) is not None:
                logger.warning("%s is damaged (%s) and is not gone on from", checkpoint, damage)
            elif read_json(checkpoint / PROGRESS).get("key") == self._key:
                return checkpoint
        return None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save a checkpoint when one is due; the last update needs none."""
        now = time.perf_counter()
        if now - self._saved >= self._pause_s and state.global_step < state.max_steps:
            self._saved = now
            control.should_save = self._has_space()

    def _has_space(self) -> bool:
        needed: int = WEIGHT_BYTES * sum(weight.numel() for weight in self._trainer.model.parameters() if weight.requires_grad)
        free = shutil.disk_usage(self._directory).free
        if free < 2 * needed:  # the published model needs space, too
            logger.warning("no checkpoint is saved: it takes %.1f GB of %.1f free in %s", needed / 1e9, free / 1e9, self._directory)
        return free >= 2 * needed

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Complete and seal the checkpoint just written, and delete the oldest."""
        checkpoint = self._directory / f"checkpoint-{state.global_step}"
        seconds = self.earlier_s + time.perf_counter() - self._started
        replace_json(checkpoint / PROGRESS, {"key": self._key, "seconds": seconds, "tokens_per_tree": self._trainer.tokens_per_tree})
        seal_checkpoint(checkpoint, state.global_step)
        prune_checkpoints(self._directory)
        before, self._saved = self._saved, time.perf_counter()
        self._pause_s = max(SAVE_S, SAVES_APART * (self._saved - before))
