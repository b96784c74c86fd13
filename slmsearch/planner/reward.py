"""The reward of a carried-out plan: a sum of named, weighted parts. Pure, like the searcher's.

    w_c correct + w_t (1 - tokens / max_tokens) + w_i independence

The last two are paid with a right answer only. A plan that a reward-hacking filter refuses is graded as a wrong one, whatever
came of it, and pays `hacked`: no hack earns more than an honest plan that fails.
"""

from dataclasses import dataclass

from slmsearch.config import PlanRewardConfig
from slmsearch.planner.hacks import Hack, find_hacks
from slmsearch.planner.plan import Fault, Plan, parse_plan
from slmsearch.searcher.episode import Episode, StopReason
from slmsearch.searcher.reward import Reward

PLAN_PARTS = ("correct", "tokens", "independence", "malformed", "hacked", "format", "random")
"""Names of the parts, as they appear in `reward/<part>`; every plan's reward has all of them."""


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """What an episode says of its plan."""

    plan: Plan | None
    faults: tuple[Fault, ...]
    hacks: tuple[Hack, ...]
    worker_tokens: int

    @property
    def decomposed(self) -> bool:
        """True where the problem was split."""
        return self.plan is not None and self.plan.should_decompose

    @property
    def subproblems(self) -> int:
        """Parts of the plan."""
        return len(self.plan.subproblems) if self.plan else 0


def inspect_episode(episode: Episode, problem: str) -> PlannedEpisode:
    """Read the plan of an episode again, its faults, what the filters refuse, and what the worker took."""
    text = episode.turns[0].text if episode.turns else ""
    parsed = parse_plan(text)
    hacks = find_hacks(problem, parsed.plan) if parsed.plan else ()
    tokens = sum(turn.result.tokens for turn in episode.turns if turn.result is not None)
    return PlannedEpisode(parsed.plan, parsed.faults, hacks, tokens)


def score_plan(
    episode: Episode,
    planned: PlannedEpisode,
    correct: bool,
    alone: bool,
    independence: float,
    config: PlanRewardConfig,
    draw: float = 0.0,
) -> Reward:
    """Score an episode that was carried out to its end.

    Args:
        episode: any episode that did not fail.
        planned: what `inspect_episode` says of it.
        correct: whether the final answer is right.
        alone: whether the worker alone answers right.
        independence: mean dissimilarity of the subproblems, 0 to 1.
        config: the weights.
        draw: uniform in [0, 1), the whole reward where `config.kind` is `random`.

    Raises:
        ValueError: the episode failed. An outage has no reward: leave the episode out of its group.
    """
    if episode.stop_reason is StopReason.FAILED:
        raise ValueError(f"episode of problem {episode.question_id!r} failed ({episode.failure}): leave it out, it has no reward")
    parts = dict.fromkeys(PLAN_PARTS, 0.0)
    well_formed = episode.stop_reason is StopReason.ANSWERED
    if config.kind == "random":
        parts["random"] = draw
    elif config.kind == "format_only":
        parts["format"] = float(well_formed)
    else:
        parts["malformed"] = config.malformed if episode.stop_reason is StopReason.MALFORMED else 0.0
        parts["hacked"] = config.hacked if planned.hacks else 0.0
        if correct and not planned.hacks:
            spent = episode.sampled_tokens + planned.worker_tokens
            parts["correct"] = 1.0
            parts["tokens"] = config.tokens * max(0.0, 1.0 - spent / config.max_tokens)
            parts["independence"] = 0.0 if alone else config.independence * independence
    return Reward(total=sum(parts.values()), parts=parts)
