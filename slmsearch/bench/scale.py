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
from contextlib import closing
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np

from slmsearch.bench.result import Result, Say, tabulate
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
COLUMNS = {
    "sections": "{sections:,}",
    "passages": "{passages:,}",
    "search": "{search}",
    "build s": "{build_s:.0f}",
    "ms/section": "{section_ms:.2f}",
    "bytes/section": "{section_bytes:,.0f}",
    "peak GB": "{peak_gb:.1f}",
    "recall@10": "{recall:.3f}",
    "p50 ms": "{p50_ms:.1f}",
    "p99 ms": "{p99_ms:.1f}",
    "ms of 64": "{batch_ms:.2f}",
    "rate of 64": "{rate:.1f}x",
    "p50 with encoder": "{with_encoder_p50_ms:.1f}",
}
T = TypeVar("T")


class PerturbedEmbedder(Embedder):
    """Encodes the first texts and takes moved copies of their vectors for all others."""

    def __init__(self, real: Embedder, limit: int) -> None:
        super().__init__()
        self._real, self._limit, self._made = real, limit, 0
        self.id, self.revision = f"{real.id}+moved", real.revision
        self._base = np.zeros((0, self.dimension), dtype=np.float32)

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._real.dimension

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Encode texts while the limit lasts, move known vectors after."""
        room = max(0, self._limit - self._made)
        real = self._real.encode(texts[:room], progress) if room else self._base[:0]
        self._base = np.concatenate([self._base, real])
        count, chance = len(texts) - len(real), np.random.default_rng(self._made)
        self._made += len(texts)
        move = chance.normal(size=(count, self.dimension)).astype(np.float32)
        moved = self._base[chance.integers(len(self._base), size=count)] + NOISE * move / np.linalg.norm(move, axis=1, keepdims=True)
        moved = np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), dtype=np.float32)
        return np.concatenate([real, moved])

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        return self._real.encode_queries(texts)


def run_scale(config: RetrievalConfig, embedder: Embedder, work: Path, sizes: Sequence[int], encoded: int, say: Say) -> Result:
    """Build and search an index of each size.

    Args:
        config: of the index.
        embedder: the real one.
        work: directory for corpora and versions; what is in it is removed.
        sizes: sections, ascending.
        encoded: passages with real vectors.
        say: told what is being done.
    """
    figures, rows = [], []
    for size in sizes:
        say(f"{size} sections: writing pages")
        corpus, questions = _stored_world(work, size)
        moving = PerturbedEmbedder(embedder, encoded)
        say(f"{size} sections: building")
        seconds, key = _timed(build_index, corpus, work / "index", config, None, moving)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        say(f"{size} sections: built in {seconds:.0f} s, searching")
        with closing(open_index(work / "index", key, config, moving)) as index:
            found, passages = _searched(index, questions), index.manifest.passages
        stored = sum(path.stat().st_size for path in (work / "index" / key).rglob("*") if path.is_file())
        search = "exact" if passages <= EXACT_LIMIT else "graph"
        built = {"sections": size, "build_s": seconds, "peak_rss": peak, "passages": passages, "bytes": stored, "search": search}
        figures.append({**built, **found})
        rates = {"section_ms": 1000 * seconds / size, "section_bytes": stored / size, "rate": found["p50_ms"] / found["batch_ms"]}
        rows.append({**figures[-1], **rates, "peak_gb": peak / 1e9})
        shutil.rmtree(work)
    values = {"encoded": encoded, "exact_limit": EXACT_LIMIT, "depth": DEPTH, "sizes": figures}
    return Result(values, (tabulate(COLUMNS, rows),), (f"vectors of {encoded:,} passages are encoded, others are moved copies",))


def run_reindex(config: RetrievalConfig, embedder: Embedder, work: Path, size: int, say: Say) -> Result:
    """Build a version, change one page in a hundred, and build the next one with and without the first beside it.

    Rankings of both are compared under exact search, and the recall of their graphs.
    """
    corpus, questions = _stored_world(work, size)
    pages = list(read_pages(corpus))
    changed_at = set(Random(0).sample(range(len(pages)), max(1, round(CHANGED_FRAC * len(pages)))))
    changed = [
        Page(page.id, page.title, page.content + "\n\nIt was visited again this year.") if i in changed_at else page
        for i, page in enumerate(pages)
    ]
    other = work / "corpora" / store_corpus(CorpusConfig(), work / "corpora", lambda: (changed, []), None)
    seconds, key = {}, ""
    for name, source, home in (("first", corpus, "index"), ("changed", other, "index"), ("whole", other, "whole")):
        say(f"{name} build of {size} sections")
        seconds[name], key = _timed(build_index, source, work / home, config, None, embedder)
    texts = [question.question for question in questions[:QUERIES]]
    with (
        closing(open_index(work / "index", key, config, embedder)) as incremental,
        closing(open_index(work / "whole", key, config, embedder)) as whole,
    ):
        same = sum(a == b for a, b in zip(incremental.search(texts, NEIGHBOURS), whole.search(texts, NEIGHBOURS), strict=True))
        recall = {name: _graph_recall(index, texts) for name, index in (("changed", incremental), ("whole", whole))}
        embedded, copied = incremental.manifest.embedded, incremental.manifest.base is not None
    shutil.rmtree(work)
    ratio, ways = seconds["changed"] / seconds["whole"], "copied and brought up to date" if copied else "built whole"
    values = {
        "sections": size,
        "changed_pages": len(changed_at),
        "embedded": embedded,
        "copied_graph": copied,
        "seconds": seconds,
        "ratio": ratio,
        "queries": len(texts),
        "same_rankings": same,
        "recall": recall,
    }
    notes = (
        f"{size:,} sections, {len(changed_at)} pages changed: {embedded} texts embedded, graph {ways}",
        f"first build {seconds['first']:.1f} s, after the change {seconds['changed']:.1f} s, "
        f"the same from nothing {seconds['whole']:.1f} s: {100 * ratio:.1f} %",
        f"rankings the same for {same} of {len(texts)} queries; recall@10 of the graph {recall['changed']:.3f}, "
        f"built whole {recall['whole']:.3f}",
    )
    return Result(values, notes=notes)


def _stored_world(work: Path, size: int) -> tuple[Path, list[Question]]:
    """Write a world of about so many sections to an empty directory; return its corpus and its questions in a random order.

    A process of its own makes it, so that its memory is not counted as the build's.
    """
    shutil.rmtree(work, ignore_errors=True)
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


def _searched(index: SearchIndex, questions: Sequence[Question]) -> dict[str, float]:
    """Time distinct questions alone and in batches, the encoder's work done before; then with it."""
    texts = list(dict.fromkeys(question.question for question in questions))[: 2 * QUERIES]
    warm, cold = texts[:QUERIES], texts[QUERIES:]
    index._embedder.encode_queries(warm)
    index.search(warm[:2], DEPTH)
    single = [_timed(index.search, [text], DEPTH)[0] for text in warm]
    starts = range(0, len(warm) - BATCH + 1, BATCH)
    batches = [_timed(index.search, warm[start : start + BATCH], DEPTH)[0] / BATCH for start in starts]
    with_encoder = [_timed(index.search, [text], DEPTH)[0] for text in cold[:100]]
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


def _timed(call: Callable[..., T], *arguments: Any) -> tuple[float, T]:
    """Return the seconds that a call takes, and what it returns."""
    started = time.perf_counter()
    found = call(*arguments)
    return time.perf_counter() - started, found
