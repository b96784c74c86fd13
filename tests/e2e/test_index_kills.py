"""kill -9 at random moments of building, swapping and pruning: CURRENT opens and verifies, the next build completes, nothing strays."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.search import open_index
from slmsearch.retrieval.upkeep import verify_version
from slmsearch.retrieval.versions import current_key
from tests.e2e.index_cycle import CONFIG, make_corpus
from tests.slmsearch.retrieval.conftest import HashEmbedder, remove_others

KILLS = int(os.environ.get("INDEX_KILLS", "4"))
ROOT = Path(__file__).resolve().parents[2]
ROUND_S = 1.5
"""About how long one round of the cycle takes: kills fall into the first two."""


def killed_cycle(home: Path, after_s: float) -> None:
    """Start the cycle, let it work for so long, kill it."""
    command = [sys.executable, "-m", "tests.e2e.index_cycle", str(home)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(after_s)
        assert process.poll() is None, "the cycle goes on until it is killed"
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_whenever_it_is_killed_the_index_stands(tmp_path: Path):
    index_dir, chance, seen = tmp_path / "index", random.Random(0), []
    for kill in range(KILLS):
        killed_cycle(tmp_path, chance.uniform(0, 2 * ROUND_S))
        left = sorted(path.name for path in index_dir.iterdir() if path.is_dir()) if index_dir.is_dir() else []
        seen.append([name for name in left if name.startswith(".")])
        key = current_key(index_dir)
        if key is not None:
            assert verify_version(index_dir, key, CONFIG) == 1.0
            index = open_index(index_dir, key, CONFIG, HashEmbedder())
            assert index.search(["Page 7"], 1)[0][0].page_id == "p7"
            index.close()
        built = build_index(make_corpus(tmp_path, kill % 3), index_dir, CONFIG, embedder=HashEmbedder())
        assert current_key(index_dir) == built and verify_version(index_dir, built, CONFIG) == 1.0
        remove_others(index_dir)
        assert [path.name for path in index_dir.iterdir() if path.is_dir()] == [built]
    assert KILLS < 10 or any(seen), "some kill must have left something behind, or nothing was tested"
    print(f"{KILLS} kills, left behind: {seen}")
