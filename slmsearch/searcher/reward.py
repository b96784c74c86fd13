"""The reward of a played episode: a sum of named parts.

Pure: the same episode, question, verdict and weights give the same reward. What is only recorded and never trained on lies in
`evaluate/metrics.py`.

The price of a tool call is gated by correctness: it shrinks the reward of a right answer and leaves wrong ones alone. An added
price teaches a model that is mostly wrong to answer without searching.
"""

from dataclasses import dataclass

from slmsearch.config import RewardConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge.exact import is_abstention
from slmsearch.searcher.episode import Episode, StopReason

REWARD_PARTS = ("correct", "call_cost", "malformed", "abstained")
"""Names of the parts, as they appear in `reward/<part>`; every reward has all of them."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What an episode is worth."""

    total: float
    """The sum of the parts."""
    parts: dict[str, float]
    """One value for each of `REWARD_PARTS`; 0.0 where a part does not apply."""


def score_episode(episode: Episode, question: Question, correct: bool, config: RewardConfig) -> Reward:
    """Score an episode that was played to its end.

    Args:
        episode: any episode that did not fail.
        question: the question it answers.
        correct: the judge's verdict on its answer.
        config: the weights.

    Raises:
        ValueError: the episode failed. An outage has no reward: leave the episode out of its group.
    """
    if episode.stop_reason is StopReason.FAILED:
        raise ValueError(f"episode of question {episode.question_id!r} failed ({episode.failure}): leave it out, it has no reward")
    # Capped, so that a right answer is never worth less than a wrong one however many calls it took.
    cost_frac = min(config.call_cost * len(episode.calls), 1.0)
    abstained = is_abstention(episode.answer) and not correct
    parts = {
        "correct": config.correct if correct else 0.0,
        "call_cost": -cost_frac * config.correct if correct and cost_frac else 0.0,
        "malformed": config.malformed if episode.stop_reason is StopReason.MALFORMED else 0.0,
        "abstained": config.abstained if abstained else 0.0,
    }
    return Reward(total=sum(parts.values()), parts=parts)
