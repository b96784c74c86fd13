"""Generated word problems: a seeded dependency graph of quantities, told as a story, with the gold plan beside it.

The number of operations is the difficulty. Problems differ in more than names, every answer is a whole number, and the story includes
distractors. Two seeds share some of the easiest problems, except for names. The text holds no number above 60, so that a small model can
copy each as one token; computed numbers may be larger.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from slmsearch.environments.planner.plan import Plan, Subproblem

NAMES = (
    "Ada", "Bram", "Cora", "Dina", "Emil", "Fenn", "Gita", "Hugo", "Ines", "Jory", "Kaya", "Liam", "Mira", "Nils", "Olga", "Piet",
    "Quin", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Wim", "Xena", "Yara", "Zeno",
)  # fmt: skip
ITEMS = ("shells", "coins", "stamps", "marbles", "cards", "beads", "books", "stones", "apples", "ribbons")
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_SENTENCES = {
    "=": "{fact.who} has {fact.number} {item}.",
    "++": "{fact.who} has as many {item} as {fact.first} and {fact.second} together.",
    "+": "{fact.who} has {fact.number} more {item} than {fact.first}.",
    "-": "{fact.who} has {fact.number} fewer {item} than {fact.first}.",
    "*": "{fact.who} has {times} as many {item} as {fact.first}.",
    "/": "{fact.who} has half as many {item} as {fact.first}.",
}
MAX_OPERATIONS = 6
MAX_VALUE = 5000
"""Largest quantity in a story."""
MAX_PROBLEMS = 33_600
"""Largest number of problems to generate: a sixth of them have one operation, and only 5,625 of those differ in more than names."""
MAX_DISTRACTORS = 2


@dataclass(frozen=True, slots=True)
class Fact:
    """The quantity of one person: a number (`=`), or an operation on others."""

    who: str
    operator: str
    """Operator: `=`, `+`, `-`, `*`, `/` with a number; `++` for the sum of two persons."""
    first: str = ""
    """Person the fact refers to."""
    second: str = ""
    """Other person, for `++`."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A story, its answer and the facts that lead to it."""

    facts: tuple[Fact, ...]
    """Facts in the order of the story; each refers only to earlier ones."""
    asked: tuple[str, ...]
    """Person that is asked for, or two whose sum is."""
    item: str
    answer: int
    operations: int
    needed: tuple[Fact, ...]
    """Facts that the answer rests on, in order."""

    @property
    def text(self) -> str:
        """The story and the question."""
        return " ".join([*(_tell(fact, self.item) for fact in self.facts), self._question()])

    @property
    def signature(self) -> str:
        """Key that is equal for two problems which differ only in names: the needed facts, with persons numbered."""
        numbers = {fact.who: str(i) for i, fact in enumerate(self.needed)}
        told = [f"{f.operator}{f.number}{numbers.get(f.first, '')}.{numbers.get(f.second, '')}" for f in self.needed]
        return " ".join([*told, *(numbers[name] for name in self.asked)])

    def _question(self) -> str:
        if len(self.asked) == 1:
            return f"How many {self.item} does {self.asked[0]} have?"
        return f"How many {self.item} do {self.asked[0]} and {self.asked[1]} have together?"


def generate_problem(rng: Random, operations: int) -> Problem:
    """Generate a problem that takes `operations` operations, from 1 to `MAX_OPERATIONS`."""
    while True:
        problem = _try(rng, operations)
        if problem is not None:
            return problem


def generate_problems(seed: int, count: int) -> Iterator[Problem]:
    """Generate different problems, difficulties in turn; the same seed gives the same ones."""
    rng = Random(f"problems/{seed}")
    seen: set[str] = set()
    made = 0
    while made < count:
        problem = generate_problem(rng, made % MAX_OPERATIONS + 1)
        if problem.signature not in seen:
            seen.add(problem.signature)
            made += 1
            yield problem


def _try(rng: Random, operations: int) -> Problem | None:
    names, item = rng.sample(NAMES, 12), rng.choice(ITEMS)
    asks_two = operations >= 2 and rng.random() < 0.2
    facts, values = _build(rng, names, operations - asks_two)
    if not facts:
        return None
    used = {name for fact in facts for name in (fact.first, fact.second)}
    loose = [fact.who for fact in facts if fact.who not in used]
    asked: tuple[str, ...] = (facts[-1].who,)
    if asks_two:
        asked = (facts[-1].who, rng.choice([fact.who for fact in facts[:-1]]))
    if set(loose) - set(asked):
        return None  # a fact that the answer does not rest on
    told = _with_distractors(rng, facts, names[len(facts) :])
    answer = sum(values[name] for name in asked)
    return Problem(told, asked, item, answer, operations, tuple(facts)) if answer <= MAX_VALUE else None


def _build(rng: Random, names: Sequence[str], operations: int) -> tuple[list[Fact], dict[str, int]]:
    """Build facts that take `operations` operations; empty if the draws lead to no valid story."""
    facts = [Fact(names[0], "=", number=rng.randint(3, 60))]
    values = {names[0]: facts[0].number}
    done = 0
    while done < operations and len(facts) < len(names) - MAX_DISTRACTORS:
        who = names[len(facts)]
        loose = [fact.who for fact in facts if all(fact.who not in (f.first, f.second) for f in facts)]
        if len(loose) == 1 and operations - done >= 2 and rng.random() < 0.25:
            facts.append(Fact(who, "=", number=rng.randint(3, 60)))  # a second branch, to be joined by a sum
            values[who] = facts[-1].number
            continue
        fact = _derive(rng, who, loose, values, must_join=len(loose) - 1 >= operations - done)
        if fact is None:
            return [], {}
        facts.append(fact)
        values[who] = _value(fact, values)
        done += 1
    return facts, values


def _derive(rng: Random, who: str, loose: Sequence[str], values: dict[str, int], must_join: bool) -> Fact | None:
    if len(loose) > 1 and (must_join or rng.random() < 0.4):
        first, second = rng.sample(loose, 2)
        return Fact(who, "++", first, second)
    first = rng.choice(loose)
    choices = []
    if values[first] <= MAX_VALUE // 2:
        choices += [Fact(who, "+", first, number=rng.randint(2, 60)), Fact(who, "*", first, number=2)]
    if values[first] <= MAX_VALUE // 10:
        choices.append(Fact(who, "*", first, number=rng.randint(3, 9)))
    if values[first] > 3:
        choices.append(Fact(who, "-", first, number=rng.randint(2, min(60, values[first] - 1))))
    if values[first] % 2 == 0:
        choices.append(Fact(who, "/", first, number=2))
    return rng.choice(choices) if choices else None


def _value(fact: Fact, values: dict[str, int]) -> int:
    if fact.operator == "=":
        return fact.number
    if fact.operator == "++":
        return values[fact.first] + values[fact.second]
    return _OPERATIONS[fact.operator](values[fact.first], fact.number)


def _with_distractors(rng: Random, facts: Sequence[Fact], names: Sequence[str]) -> tuple[Fact, ...]:
    """Insert facts that the answer does not rest on among the others."""
    told = list(facts)
    for name in names[: rng.randint(0, MAX_DISTRACTORS)]:
        told.insert(rng.randint(0, len(told)), Fact(name, "=", number=rng.randint(3, 60)))
    return tuple(told)


def _tell(fact: Fact, item: str) -> str:
    times = "twice" if fact.number == 2 else f"{fact.number} times"
    return _SENTENCES[fact.operator].format(fact=fact, item=item, times=times)


_WORDS = {"+": "plus", "++": "plus", "-": "minus", "*": "times", "/": "divided by"}


def gold_plan(problem: Problem, steps: int | None = None) -> Plan:
    """Write the plan of one operation per subproblem; `steps` cuts it short after that number of subproblems."""
    place: dict[str, str] = {}
    parts: list[Subproblem] = []

    def add(label: str, left: str, word: str, right: str) -> str:
        depends = tuple(dict.fromkeys(name.removeprefix("#") for name in (left, right) if name.startswith("#")))
        parts.append(Subproblem(id=str(len(parts) + 1), question=f"{label}: {left} {word} {right}?", depends_on=depends))
        return f"#{len(parts)}"

    for fact in problem.needed:
        if fact.operator == "=":
            place[fact.who] = str(fact.number)
            continue
        left = place[fact.first]
        right = place[fact.second] if fact.operator == "++" else str(fact.number)
        place[fact.who] = add(fact.who, left, _WORDS[fact.operator], right)
    last = place[problem.asked[0]]
    if len(problem.asked) == 2:
        last = add("Together", last, "plus", place[problem.asked[1]])
    if steps is not None and steps < len(parts):
        parts, last = parts[:steps], f"#{steps}"
    return Plan(should_decompose=True, subproblems=tuple(parts), combine=last)
