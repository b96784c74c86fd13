"""Advantages of the policy-gradient algorithms that `train.algorithm` names.

    grpo        r - mean of the group                   what TRL computes
    rloo        r - mean of the group's other episodes  = grpo x n / (n - 1), n episodes of the group having a reward
    reinforce   r - a constant                          needs no group

All three share TRL's loss: with one update per batch the ratio is 1 and its gradient is the policy gradient's. TRL has a trainer of
its own for RLOO, but that one takes no rollouts from outside; replacing the advantages is the whole difference.

Sources: GRPO: Shao et al. 2024 (DeepSeekMath), without the division by the standard deviation (Liu et al. 2025, Dr. GRPO).
RLOO: Kool et al. 2019, Ahmadian et al. 2024. REINFORCE: Williams 1992.
"""

from collections.abc import Sequence
from math import fsum
from typing import Literal


def compute_advantages(
    rewards: Sequence[float | None], group_size: int, algorithm: Literal["rloo", "reinforce"], baseline: float
) -> list[float]:
    """Compute one advantage per episode; 0.0 where there is no reward or nothing to compare it with.

    Args:
        rewards: of all groups, group after group; None for an episode that has none and must teach nothing.
        group_size: episodes per group.
        algorithm: how.
        baseline: the constant that `reinforce` subtracts.
    """
    if algorithm == "reinforce":
        return [0.0 if reward is None else reward - baseline for reward in rewards]
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [reward for reward in group if reward is not None]
        total = fsum(known)
        for reward in group:
            others = len(known) - 1
            advantages.append(0.0 if reward is None or others < 1 else reward - (total - reward) / others)
    return advantages
