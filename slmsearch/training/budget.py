"""Number of steps that fit into a time budget, from the time of an update on this machine.

Supervised training gets the time that evaluations, GRPO and the control leave. The plan is made twice: before the start is trained, from
the time of some of its updates, and before GRPO, from the time of the start's evaluation.
"""

import math
from dataclasses import dataclass

from slmsearch.config import SftConfig, TrainConfig
from slmsearch.errors import ConfigError

FIXED_S = 90.0
"""Time for everything not counted elsewhere, in seconds: starting processes, loading and merging models, writing a report."""
REWARDED_FRAC = 0.08
"""Share of the time after the start that GRPO gets; the control beside it takes as much again."""
EVALUATED_FRAC = 0.4
"""Largest share for evaluations, as long as `MIN_EVALUATED` questions are played."""
MIN_EVALUATED = 100
PLAYED = 5.3
"""Evaluations in units of one of the start: before and after GRPO 2.1, the reader 0.35, two fifths of the questions untrained 1.3, from
memory 0.1 (an untrained model writes to the end of every episode). With worked examples as much again as untrained; not measured."""
PLAYED_AFTER = 4.3
"""Evaluations after GRPO, in the same units."""
PLAYED_MORE = 150
"""Further questions played at the end: some questions and their twins."""
PLAYED_PER_EXAMPLE = 0.7
"""Time of learning from a demonstration, in units of playing a question greedily: 0.66 on Python's documentation, 0.55 on leads (SmolLM2 in
bfloat16 on two cores); not measured in float32."""
SAMPLED_PER_PLAYED = 1.7
"""Time of sampling an episode in training and learning from it, in units of playing a question greedily."""
MAX_EPOCHS = 4.0
"""Largest number of passes over the demonstrations; more were not tried."""
SCORINGS = 3
"""Scorings of GRPO's weights on held-out questions: at the start, in the middle, at the end."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Times of the supervised start's updates on this machine."""

    update_s: float
    examples: int
    """Number of demonstrations."""


def plan_start(left_s: float, speed: Speed, questions: int, sft: SftConfig) -> dict[str, int]:
    """Decide how many updates the start gets and how many questions are evaluated.

    Args:
        left_s: seconds left of the budget.
        speed: measured.
        questions: in the evaluated split.
        sft: settings of the start.

    Returns:
        Settings.

    Raises:
        ConfigError: no time is left for training.
    """
    batch = max(1, sft.batch_size)
    played_s = PLAYED_PER_EXAMPLE * speed.update_s / batch
    own = sft.own_questions * sft.own_tries if sft.start == "own" else 0
    fixed_s = FIXED_S + (PLAYED_MORE + own) * played_s
    usable = left_s - fixed_s
    limit = min(questions, max(MIN_EVALUATED, int(EVALUATED_FRAC * usable / (PLAYED * played_s))))
    steps = int(((1 - 2 * REWARDED_FRAC) * usable - PLAYED * limit * played_s) / speed.update_s)
    if steps < 1:
        needed = fixed_s + (PLAYED * min(questions, MIN_EVALUATED) * played_s + 10 * speed.update_s) / (1 - 2 * REWARDED_FRAC)
        told = f"{max(0.0, left_s):.0f} s are left of the budget and at least {needed:.0f} s are needed; give more time with --budget"
        raise ConfigError(f"{told}, {math.ceil((needed - left_s) / 60)} minutes more at least")
    enough = max(1, round(MAX_EPOCHS * speed.examples / batch))
    return {"sft.steps": min(steps, enough), "evaluate.limit": limit}


def plan_training(left_s: float, played_s: float, evaluated: int, train: TrainConfig) -> dict[str, int]:
    """Decide how many steps GRPO gets, so that the control beside it can take as long.

    Args:
        left_s: seconds left of the budget.
        played_s: seconds that a question took in the start's evaluation.
        evaluated: number of questions of each evaluation.
        train: settings of GRPO.

    Returns:
        Settings; two steps at least.
    """
    usable = (left_s - FIXED_S / 2 - (PLAYED_AFTER * evaluated + PLAYED_MORE) * played_s) / 2
    step_s = SAMPLED_PER_PLAYED * played_s * train.questions_per_step * train.group_size
    steps = max(2, int((usable - SCORINGS * train.monitor.held_out * played_s) / step_s))
    return {"train.steps": steps, "train.checkpoint_steps": -(-steps // 2)}
