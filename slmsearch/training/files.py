"""Files of a training directory `<data_dir>/training/<train_key>/`: their names, and checkpoints that are complete or do not count.

transformers writes a checkpoint file by file, and its own `get_last_checkpoint` takes the highest number, complete or not. Here
a manifest with the hash of every file is written last, and training resumes only from a checkpoint that agrees with its manifest.
"""

import json
from pathlib import Path

from slmsearch.artifacts import directories
from slmsearch.artifacts.directories import hash_files
from slmsearch.artifacts.files import replace_json

JOB = "job.json"
"""The job, without secrets."""
SOURCES = "sources.json"
"""Parts that the train key was hashed from, written when training begins."""
PREFLIGHT = "preflight.json"
"""Results of the checks before the first step."""
TREES = "trees.json"
"""Report on trees of tokens: whether updates used them, and how far they were from rows on the first batch."""
JUDGE = "judge.json"
"""State of the judging language model; missing with the exact judge."""
STEPS = "steps.jsonl"
"""Reports, one per step; those of some steps hold episodes."""
CHECKPOINTS = "checkpoints"
"""Directory of checkpoints; each counts once it is sealed."""
ADAPTER = "adapter"
"""The trained adapter."""
MANIFEST = "manifest.json"
"""Written last: training is done, or a checkpoint is whole."""
LOG = "train.log"
"""Output of the training process."""
ERROR = "error.json"
"""Boundary and message of the error that ended the training process."""
STOP = "stop"
"""Request to the training process: save a checkpoint and end after the current step."""
LOCK = "lock"
"""Lock of the process that trains here."""
ACCELERATE = "accelerate.json"
"""Configuration of `accelerate launch`, so that a user's own default is not taken by accident."""

SCRATCH = ".scratch"
"""Suffix of the directory beside a supervised model, in which a killed training continues."""

KEPT_CHECKPOINTS = 2
"""Number of kept checkpoints: a kill may damage the last one, just when it is needed."""
_PREFIX = "checkpoint-"


def scratch_of(out: Path) -> Path:
    """Return the scratch directory of a model directory, `.<name>.scratch`; the process with `.<name>.lock` writes both."""
    return out.with_name(f".{out.name}{SCRATCH}")


def seal_checkpoint(checkpoint: Path, step: int) -> None:
    """Write the manifest that makes a checkpoint count; nothing may be written into the checkpoint afterwards."""
    replace_json(checkpoint / MANIFEST, {"step": step, "files": hash_files(checkpoint)})


def is_complete(checkpoint: Path) -> bool:
    """Check every file of a checkpoint against its manifest."""
    return (checkpoint / MANIFEST).is_file() and find_damage(checkpoint) is None


def find_damage(checkpoint: Path) -> str | None:
    """Return how a checkpoint differs from its manifest; None if it does not."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        step, files = manifest["step"], dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{MANIFEST} cannot be read"
    if step != checkpoint_step(checkpoint):
        return f"{MANIFEST} is that of another step"
    return directories.find_damage(checkpoint, files)


def checkpoint_step(checkpoint: Path) -> int:
    """Read the step out of a checkpoint's name; -1 if it has none."""
    suffix = checkpoint.name.removeprefix(_PREFIX)
    return int(suffix) if checkpoint.name.startswith(_PREFIX) and suffix.isdecimal() else -1


def list_checkpoints(directory: Path) -> list[Path]:
    """List checkpoint directories, complete or not, latest step first."""
    found = [path for path in directory.glob(f"{_PREFIX}*") if path.is_dir() and checkpoint_step(path) >= 0]
    return sorted(found, key=checkpoint_step, reverse=True)


def latest_complete_checkpoint(directory: Path) -> Path | None:
    """Find the complete checkpoint with the highest step; None if there is none."""
    return next((path for path in list_checkpoints(directory) if is_complete(path)), None)


def prune_checkpoints(directory: Path) -> None:
    """Delete all but the latest `KEPT_CHECKPOINTS` checkpoints that carry a manifest, and those older than them without one."""
    sealed = [path for path in list_checkpoints(directory) if (path / MANIFEST).is_file()]
    if len(sealed) <= KEPT_CHECKPOINTS:
        return
    oldest_kept = checkpoint_step(sealed[KEPT_CHECKPOINTS - 1])
    for path in list_checkpoints(directory):
        if checkpoint_step(path) < oldest_kept:
            directories.remove(path, ignore_errors=False)


def discard_after(directory: Path, step: int) -> None:
    """Delete the checkpoints after `step`: they are broken, or a resumed run will write them again."""
    for path in list_checkpoints(directory):
        if checkpoint_step(path) > step:
            directories.remove(path, ignore_errors=False)
