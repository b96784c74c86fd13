"""Checks of the disk: room, permissions, and what killed processes left."""

from flows.ops.doctor.facts import Facts, Finding, Severity

LITTLE_BYTES = 1 << 30
"""Less free than this: the next checkpoint or index may not fit."""
SOME_BYTES = 5 << 30


def check_disk(facts: Facts) -> list[Finding]:
    """Check that there is room and that it may be written to."""
    found = []
    for directory, free in facts.free_bytes.items():
        if free >= SOME_BYTES:
            continue
        severity: Severity = "error" if free < LITTLE_BYTES else "warning"
        message = f"{directory} has {free / (1 << 30):.1f} GB free"
        found.append(Finding("disk", severity, message, "slmsearch housekeeping shows what can go; or set paths.data_dir"))
    for directory in facts.unwritable:
        found.append(Finding("disk", "error", f"{directory} cannot be written to", "fix its permissions, or set paths.data_dir"))
    for directory in facts.entered_by_others:
        message = f"other users of this machine may read {directory}: corpora, episodes, reports"
        found.append(Finding("disk", "warning", message, f"chmod o-rwx {directory}"))
    return found


def check_leftovers(facts: Facts) -> list[Finding]:
    """Find what killed processes left behind."""
    found = []
    if facts.abandoned:
        message = f"{len(facts.abandoned)} half-written things whose writers are gone, such as {facts.abandoned[0]}"
        found.append(Finding("leftovers", "warning", message, "slmsearch doctor --fix removes them", fix="remove half-written things"))
    for path in facts.dead_records:
        message = f"{path} is left of `slmsearch up`, and its process is gone"
        found.append(Finding("locks", "warning", message, "slmsearch doctor --fix removes it", fix="remove dead records"))
    for path in facts.dead_locks:
        message = f"training {path.name} was broken off; its lock is free and its checkpoints are kept"
        found.append(Finding("locks", "info", message, "run the same command again to go on, or let `slmsearch housekeeping` take it"))
    if facts.orphans:
        message = f"{facts.orphans} MLflow runs show as running and their processes are gone"
        found.append(Finding("mlflow", "warning", message, "slmsearch doctor --fix ends them as KILLED", fix="end orphaned runs"))
    if facts.file_store:
        message = "the MLflow directory holds a store of files, which MLflow 3 refuses"
        found.append(Finding("mlflow", "warning", message, "unset MLFLOW_TRACKING_URI: runs go to the SQLite store beside it"))
    found += [Finding("looking", "warning", text, "fix that, and run `slmsearch doctor` again") for text in facts.damaged]
    return found


CHECKS = (check_disk, check_leftovers)
