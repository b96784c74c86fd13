"""Moves of the alias `champion`: compare and set under a lock, with who, when, why, from and to.

MLflow lets the last writer win. Here a move names the champion it was decided about, takes the lock in the MLflow directory, reads the
alias again and refuses if it has changed. The lock works between processes that share that directory; after setting, the alias is read
once more, so that a writer from elsewhere is at least noticed. Every move is recorded as tags on the version and as a line in
`promotions.jsonl`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from slmsearch.artifacts.files import replace_text
from slmsearch.errors import ModelError, PromotionError
from tasks.tracking.service import CHAMPION, PREFIX, as_service, if_there
from tasks.tracking.tracker import Tracker

HISTORY = "promotions.jsonl"
"""File in `paths.mlruns_dir`: one move a line, for all registered models."""
PROMOTION_EVAL = f"{PREFIX}promotion_eval_key"
"""Tag of a version with the evaluation it was promoted by."""


@dataclass(frozen=True, slots=True)
class PromotionEvent:
    """A move of the alias from one version to another."""

    model: str
    version: str
    kind: Literal["promote", "rollback", "found"]
    """Kind of the move; `found`: a person or program outside of this project made it."""
    why: str
    by: str
    previous: str | None = None
    """Champion before; None if there was none."""
    at: str = ""
    eval_key: str = ""
    """Evaluation that the decision rests on; empty if there is none."""


@as_service
def move_champion(tracker: Tracker, event: PromotionEvent, expected: str | None, deciding_run: str | None = None) -> PromotionEvent:
    """Promote a version, if the champion is still the one that was decided about; the present champion stays champion.

    Args:
        tracker: store.
        event: model, version, kind, reason and person; the rest is filled in.
        expected: champion at the decision, None if there was none.
        deciding_run: MLflow run that decided; a run that is no longer running may not promote.

    Raises:
        PromotionError: the champion has changed, or the deciding run has ended.
        ModelError: there is no such version.
    """
    with tracker.lock:
        _require_version(tracker, event.model, event.version)
        current = _champion(tracker, event.model)
        if current not in (expected, event.version):
            raise PromotionError(f"champion of {event.model} moved from {expected} to {current} meanwhile; compare again before promoting")
        status = tracker.client.get_run(deciding_run).info.status if deciding_run else "RUNNING"
        if status != "RUNNING":
            raise PromotionError(f"run {deciding_run} decided to promote and is {status} by now: it may not; run the flow again")
        return _record_event(tracker, replace(event, previous=current))


@as_service
def roll_back(tracker: Tracker, model: str, why: str, by: str) -> PromotionEvent:
    """Make the previous champion the champion again.

    Raises:
        PromotionError: there is no champion, or none before it.
        ModelError: the version before does not exist.
    """
    with tracker.lock:
        current = _champion(tracker, model)
        if current is None:
            raise PromotionError(f"{model} has no champion to roll back; promote a version with `slmsearch promote`")
        _note_foreign_event(tracker, model, current)
        target = champion_before(tracker.home, model, current, tracker.champion(model) or {})
        if target is None:
            raise PromotionError(f"{model} had no champion before version {current}; name one with `slmsearch promote VERSION`")
        _require_version(tracker, model, target)
        tags = {"rolled_back_at": _now(), "rolled_back_by": by, "rolled_back_why": why, "rolled_back_to": target}
        _tag(tracker, model, current, tags)
        return _record_event(tracker, PromotionEvent(model, target, "rollback", why, by, current))


def read_promotions(home: Path, model: str | None = None) -> list[PromotionEvent]:
    """Return all moves, or those of one model, the oldest first; a truncated line is left out."""
    try:
        lines = (home / HISTORY).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(PromotionEvent(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return [event for event in found if model in (None, event.model)]


def _record_event(tracker: Tracker, event: PromotionEvent) -> PromotionEvent:
    """Set tags, alias and history, in this order: after a kill a champion still has its reason, and the next move completes the rest."""
    previous = event.previous
    if previous is not None:
        _note_foreign_event(tracker, event.model, previous)
    if previous == event.version:
        return event
    event = replace(event, at=_now())
    tags = {"at": event.at, "by": event.by, "why": event.why, "from": previous or "", "kind": event.kind}
    named = {f"promoted_{name}": value for name, value in tags.items()}
    if event.eval_key:
        named["promotion_eval_key"] = event.eval_key
    _tag(tracker, event.model, event.version, named)
    tracker.client.set_registered_model_alias(event.model, CHAMPION, event.version)
    if (now := _champion(tracker, event.model)) != event.version:
        raise PromotionError(
            f"champion of {event.model} became {now} while {event.version} was promoted: another machine writes to this store"
        )
    _append(tracker, event)
    return event


def _note_foreign_event(tracker: Tracker, model: str, current: str) -> None:
    """Record the promotion of the present champion, if no line of the history does."""
    events = read_promotions(tracker.home, model)
    if events and events[-1].version == current:
        return
    tags = tracker.champion(model) or {}
    last = events[-1].version if events else None
    if tags.get(f"{PREFIX}promoted_at") and tags.get(f"{PREFIX}promoted_from", "") == (last or ""):  # killed before it wrote its line
        kind: Literal["promote", "rollback"] = "rollback" if tags.get(f"{PREFIX}promoted_kind") == "rollback" else "promote"
        facts = (tags.get(f"{PREFIX}promoted_why", ""), tags.get(f"{PREFIX}promoted_by", ""))
        _append(tracker, PromotionEvent(model, current, kind, *facts, last, tags[f"{PREFIX}promoted_at"], tags.get(PROMOTION_EVAL, "")))
    else:
        _append(tracker, PromotionEvent(model, current, "found", "it was moved by something else", "", last, _now()))


def champion_before(home: Path, model: str, current: str, tags: Mapping[str, str]) -> str | None:
    """Return the champion that the present one, with its tags, replaced at its promotion: a rollback returns to it."""
    for event in reversed(read_promotions(home, model)):
        if event.version == current and event.kind != "rollback" and event.previous != current:
            return event.previous
    return tags.get(f"{PREFIX}promoted_from") or None


def _champion(tracker: Tracker, model: str) -> str | None:
    return (tracker.champion(model) or {}).get("version")


def _require_version(tracker: Tracker, model: str, version: str) -> None:
    if if_there(lambda: tracker.client.get_model_version(model, version)) is None:
        known = sorted((found.version for found in tracker.client.search_model_versions(f"name = '{model}'")), key=int)
        raise ModelError(f"{model} has no version {version}; it has {', '.join(map(str, known)) or 'none'}")


def _tag(tracker: Tracker, model: str, version: str, tags: Mapping[str, str]) -> None:
    for name, value in tags.items():
        tracker.client.set_model_version_tag(model, version, f"{PREFIX}{name}", value[:1000])


def _append(tracker: Tracker, event: PromotionEvent) -> None:
    path = tracker.home / HISTORY
    known = f"{path.read_text(encoding='utf-8').rstrip()}\n" if path.is_file() else ""
    replace_text(path, f"{known}{json.dumps(asdict(event), ensure_ascii=False)}\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
