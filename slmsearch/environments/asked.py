"""The questions that training asks."""

from collections.abc import Sequence

from slmsearch.corpus.questions import Question
from slmsearch.errors import TrainingError


def select_questions(questions: Sequence[Question], limit: int) -> list[Question]:
    """Take the first `limit` questions (0: all), leaving out those whose text came before.

    Raises:
        TrainingError: there are none.
    """
    unique: dict[str, Question] = {}
    for question in questions:
        unique.setdefault(question.question, question)
    if not unique:
        raise TrainingError("there is no question to train on: check corpus.questions")
    return list(unique.values())[: limit or None]
