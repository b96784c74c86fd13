"""A small generated world with an index. Its embedder is an endpoint of this process: children that load one take longer than all else."""

import json
import os
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from flows.runtime.settings import load_config
from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus, open_indexed_corpus
from tests.e2e.conftest import MODEL
from tests.loopback import listening
from tests.root import ROOT

PATIENCE_SECONDS = 240
"""For a machine that has other things to do."""
DIMENSION = 256


class Embeddings(BaseHTTPRequestHandler):
    """Bags of words over OpenAI's protocol."""

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        rows = []
        for index, text in enumerate(texts):
            counts = Counter(zlib.crc32(word.encode()) % DIMENSION for word in re.findall(r"\w+", text.lower()))
            rows.append({"index": index, "embedding": [counts[place] + 0.001 for place in range(DIMENSION)]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": rows}).encode())

    def log_message(self, *args: object) -> None:
        pass


@dataclass(frozen=True)
class SmallWorld:
    flags: list[str]
    config: RunConfig
    """What the flags say."""
    indexed: IndexedCorpus
    forked: bool = False
    """Whether children may be forks of a process that has loaded torch; not where a test looks at processes."""

    @property
    def questions(self) -> list[Question]:
        """Those that tiny-searcher answers, mostly."""
        return [question for split in self.indexed.questions.values() for question in split if question.kind == "one_hop"]

    def environment(self, token: str = "") -> dict[str, str]:
        """That of a child."""
        dropped = ("SLMSEARCH_API_TOKEN", *(() if self.forked else ("TESTS_FORK_SERVER",)))
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return {**kept, **({"SLMSEARCH_API_TOKEN": token} if token else {})}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "flows", *words, *self.flags]

    def start(self, *words: str, token: str = "", **streams: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.command(*words), text=True, cwd=ROOT, env=self.environment(token), **streams)


@contextmanager
def small_world(home: Path, forked: bool = False, **changes: object) -> Iterator[SmallWorld]:
    """Make one under a folder; names of other settings have `__` for the dot."""
    with listening(Embeddings) as address:
        settings = {
            "paths.data_dir": home / "data",
            "paths.mlruns_dir": home / "mlruns",
            "corpus.world.pages": 60,
            "retrieval.embedder.base_url": address,
            "retrieval.embedder.model": "words",
            "policy.model": MODEL,
            "policy.device": "cpu",
            "service.deadline_s": PATIENCE_SECONDS,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
        flags = [f"--{name}={value}" for name, value in settings.items()]
        config = load_config(overrides=flags, environment={})
        yield SmallWorld(flags, config, open_indexed_corpus(config), forked)
