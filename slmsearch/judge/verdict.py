"""Verdicts, the interface of a judge, and the judge that needs no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.judge.exact import exact_match


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says about one answer."""

    correct: bool | None
    """None exactly when the judge gave no verdict and `failure` says why; that is never a wrong answer."""
    by: Literal["exact", "judge"] = "exact"
    """`exact`: decided by rule; `judge`: a language model was asked."""
    failure: str = ""
    """`judge: cause`, or empty."""


class Judge(Protocol):
    """Decides whether answers are right."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """Judge answers, one verdict each, in order; an outage is a verdict without `correct`, never an exception."""
        ...


class ExactJudge:
    """Calls right what equals an alias after SQuAD's normalisation."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`."""
        return [Verdict(exact_match(answer, question.answers)) for question, answer in items]


def make_judge(config: JudgeConfig) -> Judge:
    """Make the configured judge; nothing is contacted yet."""
    if config.kind == "exact":
        return ExactJudge()
    from slmsearch.judge.llm import LlmJudge, make_asker

    return LlmJudge(make_asker(config), config.concurrency)
