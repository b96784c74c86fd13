"""Records of nights, and the verdict on one: its references, whether it is green, and the changes since.

    <directory>/<night>.json

Each night has one file, replaced in one step. The rows of the fixed set are among the other evaluations, under their key; for a fresh
world the record itself holds the numbers that later nights need.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.config import NightlyConfig
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.nightly import WINDOW, NightTest, Past, Scores, SliceScore, compare_night
from slmsearch.foreign import cause_of

SCHEMA = 1
"""Version of the files; raise it when a field changes its meaning."""


@dataclass(frozen=True, slots=True)
class PlayedSet:
    """One of the two sets of a night, played."""

    eval_key: str
    questions: str
    """Key of the questions with their answers."""
    n: int
    failed: int
    """Number of questions lost to a broken service, which are left out."""
    slices: dict[str, SliceScore]


@dataclass(frozen=True, slots=True)
class NightChange:
    """A difference between the inputs of tonight's evaluation and those of the reference."""

    part: str
    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Night:
    """One night."""

    night: str
    """Name of the night: its date and a key of the policy, settings and environment it was played with."""
    at: str
    """End of the night, UTC."""
    state: Literal["green", "regressed"]
    policy: str
    metric: str
    make: dict[str, str]
    """Inputs of the night, under dotted names that begin with one of `LIKELY`."""
    fixed: PlayedSet
    fresh: PlayedSet | None
    tests: tuple[NightTest, ...] = ()
    against: dict[str, str | list[str] | None] = field(default_factory=dict)
    """Names of the references: nights, and the key of the promotion's evaluation."""
    changes: dict[str, tuple[NightChange, ...]] = field(default_factory=dict)
    """Changes since each reference: reference -> changes."""
    notes: tuple[str, ...] = ()
    """Comparisons that could not be made, and why."""
    ids: dict[str, str] = field(default_factory=dict)
    alarm: str = ""
    """Result of the webhook call; empty where none was called."""
    accepted: dict[str, str] = field(default_factory=dict)
    """Acceptance of a regressed night as the new reference: by whom, when and why."""

    @property
    def is_green(self) -> bool:
        """True if later nights may be compared with it."""
        return self.state == "green" or bool(self.accepted)

    @property
    def falls(self) -> tuple[NightTest, ...]:
        """Tests in which the slice has fallen."""
        return tuple(test for test in self.tests if test.fell)

    def to_dict(self) -> dict[str, object]:
        """Convert it to JSON-serialisable values."""
        return {"schema": SCHEMA, **asdict(self)}


def save_night(directory: Path, night: Night) -> Path:
    """Write a night's record, in place of an earlier one of the same night.

    Raises:
        EvaluationError: the file cannot be written.
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
        The nights, and one line for each file that is not a record of this version.
    """
    nights, odd = [], []
    for path in sorted(directory.glob("*.json")):
        try:
            nights.append(night_from_dict(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            odd.append(f"{path} is no record of a night ({cause_of(error)}); it was left out: fix or delete it")
    return sorted(nights, key=lambda night: night.at, reverse=True), odd


def night_from_dict(values: Mapping[str, object]) -> Night:
    """Convert stored values back to a night.

    Raises:
        ValueError, KeyError, TypeError: the values are not a night of this version.
    """
    if values["schema"] != SCHEMA:
        raise ValueError(f"its schema is {values['schema']}, this is {SCHEMA}")
    return TypeAdapter(Night).validate_python(values)


LONGEST_HISTORY = 30
"""Largest number of fresh worlds that tonight's world is compared with."""
ADAPTER = "adapter.hash"
"""Name of the adapter's hash among a night's inputs: nights of another adapter are not its history."""
LIKELY = ("adapter", "data", "index", "prompt", "settings", "code", "packages", "machine")
"""Parts of a night's inputs, the likelier causes of a fall first."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The evaluation that the champion was promoted by."""

    eval_key: str
    questions: str
    scores: Scores
    make: Mapping[str, str]
    """Known inputs of that evaluation."""


def judge_night(
    nights: Sequence[Night],
    tonight: Night,
    fixed: Scores,
    load: Callable[[str], Scores],
    promotion: Promotion | None,
    config: NightlyConfig,
) -> Night:
    """Compare a night with its past and complete its record: tests, state, references, what changed since.

    Args:
        nights: records of earlier nights.
        tonight: the night, as it was played.
        fixed: its scores on the fixed set.
        load: returns the scores of a stored evaluation by key; raises `EvaluationError` if they are deleted.
        promotion: None where the champion was promoted without an evaluation, or there is no champion.
        config: rule.
    """
    chosen, notes = choose_references(nights, tonight, config.green_nights), list(tonight.notes)
    green, kept = _load_green(chosen.green, load, notes)
    other = None
    if chosen.last is None:
        notes.append("there is no green night yet: this one is compared with the promotion only")
    elif not kept:
        why = "its rows are gone" if chosen.green else "the questions are others"
        notes.append(f"last green night {chosen.last.night}: {why}; compared as different questions")
        other = chosen.last.fixed.slices
    same = _choose_promotion(promotion, chosen.accepted, tonight, notes)
    worlds = [
        tuple(night.fresh.slices for night in part if night.fresh) for part in (chosen.fresh, chosen.fresh_before, chosen.fresh_older)
    ]
    past = Past(tuple(green), other, same.scores if same else None, *worlds)
    fresh = tonight.fresh.slices if tonight.fresh else None
    tests = compare_night(fixed, fresh, past, config)
    changes: dict[str, tuple[NightChange, ...]] = {}
    if chosen.last is not None:
        changes["last green night"] = find_changes(chosen.last.make, tonight.make)
    if same is not None:
        changes["promotion"] = find_changes(same.make, tonight.make, partial=True)
    against: dict[str, str | list[str] | None] = {
        "last_green": chosen.last.night if chosen.last else None,
        "green": [night.night for night in kept],
        "promotion": same.eval_key if same else None,
        "fresh": [night.night for night in chosen.fresh],
    }
    state: Literal["green", "regressed"] = "regressed" if any(test.fell for test in tests) else "green"
    return replace(tonight, state=state, tests=tests, against=against, changes=changes, notes=tuple(notes))


def _choose_promotion(promotion: Promotion | None, accepted: Night | None, tonight: Night, notes: list[str]) -> Promotion | None:
    """Return the promotion if tonight can be compared with it, else note why not."""
    if accepted is not None and accepted.make.get(ADAPTER) == tonight.make.get(ADAPTER):
        notes.append(f"night {accepted.night} was accepted since the promotion: not compared with it")
    elif promotion is None:
        notes.append("no evaluation that the champion was promoted by: nothing to compare with")
    elif promotion.questions != tonight.fixed.questions:
        notes.append("the questions are no longer those of the promotion: not compared with it")
    else:
        return promotion
    return None


def _load_green(nights: Sequence[Night], load: Callable[[str], Scores], notes: list[str]) -> tuple[list[Scores], list[Night]]:
    found, kept = [], []
    for night in nights:
        try:
            found.append(load(night.fixed.eval_key))
            kept.append(night)
        except EvaluationError as error:
            notes.append(f"night {night.night} is left out: {error}")
    return found, kept


@dataclass(frozen=True)
class References:
    """The earlier nights that one night is compared with."""

    last: Night | None = None
    """Last green night."""
    green: tuple[Night, ...] = ()
    """Last green night and those before it with its questions and adapter, newest first; empty if tonight has other questions."""
    fresh: tuple[Night, ...] = ()
    """Green nights of its adapter with a fresh world, newest first."""
    fresh_before: tuple[Night, ...] = ()
    """Nights just before tonight, of tonight's adapter, green or not, that fill the window of fresh worlds; empty where they do not."""
    fresh_older: tuple[Night, ...] = ()
    """Nights of `fresh` that are not in the window."""
    accepted: Night | None = None
    """Night that was accepted as the new reference: earlier nights, and the promotion of its adapter, do not count."""


def choose_references(nights: Sequence[Night], tonight: Night, green_nights: int) -> References:
    """Choose a night's references: at most `green_nights` of the last green nights before it."""
    mine = [night for night in nights if night.night != tonight.night and night.metric == tonight.metric and night.at < tonight.at]
    mine.sort(key=lambda night: night.at, reverse=True)
    green = [night for night in mine if night.is_green]
    if not green:
        return References()
    accepted = next((i for i, night in enumerate(green) if night.accepted), None)
    if accepted is not None:
        green = green[: accepted + 1]
    last = green[0]
    adapter = last.make.get(ADAPTER)
    alike = takewhile(lambda night: night.fixed.questions == tonight.fixed.questions and night.make.get(ADAPTER) == adapter, green)
    world = tonight.fresh.questions if tonight.fresh else ""  # already in the history on the second run of a day
    fresh = _of_other_worlds((night for night in green if night.fresh and night.make.get(ADAPTER) == adapter), world)
    same = takewhile(lambda night: night.fresh is not None and night.make.get(ADAPTER) == tonight.make.get(ADAPTER), mine)
    before = _of_other_worlds(same, world)
    window = before[: WINDOW - 1] if len(before) >= WINDOW - 1 else []
    older = [night for night in fresh if window and night.at < window[-1].at]
    return References(
        last=last,
        green=tuple(alike)[:green_nights],
        fresh=tuple(fresh[:LONGEST_HISTORY]),
        fresh_before=tuple(window),
        fresh_older=tuple(older[:LONGEST_HISTORY]),
        accepted=green[-1] if accepted is not None else None,
    )


def _of_other_worlds(nights: Iterable[Night], world: str) -> list[Night]:
    """Return the nights on other worlds, of several on one, as of two runs on a day, the newest: a world counts once."""
    found: dict[str, Night] = {}
    for night in nights:
        if night.fresh and night.fresh.questions != world:
            found.setdefault(night.fresh.questions, night)
    return [*found.values()]


def find_changes(before: Mapping[str, str], now: Mapping[str, str], partial: bool = False) -> tuple[NightChange, ...]:
    """Return the differences, the likely causes of a fall first; with `partial`, a name that the reference lacks is not a change."""
    names = [name for name in {*before, *now} if before.get(name) != now.get(name) and (name in before or not partial)]
    rank = {part: i for i, part in enumerate(LIKELY)}
    changes = [NightChange(*name.partition(".")[::2], before.get(name), now.get(name)) for name in names]
    return tuple(sorted(changes, key=lambda change: (rank.get(change.part, len(LIKELY)), change.name)))
