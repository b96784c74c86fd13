"""How many steps fit into a time, decided by what an update takes on this machine.

Supervised training gets what evaluations, GRPO and the control beside it leave. Two looks at the clock: before the start is trained, by
the time of some of its updates, and before GRPO, by the time of the start's evaluation.
"""

from dataclasses import dataclass

from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError

FIXED_S = 90.0
"""Beside all that is counted: processes start, models are loaded and merged, a report is made."""
REWARDED_FRAC = 0.08
"""Share of the time that the start leaves for GRPO; the control beside it takes as much again."""
EVALUATED_FRAC = 0.4
"""Share for evaluations at most, as long as `MIN_EVALUATED` questions are played."""
MIN_EVALUATED = 100
PLAYED = 4.0
"""Evaluations in units of one of the start: before and after GRPO 2.1, the reader 0.35, two fifths of the questions untrained 1.3, from
memory 0.1 (an untrained model writes to the end of every episode)."""
PLAYED_AFTER = 3.0
"""Those that come after GRPO."""
PLAYED_MORE = 150
"""Questions played at the end beside them: some and their twins."""
PLAYED_PER_EXAMPLE = 0.7
"""Times that learning from a demonstration takes to play a question greedily: 0.66 on Python's documentation, 0.55 on leads (SmolLM2 in
bfloat16 on two cores); not measured in float32."""
SAMPLED_PER_PLAYED = 1.7
"""Times that playing a question greedily takes to sample an episode in training and to learn from it."""
MAX_EPOCHS = 4.0
"""Passes over the demonstrations at most; more were not tried."""
SCORINGS = 3
"""Of GRPO's weights on held-out questions: at the start, in the middle, at the end."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What an update of the supervised start takes here."""

    update_s: float
    examples: int
    """Demonstrations that there are."""


def plan_start(left_s: float, speed: Speed, questions: int, config: RunConfig) -> dict[str, int]:
    """Decide how many updates the start gets and how many questions are evaluated.

    Args:
        left_s: seconds left of the budget.
        speed: measured.
        questions: in the evaluated split.
        config: run.

    Returns:
        Settings.

    Raises:
        ConfigError: nothing is left for training.
    """
    batch = max(1, config.sft.batch_size)
    played_s = PLAYED_PER_EXAMPLE * speed.update_s / batch
    own = config.sft.own_questions * config.sft.own_tries if config.sft.start == "own" else 0
    fixed_s = FIXED_S + (PLAYED_MORE + own) * played_s
    usable = left_s - fixed_s
    limit = min(questions, max(MIN_EVALUATED, int(EVALUATED_FRAC * usable / (PLAYED * played_s))))
    steps = int(((1 - 2 * REWARDED_FRAC) * usable - PLAYED * limit * played_s) / speed.update_s)
    if steps < 1:
        needed = fixed_s + (PLAYED * min(questions, MIN_EVALUATED) * played_s + 10 * speed.update_s) / (1 - 2 * REWARDED_FRAC)
        raise ConfigError(f"{left_s:.0f} s are left of the budget and at least {needed:.0f} s are needed; give more time with --budget")
    enough = max(1, round(MAX_EPOCHS * speed.examples / batch))
    return {"sft.steps": min(steps, enough), "evaluate.limit": limit}


def plan_training(left_s: float, played_s: float, config: RunConfig) -> dict[str, int]:
    """Decide how many steps GRPO gets, so that the control beside it can take as long.

    Args:
        left_s: seconds left of the budget.
        played_s: seconds that a question took in the start's evaluation.
        config: run, with the number of evaluated questions.

    Returns:
        Settings; two steps at least.
    """
    train = config.train
    usable = (left_s - FIXED_S / 2 - (PLAYED_AFTER * config.evaluate.limit + PLAYED_MORE) * played_s) / 2
    step_s = SAMPLED_PER_PLAYED * played_s * train.questions_per_step * train.group_size
    steps = max(2, int((usable - SCORINGS * train.monitor.held_out * played_s) / step_s))
    return {"train.steps": steps, "train.checkpoint_steps": -(-steps // 2)}
