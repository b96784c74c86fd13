"""Keeps the best weights of a run by held-out reward, and restores them.

Every training process keeps its own copy. Scores are the same in all of them (`RolloutBridge.score` gathers them), so all decide alike.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from slmsearch.artifacts.files import replace_json
from slmsearch.errors import CheckpointError
from slmsearch.learn.monitor import ALONE, SCORINGS, Fall, Scores, find_fall, mean_score

STATE = "best.json"
"""In every checkpoint: what this class knew when it was written."""
WEIGHTS = "best.safetensors"
"""In every checkpoint: the best weights so far."""
_REMEDY = "delete the directory of that run and train anew"


@dataclass(slots=True)
class BestWeightsState:
    """What must survive a kill."""

    best_step: int = 0
    best_score: float = float("-inf")
    collapses: int = 0
    """Collapses so far."""
    scorings: list[Scores] = field(default_factory=list)
    """The last ones that were no collapse."""


class BestWeights:
    """Scores the weights now and then, and remembers the best."""

    def __init__(self, model: Any, score: Callable[[], Scores]) -> None:
        """Remember a model's trainable weights as they are; `score` plays the held-out questions with those in place."""
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._score = score
        self._best = self._copy()
        self._considered = -1
        self.state = BestWeightsState()

    def consider(self, step: int, sure: float = ALONE) -> Fall | None:
        """Score the weights in place, unless that was done at this step, and remember them if they are better than the best.

        Returns:
            The fall, if the score lies `sure` standard errors below the earlier ones; such a scoring is not compared with later.
        """
        if step == self._considered:  # the last checkpoint and the end of training
            return None
        self._considered = step
        scores = self._score()
        fall = find_fall(self.state.scorings, scores, sure)
        if fall is None:
            self.state.scorings = [*self.state.scorings, scores][-SCORINGS:]
        score = mean_score(scores)
        if score > self.state.best_score:
            self._best = self._copy()
            self.state.best_step, self.state.best_score = step, score
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
