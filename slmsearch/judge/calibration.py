"""The calibration set: answers with known verdicts, by which a judge is measured before it may teach.

It is `calibration.jsonl`. A person gave every verdict; facts are common knowledge or about places and people that do not exist, and nothing
is taken from a published data set. Wrong answers are near misses, other names, hedges, lists of candidates, instructions to the judge, and
empty ones; right ones are paraphrases, aliases, other formats of a number and other languages.
"""

import json
from dataclasses import asdict, dataclass
from importlib.resources import files

from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError
from slmsearch.keys import content_key


@dataclass(frozen=True, slots=True)
class Case:
    """One answer whose verdict is known."""

    id: str
    kind: str
    """How the answer relates to the accepted one."""
    question: str
    gold: str
    answer: str
    correct: bool

    def as_question(self) -> Question:
        """Return the question as a judge takes it."""
        return Question(self.id, self.question, self.gold)


def load_cases() -> list[Case]:
    """Load the shipped calibration set.

    Raises:
        JudgeError: the file is damaged.
    """
    text = files("slmsearch.judge").joinpath("calibration.jsonl").read_text(encoding="utf-8")
    try:
        return [Case(**json.loads(line)) for line in text.splitlines()]
    except (ValueError, TypeError) as error:
        raise JudgeError(f"the shipped calibration set is damaged ({error}); install slmsearch again") from error


def calibration_key(cases: list[Case]) -> str:
    """Name a set by what is in it."""
    return content_key(cases=[asdict(case) for case in cases])
