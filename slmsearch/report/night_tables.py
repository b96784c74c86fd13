"""Nights as tables and sentences, for a terminal, a flow run's page and a webhook."""

from collections.abc import Sequence

from slmsearch.evaluate.nightly import NightTest
from slmsearch.evaluate.nights import Night, NightChange
from slmsearch.intervals import show_interval
from slmsearch.report.tables import Table

NAMED_CHANGES = 6
"""Number of changes named in the sentence; the record holds all."""


def night_table(night: Night) -> Table:
    """Tabulate the comparisons of a night, falls first."""
    rows = sorted(night.tests, key=lambda test: not test.fell)
    headers = ("against", "slice", "n", "before", "tonight", "difference", "95 % interval", "p (Holm)", "")
    return Table(headers, tuple(_row(test) for test in rows))


def _row(test: NightTest) -> tuple[str, ...]:
    interval = show_interval(100 * test.low, 100 * test.high, "+.1f")
    p = "too few" if test.p_holm is None else f"{test.p_holm:.4f}"
    shares = (f"{100 * test.before:.1f}", f"{100 * test.now:.1f}", f"{100 * (test.now - test.before):+.1f}")
    return (test.against, test.slice, str(test.n), *shares, interval, p, "fell" if test.fell else "")


def describe_night(night: Night) -> str:
    """Describe the result of a night in a sentence or two."""
    if not night.tests:
        return f"Night {night.night}: {night.policy} was played; there is nothing to compare it with yet."
    if night.state == "green":
        return f"Night {night.night}: {night.policy} is not worse than before in {len(night.tests)} comparisons."
    worst = min(night.falls, key=lambda test: test.now - test.before)
    others = f" and {len(night.falls) - 1} more" if len(night.falls) > 1 else ""
    fell = (
        f"{night.metric} of {worst.slice} fell by {100 * (worst.before - worst.now):.1f} points to {100 * worst.now:.1f} "
        f"against {worst.against} (n {worst.n}, Holm p {worst.p_holm:.1g}){others}"
    )
    since = "; ".join(f"changed since the {name}: {_changes(changes)}" for name, changes in night.changes.items())
    return f"Night {night.night}: {night.policy} regressed, {fell}; {since or 'what changed is not known'}."


def _changes(changes: Sequence[NightChange]) -> str:
    def short(value: str | None) -> str:
        return "none" if value is None else value if len(value) <= 24 else f"{value[:20]}..."

    named = [f"{change.part} {change.name} {short(change.before)} -> {short(change.now)}" for change in changes[:NAMED_CHANGES]]
    more = f" and {len(changes) - NAMED_CHANGES} more" if len(changes) > NAMED_CHANGES else ""
    return ", ".join(named) + more if changes else "nothing that is recorded"


def render_night(night: Night) -> str:
    """Render a night for a terminal."""
    lines = [night_table(night).to_text(), ""] if night.tests else []
    lines += [f"note    {note}" for note in night.notes]
    if night.alarm:
        lines.append(f"webhook {night.alarm}")
    return "\n".join([*lines, describe_night(night)])


def nights_table(nights: Sequence[Night]) -> Table:
    """Tabulate nights, one a row."""
    rows = []
    for night in nights:
        state = f"{night.state}, accepted" if night.accepted else night.state
        fresh = f"{100 * night.fresh.slices['all'].mean:.1f}" if night.fresh and "all" in night.fresh.slices else ""
        fixed = f"{100 * night.fixed.slices['all'].mean:.1f}" if "all" in night.fixed.slices else ""
        fell = ", ".join(dict.fromkeys(f"{test.slice} ({test.against})" for test in night.falls))
        rows.append((night.night, state, fixed, fresh, fell))
    return Table(("night", "state", "fixed set", "fresh world", "fell"), tuple(rows))
