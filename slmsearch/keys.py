"""Content keys: the name of an artefact is the hash of its inputs.

The chain is data digest -> index key -> eval key -> train key -> adapter hash -> model version (DESIGN.md).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

KEY_LENGTH = 20
"""Hexadecimal digits kept of a sha256: 80 bits, and short enough for MLflow's 36-character digests."""


def content_key(**parts: Any) -> str:
    """Hash named JSON-serialisable parts to a short key; the order of the names does not matter."""
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:KEY_LENGTH]


def file_key(*paths: Path) -> str:
    """Hash the bytes of files, in the order given, together with their sizes; names do not count."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:KEY_LENGTH]
