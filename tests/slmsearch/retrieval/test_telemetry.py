"""Chroma tells nobody what is done here: its telemetry is off where it is opened, whatever the environment says."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slmsearch.retrieval.chroma import fill_collection, opened_collection


def test_the_client_is_opened_without_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import chromadb

    monkeypatch.setenv("ANONYMIZED_TELEMETRY", "true")
    opened: list[Any] = []
    make = chromadb.PersistentClient
    monkeypatch.setattr(chromadb, "PersistentClient", lambda **options: opened.append(make(**options)) or opened[-1])
    fill_collection(tmp_path, np.ones(1, dtype=np.uint64), np.ones((1, 4), dtype=np.float32))
    with opened_collection(tmp_path):
        pass
    assert len(opened) == 2
    assert [client.get_settings().anonymized_telemetry for client in opened] == [False, False]


def test_nothing_that_could_send_it_is_loaded() -> None:
    code = "import chromadb, sys; print('posthog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
