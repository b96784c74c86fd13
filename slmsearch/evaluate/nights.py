"""Records of nights: what was played, what it was made of, what it was compared with, what was found.

    <directory>/<night>.json

One file a night, replaced in one step. The rows of the fixed set lie with the other evaluations and are named by key; of a fresh world
the record itself holds what later nights need.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.nightly import NightTest
from slmsearch.evaluate.scores import SliceScore

SCHEMA = 1
"""Version of the files; raise it when a field changes its meaning."""

Make = Mapping[str, str]
"""What a night was made of, by dotted names that begin with `adapter`, `data`, `index`, `prompt`, `settings`, `code`, `packages` or
`machine`."""


@dataclass(frozen=True, slots=True)
class PlayedSet:
    """One of the two sets as it was played."""

    eval_key: str
    questions: str
    """Names the questions with their answers."""
    n: int
    failed: int
    """Questions lost to a broken service, left out."""
    slices: dict[str, SliceScore]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that tonight's evaluation is made of and the reference was not."""

    part: str
    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Night:
    """One night."""

    night: str
    """Its date and what it was computed with."""
    at: str
    """When it ended, UTC."""
    state: Literal["green", "regressed"]
    policy: str
    metric: str
    make: dict[str, str]
    fixed: PlayedSet
    fresh: PlayedSet | None
    tests: tuple[NightTest, ...] = ()
    against: dict[str, Any] = field(default_factory=dict)
    """Names of the references: nights, and the key of the promotion's evaluation."""
    changes: dict[str, tuple[Change, ...]] = field(default_factory=dict)
    """What changed since: reference -> changes."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""
    ids: dict[str, str] = field(default_factory=dict)
    alarm: str = ""
    """What became of the webhook; empty where none was called."""
    accepted: dict[str, str] = field(default_factory=dict)
    """Who took a regressed night as the new state of things, when and why."""

    @property
    def is_green(self) -> bool:
        """Whether later nights may be compared with it."""
        return self.state == "green" or bool(self.accepted)

    @property
    def falls(self) -> tuple[NightTest, ...]:
        """What fell."""
        return tuple(test for test in self.tests if test.fell)

    def to_dict(self) -> dict[str, Any]:
        """Turn it into JSON-serialisable values."""
        return {"schema": SCHEMA, **asdict(self)}


def save_night(directory: Path, night: Night) -> Path:
    """Write a night's record, in place of an earlier one of the same night.

    Raises:
        EvaluationError: it cannot be written.
    """
    path = directory / f"{night.night}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(night.to_dict(), indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise EvaluationError(f"cannot write {path} ({error.strerror or error}); free disk space or fix permissions") from error
    return path


def load_nights(directory: Path) -> tuple[list[Night], list[str]]:
    """Load all records, newest first.

    Returns:
        The nights, and one line for each file that is none of this version.
    """
    nights, odd = [], []
    for path in sorted(directory.glob("*.json")):
        try:
            nights.append(night_from_dict(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            odd.append(f"{path} is no record of a night ({' '.join(str(error).split())[:100]}); it was left out: fix or delete it")
    return sorted(nights, key=lambda night: night.at, reverse=True), odd


def night_from_dict(values: Mapping[str, Any]) -> Night:
    """Turn stored values back into a night.

    Raises:
        ValueError, KeyError, TypeError: they are no night of this version.
    """
    if values["schema"] != SCHEMA:
        raise ValueError(f"its schema is {values['schema']}, this is {SCHEMA}")
    return _NIGHT.validate_python(values)


_NIGHT = TypeAdapter(Night)
