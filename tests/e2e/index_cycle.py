"""Builds, swaps and removes index versions without end; the kill test starts it and kills it."""

import json
import shutil
import sys
from pathlib import Path

from slmsearch.config import CorpusConfig, EmbedderConfig, RetrievalConfig
from slmsearch.corpus.store import build_corpus
from slmsearch.retrieval import vectors
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.upkeep import roll_back
from tests.slmsearch.retrieval.conftest import HashEmbedder, remove_others

CONFIG = RetrievalConfig(embedder=EmbedderConfig(model="no/such-model"))
PAGES = 60
CORPORA = 3


def make_corpus(home: Path, number: int) -> Path:
    """Write one of a few corpora that share most of their pages."""
    source = home / f"pages-{number}.jsonl"
    texts = [f"# Page {n}\nfact {n * 7} of edition {number if n % 10 == 0 else 0}" for n in range(PAGES)]
    source.write_text("".join(json.dumps({"id": f"p{n}", "title": f"Page {n}", "content": text}) + "\n" for n, text in enumerate(texts)))
    return home / "corpora" / build_corpus(CorpusConfig(pages=str(source)), home / "corpora")


def run(home: Path) -> None:
    """Go round and round; a line on stdout says that it has begun."""
    vectors.CHUNK = 16
    corpora = [make_corpus(home, number) for number in range(CORPORA)]
    # Everything is imported by now: kills shall fall on the work.
    shutil.rmtree(home / "warm", ignore_errors=True)
    build_index(corpora[0], home / "warm", CONFIG, embedder=HashEmbedder())
    print("ready", flush=True)
    while True:
        for corpus in corpora:
            build_index(corpus, home / "index", CONFIG, embedder=HashEmbedder())
        roll_back(home / "index")
        remove_others(home / "index")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
