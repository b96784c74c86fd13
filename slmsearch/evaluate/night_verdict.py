"""The verdict on a night: which earlier nights it is compared with, whether it is green, and what changed since."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from slmsearch.config import NightlyConfig
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.nightly import WINDOW, FreshScores, Past, Tonight, compare_night
from slmsearch.evaluate.nights import Change, Night
from slmsearch.evaluate.scores import Scores

LONGEST_HISTORY = 30
"""Fresh worlds that tonight's is compared with."""
ADAPTER = "adapter.hash"
"""In what a night was made of: nights of another adapter are no history."""
LIKELY = ("adapter", "data", "index", "prompt", "settings", "code", "packages", "machine")
"""Parts of what a night is made of, the likelier causes of a fall first."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The evaluation that the champion was promoted by."""

    eval_key: str
    questions: str
    scores: Scores
    make: Mapping[str, str]
    """As much as is known of what it was made of."""


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
        load: returns the scores of a stored evaluation by key; raises `EvaluationError` where they are gone.
        promotion: None where the champion was promoted without an evaluation, or nothing was promoted.
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
    before = chosen.accepted
    if before is not None and before.make.get(ADAPTER) == tonight.make.get(ADAPTER):
        notes.append(f"night {before.night} was accepted since the promotion: not compared with it")
        promotion = None
    elif promotion is None:
        notes.append("no evaluation that the champion was promoted by: nothing to compare with")
    elif promotion.questions != tonight.fixed.questions:
        notes.append("the questions are no longer those of the promotion: not compared with it")
    same = promotion if promotion is not None and promotion.questions == tonight.fixed.questions else None
    past = Past(
        green=tuple(green),
        other=other,
        promotion=same.scores if same else None,
        fresh=fresh_scores(chosen.fresh),
        fresh_older=fresh_scores(chosen.fresh_older),
    )
    fresh = tonight.fresh.slices if tonight.fresh else None
    tests = compare_night(Tonight(fixed, fresh, fresh_scores(chosen.fresh_before)), past, config)
    changes: dict[str, tuple[Change, ...]] = {}
    if chosen.last is not None:
        changes["last green night"] = find_changes(chosen.last.make, tonight.make)
    if same is not None:
        changes["promotion"] = find_changes(same.make, tonight.make, partial=True)
    against = {
        "last_green": chosen.last.night if chosen.last else None,
        "green": [night.night for night in kept],
        "promotion": same.eval_key if same else None,
        "fresh": [night.night for night in chosen.fresh],
    }
    return replace(
        tonight,
        state="regressed" if any(test.fell for test in tests) else "green",
        tests=tests,
        against=against,
        changes=changes,
        notes=tuple(notes),
    )


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
    """The last green night."""
    green: tuple[Night, ...] = ()
    """It and green nights before it, of its questions and adapter, newest first; empty where tonight has other questions."""
    fresh: tuple[Night, ...] = ()
    """Green nights of its adapter with a fresh world, newest first."""
    fresh_before: tuple[Night, ...] = ()
    """Nights just before tonight, of tonight's adapter, green or not, that fill the window of fresh worlds; empty where they do not."""
    fresh_older: tuple[Night, ...] = ()
    """Those of `fresh` that are not in the window."""
    accepted: Night | None = None
    """A night that was taken as the new state of things: nothing before it counts, nor does the promotion of its adapter."""


def choose_references(nights: Sequence[Night], tonight: Night, green_nights: int) -> References:
    """Choose what a night is compared with.

    Args:
        nights: what is recorded; tonight itself, and what came after it, do not count.
        tonight: the night.
        green_nights: how many of the last green nights.
    """
    mine = [night for night in nights if night.night != tonight.night and night.metric == tonight.metric and night.at < tonight.at]
    mine.sort(key=lambda night: night.at, reverse=True)
    green = [night for night in mine if night.is_green]
    if not green:
        return References()
    accepted = next((i for i, night in enumerate(green) if night.accepted), None)
    if accepted is not None:
        green = green[: accepted + 1]
    last = green[0]
    alike = list(takewhile(lambda night: _alike(night, last), green)) if last.fixed.questions == tonight.fixed.questions else []
    world = tonight.fresh.questions if tonight.fresh else ""  # played already where this is the second run of a day
    fresh = [
        night for night in green if night.fresh and night.fresh.questions != world and night.make.get(ADAPTER) == last.make.get(ADAPTER)
    ]
    before = list(takewhile(lambda night: night.fresh is not None and night.make.get(ADAPTER) == tonight.make.get(ADAPTER), mine))
    window = before[: WINDOW - 1] if len(before) >= WINDOW - 1 else []
    older = [night for night in fresh if window and night.at < window[-1].at]
    return References(
        last=last,
        green=tuple(alike[:green_nights]),
        fresh=tuple(fresh[:LONGEST_HISTORY]),
        fresh_before=tuple(window),
        fresh_older=tuple(older[:LONGEST_HISTORY]),
        accepted=green[-1] if accepted is not None else None,
    )


def fresh_scores(nights: Sequence[Night]) -> tuple[FreshScores, ...]:
    """Return how the fresh worlds of nights came out."""
    return tuple(night.fresh.slices for night in nights if night.fresh is not None)


def find_changes(before: Mapping[str, str], now: Mapping[str, str], partial: bool = False) -> tuple[Change, ...]:
    """Say what differs, the likely causes of a fall first.

    Args:
        before: what the reference was made of.
        now: what tonight is made of.
        partial: of the reference not everything is known; what it does not name is no change.
    """
    names = [name for name in {*before, *now} if before.get(name) != now.get(name) and (name in before or not partial)]
    rank = {part: i for i, part in enumerate(LIKELY)}
    changes = [Change(*name.partition(".")[::2], before.get(name), now.get(name)) for name in names]
    return tuple(sorted(changes, key=lambda change: (rank.get(change.part, len(LIKELY)), change.name)))


def _alike(night: Night, last: Night) -> bool:
    return night.fixed.questions == last.fixed.questions and night.make.get(ADAPTER) == last.make.get(ADAPTER)
