"""Verdicts, the interfaces of judges, and the judge that needs no model.

It goes by typed match over aliases: `judge/typed.py` says what counts as the same. SQuAD's exact match and token F1 stand beside it, for
comparison with published figures; what counts as abstaining follows from SQuAD's normalisation.

Not here: language models as judges (`judge/llm.py`) and search metrics (`evaluate/metrics.py`).

Source of exact match and F1: the SQuAD v1.1 evaluation script (Rajpurkar et al., 2016): lower case, no punctuation, no articles, single
spaces. Two additions for text that is not ASCII: Unicode is brought to NFKC, and punctuation means every Unicode punctuation mark as well
as ASCII's symbols. As in SQuAD, a decimal point goes too: to exact match `3.5` equals `35`.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.judge.typed import readings

RULES_VERSION = 1
"""Part of the keys of evaluations, trainings and qualifications; raise it when an answer may be judged otherwise by rule."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower, strip punctuation and articles, and join what is left with single spaces; may become empty."""
    lowered = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(c for c in lowered if c not in _ASCII_PUNCTUATION and unicodedata.category(c)[0] != "P")
    return " ".join(_ARTICLES.sub(" ", bare).split())


_ABSTENTIONS = frozenset(
    normalise_answer(text)
    for text in (
        UNKNOWN_ANSWER, "I do not know", "don't know", "do not know", "unknown", "not known", "it is not known", "unanswerable",
        "no answer", "cannot be answered", "can't be answered",
    )
)  # fmt: skip


def is_abstention(text: str | None) -> bool:
    """Say whether an answer admits not knowing; no answer at all (None, empty) does not."""
    return text is not None and normalise_answer(text) in _ABSTENTIONS


def is_unanswerable(answers: Iterable[str]) -> bool:
    """Say whether the gold answer is that there is none."""
    unknown = normalise_answer(UNKNOWN_ANSWER)
    return any(normalise_answer(answer) == unknown for answer in answers)


def exact_match(prediction: str | None, answers: Iterable[str]) -> bool:
    """Say whether a prediction equals one of the right answers after normalisation.

    Where the right answer is `UNKNOWN_ANSWER`, every abstention is right.
    """
    if prediction is None or not prediction.strip():
        return False
    answers = tuple(answers)
    if is_abstention(prediction) and is_unanswerable(answers):
        return True
    return _comparable(prediction) in {_comparable(answer) for answer in answers}


def typed_match(said: str | None, golds: Iterable[str]) -> bool:
    """Say whether an answer states what one of the right answers states, as far as a reader of both can tell.

    Sign, decimal point, operator and unit count, and so do the marks of code and names ("C++" is not "C#"); other ways to write the same
    value are right (`judge/typed.py`). Where the right answer is `UNKNOWN_ANSWER`, every abstention is right.
    """
    if said is None or not said.strip():
        return False
    golds = tuple(golds)
    if is_abstention(said) and is_unanswerable(golds):
        return True
    stated = readings(said)
    return any(not stated.isdisjoint(readings(gold)) for gold in golds)


def f1(prediction: str | None, answers: Iterable[str]) -> float:
    """Score token overlap with the best-matching right answer, from 0 to 1.

    As in SQuAD 2.0 an unanswerable question has no partial credit: 1 for an abstention, else 0.
    """
    answers = tuple(answers)
    if prediction is None or is_unanswerable(answers):
        return float(exact_match(prediction, answers))
    return max((_token_f1(prediction, answer) for answer in answers), default=0.0)


def _token_f1(prediction: str, answer: str) -> float:
    predicted, gold = normalise_answer(prediction).split(), normalise_answer(answer).split()
    if not predicted or not gold:
        return float(exact_match(prediction, (answer,)))
    shared = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * shared / (len(predicted) + len(gold))


def _comparable(text: str) -> str:
    # An answer made of nothing but articles or marks ("A", "+") would otherwise equal every other such answer.
    return normalise_answer(text) or f"raw {text.strip().casefold()}"


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
    """Calls right what is a typed match with an alias."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """See `Judge.judge`."""
        return [Verdict(typed_match(answer, question.answers)) for question, answer in items]
