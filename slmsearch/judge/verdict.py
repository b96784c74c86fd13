"""Verdicts, the interfaces of judges, and the judge that needs no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from slmsearch.corpus.questions import Question
from slmsearch.judge.exact import exact_match


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says about one answer."""

    correct: bool | None
    """None exactly when the judge gave no verdict and `failure` says why; that is never a wrong answer."""
    by: Literal["exact", "judge"] = "exact"
    """`exact`: decided by rule; `judge`: a language model was asked, now or before."""
    failure: str = ""
    """`judge: cause`, or empty."""


class Judge(Protocol):
    """Decides whether answers are right."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """Judge answers, one verdict each, in order; an outage is a verdict without `correct`, never an exception."""


@runtime_checkable
class EagerJudge(Judge, Protocol):
    """A judge that takes its time, and can use the time before it is asked."""

    def begin(self, question: Question, answer: str | None) -> None:
        """Begin to judge an answer in the background; the next `judge` waits only for what is missing. Returns at once."""

    def forget(self) -> None:
        """Drop what was begun: nobody will ask."""

    def release(self) -> None:
        """Free the device that the judge shares with the policy, until it is needed again."""


class ExactJudge:
    """Calls right what equals an alias after SQuAD's normalisation."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`."""
        return [Verdict(exact_match(answer, question.answers)) for question, answer in items]
