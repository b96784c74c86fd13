"""The few episodes of a training that a person reads: the best and the worst of a group, and one of a zero-variance group.

The reports of some steps hold them, spread over the run, so that even a long training keeps at most `SAMPLED_STEPS` times three.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from slmsearch.episodes.episode import Episode
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.evaluate.store import episode_to_dict

SAMPLED_STEPS = 20
"""Largest number of steps of a training whose reports hold episodes."""


class SampleKind(StrEnum):
    """Reason why an episode was chosen."""

    BEST = "best"
    """Highest reward of the group whose rewards differ most."""
    WORST = "worst"
    """Lowest reward of that group."""
    ZERO_VARIANCE = "zero_variance"
    """An episode of a group whose rewards are all equal."""


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """One episode of a step, graded."""

    kind: SampleKind
    row: EpisodeRow
    episode: Episode

    def to_dict(self) -> dict[str, object]:
        """Convert it to JSON-serialisable values, without log-probabilities."""
        return {"kind": self.kind.value, "row": asdict(self.row), "episode": episode_to_dict(self.episode)}


def is_sampled(step: int, steps: int) -> bool:
    """Return whether the report of a step (counted from 1) out of `steps` holds episodes: the first, the last and some evenly between."""
    every = max(1, math.ceil((steps - 1) / (SAMPLED_STEPS - 1)))
    return (step - 1) % every == 0 or step == steps


def choose_samples(rows: Sequence[EpisodeRow], episodes: Sequence[Episode], group_size: int) -> tuple[SampledEpisode, ...]:
    """Choose at most one episode of each kind from a step.

    Args:
        rows: graded, group after group; failed ones do not count, nor does an incomplete group at the end.
        episodes: one per row.
        group_size: episodes per group.
    """
    whole = [range(start, start + group_size) for start in range(0, len(rows) - group_size + 1, group_size)]
    groups = [graded for group in whole if len(graded := [i for i in group if not rows[i].failed]) > 1]
    rewards = [[rows[i].reward for i in group] for group in groups]
    spreads = [max(values) - min(values) for values in rewards]
    chosen: dict[SampleKind, int] = {}
    if any(spreads):
        widest = groups[spreads.index(max(spreads))]
        chosen[SampleKind.BEST] = max(widest, key=lambda i: rows[i].reward)
        chosen[SampleKind.WORST] = min(widest, key=lambda i: rows[i].reward)
    if 0.0 in spreads:
        chosen[SampleKind.ZERO_VARIANCE] = groups[spreads.index(0.0)][0]
    return tuple(SampledEpisode(kind, rows[i], episodes[i]) for kind, i in chosen.items())
