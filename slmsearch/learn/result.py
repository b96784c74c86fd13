"""What says that a training run is done, and of what: written last, believed only while the files agree with it. Light."""

import json
from pathlib import Path
from typing import Any

from slmsearch.artifacts.directories import find_damage, hash_files, seal
from slmsearch.artifacts.files import file_hash, replace_json
from slmsearch.learn.files import ACCELERATE, ADAPTER, CHECKPOINTS, ERROR, LOCK, LOG, MANIFEST, SOURCES, STOP
from slmsearch.learn.job import TrainJob, train_sources
from slmsearch.learn.models import weights_file

UNSEALED = (CHECKPOINTS, LOCK, LOG, ERROR, STOP, ACCELERATE)
"""What may change, grow or go when training is done."""


def write_sources(job: TrainJob) -> None:
    """Write what the train key was hashed from, so that each part of it can be looked at later."""
    replace_json(job.directory / SOURCES, train_sources(job.config, job.corpus_digest, job.index_key))


def write_manifest(job: TrainJob, steps: int, seconds: float, resumed_from: int, phase_seconds: dict[str, float]) -> None:
    """Write what says that training is done, and of what."""
    adapter = job.directory / ADAPTER
    facts = {
        "adapter_hash": file_hash(weights_file(adapter)),
        "adapter_files": hash_files(adapter),
        "steps": steps,
        "seconds": round(seconds, 1),
        "spent": phase_seconds,
        "resumed_from": resumed_from,
        "train_key": job.train_key,
        "corpus_digest": job.corpus_digest,
        "index_key": job.index_key,
        "base_model": job.config.policy.model,
    }
    replace_json(job.directory / MANIFEST, facts)
    seal(job.directory, UNSEALED)


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished training run; None if it is unfinished or a file of its adapter no longer agrees with it."""
    adapter = directory / ADAPTER
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        # Manifests of old know only the weights.
        files = manifest.get("adapter_files") or {weights_file(adapter).name: manifest["adapter_hash"]}
        return manifest if find_damage(adapter, files) is None and files[weights_file(adapter).name] == manifest["adapter_hash"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
