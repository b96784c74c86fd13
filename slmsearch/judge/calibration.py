"""The calibration set: answers with known verdicts, by which a judge is measured before it may teach.

`calibration.jsonl` is what `make_cases` makes of `calibration_facts.py` with `SEED`; a test holds the two together, and
`python -m slmsearch.judge.calibration` writes the file again.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError
from slmsearch.judge import calibration_facts as facts
from slmsearch.keys import content_key

SEED = 7
FILE = "calibration.jsonl"
KINDS = (
    "verbatim", "paraphrase", "alias", "number_format", "other_language", "near_miss", "wrong", "hedge", "all_candidates", "injection",
    "empty",
)  # fmt: skip
PER_KIND = {"wrong": 26, "hedge": 36, "all_candidates": 32, "injection": 42, "empty": len(facts.EMPTY)}
"""Cases of the kinds that are made from templates."""


@dataclass(frozen=True, slots=True)
class Case:
    """One answer whose verdict is known."""

    id: str
    kind: str
    """How the answer relates to the accepted one; one of `KINDS`."""
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
    text = files("slmsearch.judge").joinpath(FILE).read_text(encoding="utf-8")
    try:
        return [Case(**json.loads(line)) for line in text.splitlines()]
    except (ValueError, TypeError) as error:
        raise JudgeError(f"the shipped calibration set is damaged ({error}); install slmsearch again") from error


def calibration_key(cases: list[Case]) -> str:
    """Name a set by what is in it."""
    return content_key(cases=[asdict(case) for case in cases])


def make_cases(seed: int = SEED) -> list[Case]:
    """Make the set; the same seed gives the same cases in the same order."""
    made: list[Case] = []
    chance = random.Random(seed)
    for kind, question, gold, answer, correct in (*_written(), *_filled_in(chance)):
        number = sum(case.kind == kind for case in made)
        made.append(Case(f"{kind}-{number}", kind, question, gold, answer, correct))
    return made


def _written() -> Iterator[tuple[str, str, str, str, bool]]:
    """Give the cases that stand in the tables as they are."""
    for question, gold, others in facts.FACTS:
        yield "verbatim", question, gold, _restyled(gold, len(others[0])), True
    for kind, table in (("paraphrase", facts.PARAPHRASES), ("alias", facts.ALIASES)):
        for question, gold, answer in table:
            yield kind, question, gold, answer, True
    for kind, pairs in (("number_format", facts.NUMBERS), ("other_language", facts.LANGUAGES)):
        for question, gold, right, wrong in pairs:
            yield kind, question, gold, right, True
            yield kind, question, gold, wrong, False
    for question, gold, answer in facts.NEAR_MISSES:
        yield "near_miss", question, gold, answer, False


def _restyled(gold: str, pick: int) -> str:
    return (gold, f"{gold}.", gold.upper(), gold.removeprefix("the "))[pick % 4]


def _filled_in(chance: random.Random) -> Iterator[tuple[str, str, str, str, bool]]:
    """Give the cases made by filling facts into templates; all of them are wrong."""
    templates = {"wrong": ("{wrong}",), "hedge": facts.HEDGES, "all_candidates": facts.CANDIDATES, "injection": facts.INJECTIONS}
    for kind, forms in {**templates, "empty": facts.EMPTY}.items():
        order = chance.sample(facts.FACTS, len(facts.FACTS))
        for i in range(PER_KIND[kind]):
            question, gold, others = order[i % len(order)]
            # Only the first form of each kind would otherwise meet the first facts.
            form = forms[(i + i // len(order)) % len(forms)]
            yield kind, question, gold, form if kind == "empty" else _fill(form, gold, others, chance), False


def _fill(form: str, gold: str, others: tuple[str, ...], chance: random.Random) -> str:
    everyone = chance.sample((gold, *others), len(others) + 1)
    first, second, third = everyone[:3] if gold in everyone[:3] else (gold, *everyone[:2])
    return form.format(right=gold, wrong=chance.choice(others), all=", ".join(everyone), first=first, second=second, third=third)


def write_cases(path: Path) -> None:
    """Write the set to where it ships."""
    lines = (json.dumps(asdict(case), ensure_ascii=False) + "\n" for case in make_cases())
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write_cases(Path(__file__).with_name(FILE))
