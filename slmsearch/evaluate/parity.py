"""Parity: whether a model plays in another engine as it does in torch, question by question."""

from collections.abc import Sequence
from dataclasses import dataclass

from slmsearch.config import DecisionConfig
from slmsearch.episodes.episode import Episode
from slmsearch.evaluate.compare import compare
from slmsearch.evaluate.run import Evaluation


@dataclass(frozen=True, slots=True)
class Parity:
    """Two evaluations of the same weights."""

    n: int
    episodes_identical_frac: float
    """Share of questions whose turns are the same, word for word."""
    exact_match_torch: float
    exact_match_gguf: float
    difference: float
    """Exact match in the other engine minus that in torch, 0 to 1."""
    low: float
    high: float
    """Bounds of its paired interval."""

    @property
    def is_worse(self) -> bool:
        """Return whether the other engine is worse, and not by chance."""
        return self.high < 0


def measure_parity(torch: Evaluation, gguf: Evaluation, config: DecisionConfig) -> Parity:
    """Compare two evaluations of the same questions.

    Raises:
        EvaluationError: the questions differ, or none was graded on both sides.
    """
    exact = config.model_copy(update={"metric": "answer/exact_match"})
    found = compare(torch.rows, gguf.rows, exact)
    same = sum(_said(a) == _said(b) for a, b in zip(torch.episodes, gguf.episodes, strict=True))
    bounds = found.difference
    return Parity(found.n, same / len(torch.episodes), found.exact_before, found.exact_after, bounds.mean, bounds.low, bounds.high)


def _said(episode: Episode) -> Sequence[str]:
    return [turn.text for turn in episode.turns]
