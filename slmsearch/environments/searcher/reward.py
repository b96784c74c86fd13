"""The reward of a played episode: a sum of named, weighted parts.

Pure: the same episode, question, verdict, weights and draw give the same reward. Metrics that are only recorded: `evaluate/metrics.py`.

A right answer that is a passage is paid by token F1: part of it is partly right, and too much of it costs precision.

The price of tool calls and tokens is gated by correctness: it lowers the reward of a right answer and leaves wrong ones unchanged. An
added price teaches a model that is mostly wrong to answer without searching.

Two kinds of reward are controls, not goals: `format_only` pays every well-formed answer, `random` pays a random value. If a control also
improves, the gain does not come from correctness.
"""

from slmsearch.config import RewardConfig
from slmsearch.corpus.questions import Question, is_passage
from slmsearch.environments.searcher.evidence import gather_evidence
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.reward import Reward
from slmsearch.judge.exact import exact_match, f1, is_abstention, typed_match

REWARD_PARTS = ("correct", "format", "call_cost", "evidence_read", "malformed", "abstained", "random")
"""Names of the parts, as they appear in `reward/<part>`; every reward has all of them."""


def score_episode(episode: Episode, question: Question, correct: bool, config: RewardConfig, draw: float = 0.0) -> Reward:
    """Score an episode that was played to its end, by the judge's verdict on its answer.

    `draw` is uniform in [0, 1), and the whole reward if `config.kind` is `random`.

    Raises:
        ValueError: the episode failed. An outage has no reward: leave the episode out of its group.
    """
    if episode.stop_reason is StopReason.FAILED:
        raise ValueError(f"episode of question {episode.question_id!r} failed ({episode.failure}): leave it out, it has no reward")
    parts = dict.fromkeys(REWARD_PARTS, 0.0)
    well_formed = episode.stop_reason is StopReason.ANSWERED
    match config.kind:
        case "random":
            parts["random"] = draw
        case "format_only":
            parts["format"] = float(well_formed)
        case "task":
            parts |= _task_parts(episode, question, correct, config)
            parts["malformed"] = config.malformed if episode.stop_reason is StopReason.MALFORMED else 0.0
    return Reward(total=sum(parts.values()), parts=parts)


def _task_parts(episode: Episode, question: Question, correct: bool, config: RewardConfig) -> dict[str, float]:
    """Compute the parts that depend on the answer and the evidence."""
    paid = _pay(episode.answer, question, correct, config)
    # Capped, so that a right answer never earns less than a wrong one, at any number of calls and tokens.
    call_frac = min(config.call_cost * len(episode.calls), 1.0)
    evidence = gather_evidence(question, episode)
    return {
        "correct": paid,
        "call_cost": -call_frac * paid if call_frac else 0.0,
        "evidence_read": config.evidence_read * evidence.read_frac,
        "abstained": config.abstained if is_abstention(episode.answer) and not correct else 0.0,
    }


def _pay(answer: str | None, question: Question, correct: bool, config: RewardConfig) -> float:
    if is_passage(question.answer):
        return f1(answer, question.answers)
    return _overlap(answer, question.answers) if config.correctness == "f1" else float(correct)


def _overlap(answer: str | None, golds: tuple[str, ...]) -> float:
    """Return the rewarded token F1: 1.0 for a typed match, 0.0 where only marks distinguish the answer from a right one."""
    if typed_match(answer, golds):
        return 1.0
    return 0.0 if exact_match(answer, golds) else f1(answer, golds)
