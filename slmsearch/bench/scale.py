"""`slmsearch bench scale`: what an index costs and gives at each decade of sections, and what re-indexing a changed corpus costs.

Pages are those of the generated world. Up to `encoded` passages the vectors are real; beyond, each is a real one moved in a random
direction, because encoding a million passages takes hours on two cores.
"""

import resource
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from slmsearch.bench.result import Say, render_table
from slmsearch.config import CorpusConfig, RetrievalConfig, WorldConfig
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import read_pages, store_corpus
from slmsearch.corpus.world import generate_world
from slmsearch.retrieval import versions
from slmsearch.retrieval.build import build_index
from slmsearch.retrieval.chroma import SCORE_TOLERANCE, nearest_keys, opened_collection
from slmsearch.retrieval.embed import Embedder, Progress, Vectors
from slmsearch.retrieval.search import CANDIDATES, EXACT_LIMIT, SearchIndex, open_index
from slmsearch.retrieval.vectors import RowsByKey

SECTIONS_PER_PAGE = 5.9
"""Of the generated world, the title section included."""
NOISE = 0.35
"""Length of the random move; the cosine with the real vector is then 0.94."""
QUERIES = 400
BATCH = 64
NEIGHBOURS = 10
DEPTH = 3
"""Pages asked for."""
CHANGED_FRAC = 0.01
BLOCK = 65536


class PerturbedEmbedder(Embedder):
    """Encodes the first texts and takes moved copies of their vectors for all others."""

    def __init__(self, real: Embedder, limit: int) -> None:
        super().__init__()
        self._real, self._limit = real, limit
        self.id, self.revision = f"{real.id}+moved", real.revision
        self.made = 0
        self._base: Vectors | None = None

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._real.dimension

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode texts while the limit lasts, move known vectors after."""
        room = max(0, self._limit - self.made)
        real = self._real.encode(texts[:room], progress) if room else np.zeros((0, self.dimension), dtype=np.float32)
        if len(real):
            self._base = real if self._base is None else np.concatenate([self._base, real])
        moved = self._moved(len(texts) - len(real))
        self.made += len(texts)
        return np.concatenate([real, moved]) if len(moved) else real

    def _moved(self, count: int) -> Vectors:
        if self._base is None or not count:
            return np.zeros((0, self.dimension), dtype=np.float32)
        chance = np.random.default_rng(self.made)
        move = chance.normal(size=(count, self.dimension)).astype(np.float32)
        moved = self._base[chance.integers(len(self._base), size=count)] + NOISE * move / np.linalg.norm(move, axis=1, keepdims=True)
        return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), dtype=np.float32)

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        return self._real.encode_queries(texts)


def run_scale(config: RetrievalConfig, embedder: Embedder, work: Path, sizes: Sequence[int], encoded: int, tell: Say) -> dict[str, Any]:
    """Build and search an index of each size.

    Args:
        config: of the index.
        embedder: the real one.
        work: directory for corpora and versions; what is in it is removed.
        sizes: sections, ascending.
        encoded: passages with real vectors.
        tell: progress.
    """
    rows = []
    for size in sizes:
        shutil.rmtree(work, ignore_errors=True)
        tell(f"{size} sections: writing pages")
        corpus, questions = _stored_world(work, size)
        moving = PerturbedEmbedder(embedder, encoded)
        started = time.perf_counter()
        key = build_index(corpus, work / "index", config, _teller(tell, size), moving)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with_built = open_index(work / "index", key, config, moving)
        tell(f"{size} sections: built in {seconds:.0f} s, searching")
        rows.append(
            {"sections": size, "build_s": seconds, "peak_rss": peak, **_facts(work / "index" / key), **_searched(with_built, questions)}
        )
        with_built.close()
    shutil.rmtree(work, ignore_errors=True)
    return {"encoded": encoded, "exact_limit": EXACT_LIMIT, "depth": DEPTH, "sizes": rows}


def run_reindex(config: RetrievalConfig, embedder: Embedder, work: Path, size: int, tell: Say) -> dict[str, Any]:
    """Build a version, change one page in a hundred, and build the next one with and without the first beside it.

    Rankings of both are compared under exact search, and the recall of their graphs.
    """
    shutil.rmtree(work, ignore_errors=True)
    corpus, questions = _stored_world(work, size)
    pages = list(read_pages(corpus))
    changed_at = set(Random(0).sample(range(len(pages)), max(1, round(CHANGED_FRAC * len(pages)))))
    changed = [
        Page(page.id, page.title, page.content + "\n\nIt was visited again this year.") if i in changed_at else page
        for i, page in enumerate(pages)
    ]
    other = work / "corpora" / store_corpus(CorpusConfig(), work / "corpora", lambda: (changed, []), None)
    seconds, keys = {}, {}
    for name, source, home in (("first", corpus, "index"), ("changed", other, "index"), ("whole", other, "whole")):
        tell(f"{name} build of {size} sections")
        started = time.perf_counter()
        keys[name] = build_index(source, work / home, config, _teller(tell, size), embedder)
        seconds[name] = time.perf_counter() - started
    texts = [question.question for question in questions[:QUERIES]]
    incremental, whole = (open_index(work / home, keys["changed"], config, embedder) for home in ("index", "whole"))
    same = sum(a == b for a, b in zip(incremental.search(texts, NEIGHBOURS), whole.search(texts, NEIGHBOURS), strict=True))
    recalls = {name: _graph_recall(index, texts) for name, index in (("changed", incremental), ("whole", whole))}
    manifest = versions.read_version(work / "index", keys["changed"])
    for index in (incremental, whole):
        index.close()
    shutil.rmtree(work, ignore_errors=True)
    return {
        "sections": size,
        "changed_pages": len(changed_at),
        "embedded": manifest.embedded,
        "copied_graph": manifest.base is not None,
        "seconds": seconds,
        "ratio": seconds["changed"] / seconds["whole"],
        "queries": len(texts),
        "same_rankings": same,
        "recall": recalls,
    }


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "sections": lambda row: f"{row['sections']:,}",
    "passages": lambda row: f"{row['passages']:,}",
    "search": lambda row: str(row["search"]),
    "build s": lambda row: f"{row['build_s']:.0f}",
    "ms/section": lambda row: f"{1000 * row['build_s'] / row['sections']:.2f}",
    "bytes/section": lambda row: f"{row['bytes'] / row['sections']:,.0f}",
    "peak GB": lambda row: f"{row['peak_rss'] / 1e9:.1f}",
    "recall@10": lambda row: f"{row['recall']:.3f}",
    "p50 ms": lambda row: f"{row['p50_ms']:.1f}",
    "p99 ms": lambda row: f"{row['p99_ms']:.1f}",
    "ms of 64": lambda row: f"{row['batch_ms']:.2f}",
    "rate of 64": lambda row: f"{row['p50_ms'] / row['batch_ms']:.1f}x",
    "p50 with encoder": lambda row: f"{row['with_encoder_p50_ms']:.1f}",
}


def render_scale(result: dict[str, Any]) -> str:
    """Write the result as a table."""
    rows = [[cell(row) for cell in COLUMNS.values()] for row in result["sizes"]]
    return f"vectors of {result['encoded']:,} passages are encoded, others are moved copies\n{render_table(list(COLUMNS), rows)}"


def render_reindex(result: dict[str, Any]) -> str:
    """Write the result in words."""
    seconds = result["seconds"]
    return "\n".join(
        [
            f"{result['sections']:,} sections, {result['changed_pages']} pages changed: {result['embedded']} texts embedded, "
            f"graph {'copied and brought up to date' if result['copied_graph'] else 'built whole'}",
            f"first build {seconds['first']:.1f} s, after the change {seconds['changed']:.1f} s, "
            f"the same from nothing {seconds['whole']:.1f} s: {100 * result['ratio']:.1f} %",
            f"rankings the same for {result['same_rankings']} of {result['queries']} queries; recall@10 of the graph "
            f"{result['recall']['changed']:.3f}, built whole {result['recall']['whole']:.3f}",
        ]
    )


def _stored_world(work: Path, size: int) -> tuple[Path, list[Question]]:
    """Write a world of about so many sections; return its corpus and its questions in a random order.

    A process of its own makes it, so that its memory is not counted as the build's.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_store_world, work, size).result()


def _store_world(work: Path, size: int) -> tuple[Path, list[Question]]:
    world = generate_world(
        WorldConfig(pages=max(40, round(size / SECTIONS_PER_PAGE)), seed=5, questions_per_page=0.5 if size > 20_000 else 4.0)
    )
    digest = store_corpus(CorpusConfig(), work / "corpora", lambda: (world.pages, []), None)
    questions = [question for question in world.questions if question.page_ids]
    Random(0).shuffle(questions)
    return work / "corpora" / digest, questions


def _facts(version: Path) -> dict[str, Any]:
    manifest = versions.read_version(version.parent, version.name)
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    return {"passages": manifest.passages, "bytes": size, "search": "exact" if manifest.passages <= EXACT_LIMIT else "graph"}


def _searched(index: SearchIndex, questions: Sequence[Question]) -> dict[str, float]:
    """Time distinct questions alone and in batches, the encoder's work done before; then with it."""
    texts = list(dict.fromkeys(question.question for question in questions))[: 2 * QUERIES]
    warm, cold = texts[:QUERIES], texts[QUERIES:]
    index._embedder.encode_queries(warm)
    index.search(warm[:2], DEPTH)
    single = [_timed(index.search, [text], DEPTH) for text in warm]
    starts = range(0, len(warm) - BATCH + 1, BATCH)
    batches = [_timed(index.search, warm[start : start + BATCH], DEPTH) / BATCH for start in starts]
    with_encoder = [_timed(index.search, [text], DEPTH) for text in cold[:100]]
    return {
        "p50_ms": 1000 * float(np.percentile(single, 50)),
        "p99_ms": 1000 * float(np.percentile(single, 99)),
        "batch_ms": 1000 * statistics.median(batches),
        "with_encoder_p50_ms": 1000 * statistics.median(with_encoder),
        "recall": _graph_recall(index, warm[:200]),
    }


def _graph_recall(index: SearchIndex, texts: Sequence[str]) -> float:
    """Return the share of the true nearest passages that are among the candidates Chroma's graph names for a search.

    All candidates are compared exactly, so the nearest of them are what the search takes for the nearest. A passage as near as
    the true ones counts as one of them.
    """
    queries = index._embedder.encode_queries(texts)
    by_key = RowsByKey(versions.read_keys(index.directory)[1])
    vectors = np.load(index.directory / versions.VECTORS, mmap_mode="r")
    similarity = np.concatenate([vectors[start : start + BLOCK] @ queries.T for start in range(0, len(vectors), BLOCK)])
    bounds = np.partition(similarity, len(vectors) - NEIGHBOURS, axis=0)[len(vectors) - NEIGHBOURS] - SCORE_TOLERANCE
    hits = 0
    with opened_collection(index.directory / versions.CHROMA) as collection:
        for position, query in enumerate(queries):
            rows = by_key.of(nearest_keys(collection, query[None], CANDIDATES)[0])
            hits += min(NEIGHBOURS, int(np.sum(similarity[rows, position] >= bounds[position])))
    return hits / (NEIGHBOURS * len(texts))


def _timed(call: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


def _teller(tell: Say, size: int) -> Progress:
    """Say at every tenth how far the embedding is."""
    said = 0

    def shown(done: int, total: int) -> None:
        nonlocal said
        if 10 * done // max(1, total) > said:
            said = 10 * done // max(1, total)
            tell(f"{size} sections: {done} of {total} passages embedded")

    return shown
