"""The reward table: what each kind of ending is worth."""

from dataclasses import replace

import pytest

from slmsearch.config import RewardConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.reward import REWARD_PARTS, score_episode
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn

QUESTION = Question("q", "Who?", "Ada")
CONFIG = RewardConfig(call_cost=0.02, malformed=-0.1, abstained=0.05)


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
    paid = {part: value for part, value in parts.items() if value}
    assert paid == {"correct": 1.0, "call_cost": pytest.approx(-0.04)}


def test_a_failed_episode_has_no_reward() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        score_episode(Episode("q", (), StopReason.FAILED, failure="index: gone"), QUESTION, False, CONFIG)


def test_defaults_stay_within_one() -> None:
    for correct in (True, False):
        for played in (episode(9, "Ada"), episode(0, None, StopReason.MALFORMED)):
            assert -1.0 <= score_episode(played, QUESTION, correct, RewardConfig()).total <= 1.0


GOLD = Question("q", "Who?", "Ada Lovelace", page_ids=("7", "8"), section_ids=("7:life", "8:work"))


def searched(answer: str) -> Episode:
    """Shows both gold pages, reads one of two gold sections, writes 250 tokens."""
    shown = Turn("s", ToolCall("search_pages", "Ada"), result=ToolResult("", True, ("7", "8")))
    read = Turn("r", ToolCall("read_section", "7:life"), result=ToolResult("", True, ("7",), ("7:life",)))
    return Episode("q", (shown, read, Turn("a", answer=answer)), StopReason.ANSWERED, sampled_tokens=250)


@pytest.mark.parametrize(
    ("weights", "correct", "expected"),
    [
        ({"evidence_read": 0.1}, False, {"evidence_read": 0.05}),
        ({"call_cost": 0.7}, True, {"correct": 1.0, "call_cost": -1.0}),
        ({"correctness": "f1", "call_cost": 0.1}, False, {"correct": 2 / 3, "call_cost": -0.2 * 2 / 3}),
        ({"kind": "format_only"}, True, {"format": 1.0}),
        ({"kind": "random"}, True, {"random": 0.625}),
    ],
)
def test_parts_beyond_the_defaults(weights: dict[str, float], correct: bool, expected: dict[str, float]) -> None:
    reward = score_episode(searched("Ada"), GOLD, correct, RewardConfig(**weights), draw=0.625)
    paid = {part: value for part, value in reward.parts.items() if value}
    expected = {"call_cost": -0.04, **expected} if correct and "kind" not in weights and "call_cost" not in weights else expected
    assert paid == pytest.approx(expected)
    assert reward.total == pytest.approx(sum(expected.values()))


def test_token_f1_pays_a_typed_match_in_full_and_nothing_where_only_marks_differ() -> None:
    config = RewardConfig(correctness="f1", call_cost=0.0)
    paid = {}
    for gold, answer in (("3.5", "35"), ("C++", "C#"), ("Vitamin A", "Vitamin"), ("5 %", "5 percent"), ("Ada King", "Ada")):
        paid[answer] = score_episode(searched(answer), replace(GOLD, answer=gold), False, config).total
    assert paid == {"35": 0.0, "C#": 0.0, "Vitamin": 0.0, "5 percent": 1.0, "Ada": pytest.approx(2 / 3)}


def test_controls_do_not_look_at_the_answer() -> None:
    for kind in ("format_only", "random"):
        config = RewardConfig(kind=kind)
        assert score_episode(searched("Ada"), GOLD, True, config, 0.5) == score_episode(searched("Bob"), GOLD, False, config, 0.5)
