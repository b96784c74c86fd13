"""A lineage as a person reads it."""

from collections.abc import Iterable

from flows.ops.lineage import Lineage, OtherSettings
from slmsearch.lineage.graph import Step

TOLD = {
    "source": ("kind", "world.pages", "world.seed", "count", "seed", "limit_pages", "split_seed"),
    "corpus": ("pages", "questions", "source.pages", "source.questions", "source.revision"),
    "index": ("passages", "max_passage_chars", "chunker_version", "recall"),
    "eval": ("policy", "n"),
    "model": ("path",),
    "training": ("steps", "packages.torch", "packages.trl"),
    "adapter": ("sha256",),
    "version": ("aliases", "run"),
    "run": ("stage", "status"),
}
"""Facts shown of each kind; `--json` has them all."""
MAX_CHARS = 70


def render(lineage: Lineage) -> str:
    """Render a lineage."""
    blocks = ["\n".join(_rows(lineage.up))]
    if lineage.down:
        blocks.append("\n".join(["made from it:", *_rows(lineage.down)]))
    if lineage.gaps:
        blocks.append("\n".join(["not known:", *(f"  {gap}" for gap in lineage.gaps)]))
    if lineage.settings is not None:
        blocks.append(_settings(lineage.settings))
    if lineage.verified is not None:
        blocks.append(_verified(lineage))
    return "\n\n".join(blocks)


def _rows(steps: Iterable[Step]) -> list[str]:
    rows = []
    for step in steps:
        kind, key = step.name
        facts = step.node.facts if step.node else {}
        told = [f"{name.rpartition('.')[2]} {facts[name][:MAX_CHARS]}" for name in TOLD.get(kind, ()) if facts.get(name)]
        told += [] if step.node or kind == "embedder" else ["not stored here"]
        label = f"{'  ' * step.depth}{kind}{' (' + step.role + ')' if step.role else ''}"
        rows.append(f"{label:<30} {key}  {', '.join(told)}".rstrip())
    return rows


def _settings(settings: OtherSettings) -> str:
    if not settings.different:
        return "settings: those given are those recorded"
    rows = [f"  {name}: {pair['recorded']!r} -> {pair['given']!r}" for name, pair in settings.different.items()]
    again = ", ".join(settings.stages) or "no stage"
    return "\n".join(["settings that differ from the recorded:", *rows, f"  would run again: {again}"])


def _verified(lineage: Lineage) -> str:
    assert lineage.verified is not None
    changes, unchecked = lineage.verified.changes, lineage.verified.unchecked
    head = f"hashed again: {len(lineage.verified.checked)} things, " + (
        f"{len(changes)} not as recorded:" if changes else "all as recorded"
    )
    rows = [f"  {change.describe()}" for change in changes]
    rows += [f"  not checked: {text}" for text in unchecked]
    return "\n".join([head, *rows, *(f"  note: {note}" for note in lineage.notes)])
