"""The plan of a planner, as JSON, and the strict parser that reads it.

    {"should_decompose": true, "subproblems": [{"id": 1, "question": "What is 48 / 2?", "depends_on": []}], "combine": "48 + #1"}

`#1` in a question or in `combine` stands for the answer of subproblem 1. The parser never raises: every error of a text is a named,
counted fault. With prose around the JSON there is still a plan; with any other fault there is none.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

MAX_PLAN_CHARS = 20_000
"""Largest number of characters of a text that is read."""
MAX_DEPTH = 8
"""Largest number of brackets open at once; a plan needs four."""
MAX_TRIES = 16
"""Opening braces in prose at which the parser looks for a plan."""
MAX_SUBPROBLEMS = 12
MAX_QUESTION_CHARS = 600
REFERENCE = re.compile(r"#(\w{1,16})")
"""Reference to an earlier answer."""
_GLUED = re.compile(r"[\d.,]#\w|#\w+(?:#\w|[.,]\d)|#\w{17}")


class Fault(StrEnum):
    """Fault of a text that should hold a plan."""

    NO_JSON = "no_json"
    BAD_JSON = "bad_json"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    DUPLICATE_KEY = "duplicate_key"
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    WRONG_TYPE = "wrong_type"
    EMPTY = "empty"
    """No subproblem, an empty question, or nothing to combine."""
    TOO_MANY = "too_many"
    DUPLICATE_ID = "duplicate_id"
    UNKNOWN_ID = "unknown_id"
    UNDECLARED = "undeclared"
    """A question uses an answer that `depends_on` does not name."""
    GLUED = "glued"
    """A reference touches a digit or another reference: its answer would become part of another number."""
    CYCLE = "cycle"
    CONTRADICTION = "contradiction"
    """Subproblems, but `should_decompose` is false."""
    PROSE = "prose"
    """Text before or after the JSON; the only fault with which there is still a plan."""


def _as_id(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Id = Annotated[str, BeforeValidator(_as_id), Field(pattern=r"^\w{1,16}$")]
FromList = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Subproblem(_Strict):
    """One part of a problem."""

    id: Id
    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS)
    """Question that the worker reads without the problem, references replaced by answers."""
    depends_on: Annotated[tuple[Id, ...], FromList]
    """Ids of subproblems whose answers it needs."""


class Plan(_Strict):
    """A plan for solving a problem."""

    should_decompose: bool
    """False: the worker solves the problem as it is."""
    subproblems: Annotated[tuple[Subproblem, ...], FromList] = Field(max_length=MAX_SUBPROBLEMS)
    combine: str = Field(max_length=MAX_QUESTION_CHARS)
    """Text that makes the final answer from the answers: `#3` alone, or a task for the worker."""

    def waves(self) -> list[list[Subproblem]]:
        """Sort subproblems into waves: each needs only answers of earlier waves, so that a wave can be solved at once.

        Raises:
            CycleError: subproblems need each other.
        """
        by_id = {subproblem.id: subproblem for subproblem in self.subproblems}
        sorter = TopologicalSorter({subproblem.id: subproblem.depends_on for subproblem in self.subproblems})
        sorter.prepare()
        waves = []
        while sorter.is_active():
            ready = set(sorter.get_ready())
            waves.append([subproblem for subproblem in by_id.values() if subproblem.id in ready])
            sorter.done(*ready)
        return waves


DIRECT = Plan(should_decompose=False, subproblems=(), combine="")
"""The plan that leaves everything to the worker."""


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """The parsed content of a text."""

    plan: Plan | None
    faults: tuple[Fault, ...] = ()


def render_plan(plan: Plan) -> str:
    """Write a plan as the tiny planner writes it: compact JSON, numbers as ids where they are numbers."""

    def number(name: str) -> int | str:
        return int(name) if name.isascii() and name.isdecimal() and not (len(name) > 1 and name[0] == "0") else name

    parts = [
        {"id": number(part.id), "question": part.question, "depends_on": [number(name) for name in part.depends_on]}
        for part in plan.subproblems
    ]
    values = {"should_decompose": plan.should_decompose, "subproblems": parts, "combine": plan.combine}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def parse_plan(text: str) -> ParsedPlan:
    """Find the plan in a text; never raises."""
    if len(text) > MAX_PLAN_CHARS:
        return ParsedPlan(None, (Fault.TOO_LONG,))
    if "{" not in text:
        return ParsedPlan(None, (Fault.NO_JSON,))
    if _depth(text) > MAX_DEPTH:
        return ParsedPlan(None, (Fault.TOO_DEEP,))
    found = _first_object(text)
    if isinstance(found, Fault):
        return ParsedPlan(None, (found,))
    values, start, end = found
    around = (Fault.PROSE,) if text[:start].strip() or text[end:].strip() else ()
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        faults = dict.fromkeys(_FAULT_OF.get(str(item["type"]), Fault.WRONG_TYPE) for item in error.errors(include_url=False))
        return ParsedPlan(None, (*faults, *around))
    wrong = tuple(dict.fromkeys(_find_faults(plan)))
    return ParsedPlan(None if wrong else plan, (*wrong, *around))


_FAULT_OF = {
    "missing": Fault.MISSING_FIELD,
    "extra_forbidden": Fault.UNKNOWN_FIELD,
    "string_too_short": Fault.EMPTY,
    "string_too_long": Fault.TOO_LONG,
    "too_long": Fault.TOO_MANY,
}


class _DuplicateKey(ValueError):
    pass


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _DuplicateKey
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _first_object(text: str) -> tuple[dict[str, object], int, int] | Fault:
    """Decode the first brace that opens a JSON object, with its beginning and end; else return the fault of the first brace."""
    fault: Fault | None = None
    for start in islice((match.start() for match in re.finditer("{", text)), MAX_TRIES):
        try:
            values, end = _DECODER.raw_decode(text, start)
        except _DuplicateKey:
            return Fault.DUPLICATE_KEY
        except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError, too
            fault = fault or Fault.BAD_JSON
        else:
            if fault is None or "should_decompose" in values:  # a valid object inside a broken plan is not the plan
                return _clean(values), start, end
    return fault or Fault.NO_JSON


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which JSON can escape and UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {_clean(name): _clean(item) for name, item in value.items()} if isinstance(value, dict) else value


def _depth(text: str) -> int:
    """Count the brackets open at once, those inside strings included, because no plan needs many."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    return deepest


def _find_faults(plan: Plan) -> Iterator[Fault]:
    if not plan.should_decompose:
        if plan.subproblems:
            yield Fault.CONTRADICTION
        return
    ids = [part.id for part in plan.subproblems]
    if not ids or not plan.combine.strip() or any(not part.question.strip() for part in plan.subproblems):
        yield Fault.EMPTY
    if len(set(ids)) < len(ids):
        yield Fault.DUPLICATE_ID
    named = [name for part in plan.subproblems for name in part.depends_on] + REFERENCE.findall(plan.combine)
    if not set(named) <= set(ids):
        yield Fault.UNKNOWN_ID
    if any(map(_GLUED.search, [*(part.question for part in plan.subproblems), plan.combine])):
        yield Fault.GLUED
    for part in plan.subproblems:
        for name in REFERENCE.findall(part.question):
            if name not in part.depends_on:
                yield Fault.UNDECLARED if name in ids else Fault.UNKNOWN_ID
    try:
        plan.waves()
    except CycleError:
        yield Fault.CYCLE
