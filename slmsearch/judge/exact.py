"""Verdicts, the interfaces of judges, and the judge without a model.

That judge uses typed match over aliases: `judge/typed.py` defines equality, and token F1 decides where the right answer is a passage.
SQuAD's exact match and token F1, and ROUGE-L for passages, allow comparison with published figures; SQuAD's rules tell abstentions.

Language models as judges are in `judge/llm.py`, search metrics in `evaluate/metrics.py`.

Source of exact match and F1: the SQuAD v1.1 evaluation script (Rajpurkar et al., 2016): lower case, no punctuation, no articles, single
spaces. Two additions for text that is not ASCII: Unicode is normalised to NFKC, and punctuation means every Unicode punctuation mark as
well as ASCII's symbols. As in SQuAD, a decimal point is dropped too: to exact match `3.5` equals `35`.

Source of ROUGE-L: Lin, 2004, as the F1 that the package `rouge-score` computes without stemming, but over words of any script.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from rapidfuzz.distance import LCSseq

from slmsearch.corpus.questions import GLUED_CHARACTER, UNKNOWN_ANSWER, Question, is_passage, word_line
from slmsearch.judge.typed import readings

RULES_VERSION = 5
"""Version of the rules, part of the keys of what is judged; raise it if a rule may judge an answer differently."""

_VALUES = frozenset(("number", "money", "percent", "quantity"))
PASSAGE_F1 = 0.5
"""Token F1 from which an answer states a passage. A third of its words alone reaches it, and all of them in a text three times as long."""

SEEN = "; seen: "
"""Separator between the reason why a reply is no verdict and its text."""
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)


def normalise_answer(text: str) -> str:
    """Lower the case, remove punctuation and articles, and join the rest with single spaces; the result may be empty."""
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
    """Return True if an answer admits not knowing; a missing answer (None, empty) does not."""
    return text is not None and normalise_answer(text) in _ABSTENTIONS


def is_unanswerable(answers: Iterable[str]) -> bool:
    """Return True if the gold answer is that there is none."""
    unknown = normalise_answer(UNKNOWN_ANSWER)
    return any(normalise_answer(answer) == unknown for answer in answers)


def exact_match(prediction: str | None, answers: Iterable[str]) -> bool:
    """Return True if a prediction equals one of the right answers after normalisation.

    If the right answer is `UNKNOWN_ANSWER`, every abstention is right.
    """
    if prediction is None or not prediction.strip():
        return False
    answers = tuple(answers)
    if is_abstention(prediction) and is_unanswerable(answers):
        return True
    return _comparable(prediction) in {_comparable(answer) for answer in answers}


def typed_match(said: str | None, golds: Iterable[str]) -> bool:
    """Return True if an answer states the same value or text as one of the right answers.

    Sign, decimal point, operator and unit count, and so do the marks of code and names ("C++" is not "C#"); other ways to write the same
    value are right (`judge/typed.py`). A right answer that is a passage is stated from a token F1 of `PASSAGE_F1`. If the right answer is
    `UNKNOWN_ANSWER`, every abstention is right.
    """
    if said is None or not said.strip():
        return False
    golds = tuple(golds)
    if is_abstention(said) and is_unanswerable(golds):
        return True
    stated = readings(said)
    return any(_agree(stated, readings(gold)) or _states_passage(said, gold) for gold in golds)


def _agree(stated: frozenset[tuple[str, ...]], gold: frozenset[tuple[str, ...]]) -> bool:  # "- 5" is not "5", "5 GB" is not "5 Gb"
    shared, kinds = {one[0] for one in stated & gold}, {one[0] for one in stated} & {one[0] for one in gold}
    return bool(shared) and (not _VALUES.isdisjoint(shared) or _VALUES.isdisjoint(kinds))


def _states_passage(said: str, gold: str) -> bool:
    return is_passage(gold) and _token_f1(said, gold) >= PASSAGE_F1


def f1(prediction: str | None, answers: Iterable[str]) -> float:
    """Return the token overlap with the best-matching right answer, from 0 to 1.

    As in SQuAD 2.0 an unanswerable question has no partial credit: 1 for an abstention, else 0.
    """
    answers = tuple(answers)
    if prediction is None or is_unanswerable(answers):
        return float(exact_match(prediction, answers))
    return max((_token_f1(prediction, answer) for answer in answers), default=0.0)


def _token_f1(prediction: str, answer: str) -> float:
    predicted, gold = (GLUED_CHARACTER.sub(r" \g<0> ", normalise_answer(text)).split() for text in (prediction, answer))
    if not predicted or not gold:
        return float(exact_match(prediction, (answer,)))
    shared = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * shared / (len(predicted) + len(gold))


def rouge_l(prediction: str | None, answers: Sequence[str]) -> float | None:
    """Return ROUGE-L with the best right answer, from 0 to 1: the F1 of the longest common subsequence of words.

    None where the gold answer, the first one, is no passage.
    """
    golds = [words for answer in answers if (words := word_line(answer).split())]
    if not answers or not is_passage(answers[0]):
        return None
    said = word_line(prediction or "").split()
    return max((2 * LCSseq.similarity(said, gold) / (len(said) + len(gold)) for gold in golds), default=0.0)


def _comparable(text: str) -> str:
    # Otherwise an answer of only articles or marks ("A", "+") would equal every other such answer.
    return normalise_answer(text) or f"raw {text.strip().casefold()}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one answer."""

    correct: bool | None
    """Correctness; None if the judge gave no verdict, for the reason in `failure`. None never means a wrong answer."""
    by: Literal["exact", "judge"] = "exact"
    """Source: `exact` for a rule, `judge` for a language model, asked now or earlier."""
    failure: str = ""
    """Reason for a missing verdict as `judge: cause`, or empty."""


def cause_of(failure: str) -> str:
    """Return the reason for a missing verdict, without the text of the reply, for counting."""
    return failure.partition(SEEN)[0]


class Judge(Protocol):
    """Interface of judges."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """Judge answers, one verdict each, in order; an outage gives a verdict without `correct`, never an exception."""


@runtime_checkable
class EagerJudge(Judge, Protocol):
    """Judge that takes time and can start early."""

    def begin(self, question: Question, answer: str | None) -> None:
        """Start to judge an answer in the background and return at once; the next `judge` waits only for the rest."""

    def forget(self) -> None:
        """Cancel the judgements that were started."""

    def release(self) -> None:
        """Free the device that the judge shares with the policy until the judge needs it again."""


class ExactJudge:
    """Judge by typed match with an alias."""

    def judge(self, items: Sequence[tuple[Question, str | None]]) -> list[Verdict]:
        """Implement `Judge.judge`."""
        return [Verdict(typed_match(answer, question.answers)) for question, answer in items]
