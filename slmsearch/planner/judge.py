"""Who decides whether a number is right: equality of exact values; a language model only where an answer is no number."""

from collections.abc import Sequence

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge import Judge, Verdict, make_judge
from slmsearch.planner.numbers import parse_number


class NumberJudge:
    """Compares numbers: `3.50`, `3.5` and `7/2` are one, `35` is another."""

    def __init__(self, fallback: Judge | None = None) -> None:
        """Set who is asked where gold or answer is no number; nobody: such an answer is wrong."""
        self._fallback = fallback

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`."""
        verdicts = [self._decide(question, answer) for question, answer in items]
        open_ = [i for i, verdict in enumerate(verdicts) if verdict is None]
        if self._fallback is not None and open_:
            for i, verdict in zip(open_, self._fallback.judge([items[i] for i in open_]), strict=True):
                verdicts[i] = verdict
        return [verdict or Verdict(False) for verdict in verdicts]

    def _decide(self, question: Question, answer: str | None) -> Verdict | None:
        """Decide by rule; None where gold or answer is no number."""
        if not answer:
            return Verdict(False)
        given, gold = parse_number(answer), [parse_number(text) for text in question.answers]
        if given is None or any(value is None for value in gold):
            return None
        return Verdict(given in gold)


def make_number_judge(config: JudgeConfig, data_dir: str | None = None) -> NumberJudge:
    """Make the planner's judge, which keeps a model's verdicts under `data_dir`; nothing is contacted yet."""
    return NumberJudge(None if config.kind == "exact" else make_judge(config, data_dir))
