"""The reward table: what each kind of ending is worth."""

import pytest

from slmsearch.config import RewardConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.searcher.episode import Episode, StopReason, ToolCall, Turn
from slmsearch.searcher.reward import REWARD_PARTS, score_episode

QUESTION = Question("q", "Who?", "Ada")
CONFIG = RewardConfig(correct=1.0, call_cost=0.02, malformed=-0.1, abstained=0.05)


def episode(num_calls: int, answer: str | None, stop_reason: StopReason = StopReason.ANSWERED) -> Episode:
    turns = tuple(Turn("call", call=ToolCall("search_pages", "x")) for _ in range(num_calls))
    if answer is not None:
        turns += (Turn("answer", answer=answer),)
    return Episode("q", turns, stop_reason)


@pytest.mark.parametrize(
    ("played", "correct", "total"),
    [
        (episode(0, "Ada"), True, 1.0),
        (episode(3, "Ada"), True, 0.94),  # 1 - 3 * 0.02
        (episode(3, "Bob"), False, 0.0),  # a wrong answer is not charged for its calls
        (episode(60, "Ada"), True, 0.0),  # the price is capped at what a right answer pays
        (episode(2, None, StopReason.MALFORMED), False, -0.1),
        (episode(8, None, StopReason.MAX_TURNS), False, 0.0),
        (episode(1, None, StopReason.MAX_TOKENS), False, 0.0),
        (episode(1, UNKNOWN_ANSWER), False, 0.05),
        (episode(1, UNKNOWN_ANSWER), True, 0.98),  # right to abstain: paid as correct, not as abstained
        (episode(0, ""), False, 0.0),
        (episode(0, "Äda 東京"), False, 0.0),
    ],
)
def test_total(played: Episode, correct: bool, total: float) -> None:
    reward = score_episode(played, QUESTION, correct, CONFIG)
    assert reward.total == pytest.approx(total)
    assert tuple(reward.parts) == REWARD_PARTS
    assert sum(reward.parts.values()) == pytest.approx(reward.total)


def test_parts_say_why() -> None:
    parts = score_episode(episode(2, "Ada"), QUESTION, True, CONFIG).parts
    assert parts == {"correct": 1.0, "call_cost": pytest.approx(-0.04), "malformed": 0.0, "abstained": 0.0}


def test_the_price_scales_with_the_weight_of_a_right_answer() -> None:
    config = RewardConfig(correct=2.0, call_cost=0.1)
    assert score_episode(episode(3, "Ada"), QUESTION, True, config).total == pytest.approx(1.4)


def test_a_failed_episode_has_no_reward() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        score_episode(Episode("q", (), StopReason.FAILED, failure="index: gone"), QUESTION, False, CONFIG)


def test_defaults_stay_within_one() -> None:
    for correct in (True, False):
        for played in (episode(9, "Ada"), episode(0, None, StopReason.MALFORMED)):
            assert -1.0 <= score_episode(played, QUESTION, correct, RewardConfig()).total <= 1.0
