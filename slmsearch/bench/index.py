"""`slmsearch bench index`: building an index beside what Chroma's users do, `collection.add` with its sentence-transformers function.

Both sides embed the very same texts with the same weights on the same processor and fill a new collection on disk, in turns and
with models loaded. The peer has its texts in the largest batches Chroma takes, so that it, too, sorts them by length, and Chroma's own
settings; it keeps the texts in a full-text index. Ours is what `slmsearch index build` does: the embedder's `encode`, then the
collection and its metadata, then the lexical index.

A bare title is no section and is not counted as one; how long titles take is measured apart.
"""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from slmsearch.bench.result import describe_machine, render_machine, render_spread, summarize
from slmsearch.config import RetrievalConfig, RunConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import load_source
from slmsearch.corpus.world import generate_world
from slmsearch.errors import CorpusError, EmbedderError
from slmsearch.report.tables import Table
from slmsearch.retrieval.chroma import fill_collection
from slmsearch.retrieval.embed import Embedder, Vectors
from slmsearch.retrieval.embed_local import find_model
from slmsearch.retrieval.embedders import load_embedder
from slmsearch.retrieval.lexical import build_lexical
from slmsearch.retrieval.passages import Passage, make_passages
from slmsearch.retrieval.vectors import vector_keys

PEER_BATCH = 5_000
"""Chroma takes 5,461 at most."""
TITLES = 10_000
QUESTIONS = 500
NEIGHBOURS = 10
BARS = {"ratio": 3.0, "cosine": 0.99, "points": 0.5, "titles_s": 60.0}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Material:
    """What is indexed, and what is asked of it."""

    passages: list[Passage]
    questions: list[Question]


@dataclass(frozen=True, slots=True)
class Built:
    """One timed build."""

    seconds: float
    encode_s: float
    """Of `seconds`; 0 where it cannot be told apart."""
    cpu_s: float
    """Processor time of all threads, which says more than `seconds` where the machine has other work."""
    vectors: Vectors


def run_index(config: RunConfig, sections: int, rounds: int, say: Say) -> dict[str, Any]:
    """Measure.

    Args:
        config: corpus and retrieval.
        sections: passages of section text, at most; of pages evenly spread over the corpus.
        rounds: timed builds of each side.
        say: told what is being done.

    Raises:
        CorpusError: the corpus has no sections.
        EmbedderError: the model is not there, or is behind an endpoint.
    """
    if config.retrieval.embedder.base_url:
        raise EmbedderError("bench index compares local models: unset retrieval.embedder.base_url")
    material = choose_material(config, sections)
    texts = [passage.text for passage in material.passages]
    embedder = load_embedder(config.retrieval.embedder)
    say(f"{len(texts)} sections, {embedder.id}; warming up")
    build_ours(embedder, material.passages, config.retrieval)
    peak = _peak_mb()
    peer = make_peer(config.retrieval)
    build_peer(peer, texts[:PEER_BATCH])
    ours, theirs = [], []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            if side:
                theirs.append(build_peer(peer, texts))
            else:
                ours.append(build_ours(embedder, material.passages, config.retrieval))
    say(f"{TITLES} titles")
    return {
        "machine": describe_machine("torch", "transformers", "sentence-transformers", "chromadb"),
        "corpus": config.corpus.pages or "generated world",
        "embedder": f"{embedder.id}@{embedder.revision}",
        "sections": len(texts),
        "mean_chars": sum(map(len, texts)) / len(texts),
        "rounds": rounds,
        "ours": _rates(ours, len(texts)),
        "peer": _rates(theirs, len(texts)),
        "ratio": summarize([theirs[i].seconds / ours[i].seconds for i in range(rounds)]),
        "cpu_ratio": summarize([theirs[i].cpu_s / ours[i].cpu_s for i in range(rounds)]),
        "same_bits": all(np.array_equal(ours[0].vectors, built.vectors) for built in ours),
        "cosine": _cosines(ours[0].vectors, theirs[0].vectors),
        "recall": _compare_recall(config.retrieval, material, embedder, peer, ours[0].vectors, theirs[0].vectors),
        "titles": _measure_titles(embedder, config),
        "peak_mb": peak,
        "bars": BARS,
    }


def choose_material(config: RunConfig, sections: int) -> Material:
    """Take pages, evenly spread, until there are enough sections; and questions that these pages answer."""
    pages, questions = load_source(config.corpus)
    found = {group[0].page_id: group[1:] for group in _by_page(pages, config.retrieval)}  # the first is the bare title
    total = sum(map(len, found.values()))
    if not total:
        raise CorpusError("the corpus has no sections to be indexed; name another with --corpus.pages, or leave it out")
    stride = max(1, total // sections)
    chosen: list[Passage] = []
    for passages in list(found.values())[::stride]:
        chosen += passages
    chosen = chosen[:sections]
    kept = {passage.page_id for passage in chosen}
    asked = [question for question in questions if question.page_ids and kept.issuperset(question.page_ids)]
    return Material(chosen, asked[:: max(1, len(asked) // QUESTIONS)][:QUESTIONS])


def build_ours(embedder: Embedder, passages: Sequence[Passage], config: RetrievalConfig) -> Built:
    """Embed and store as `build_index` does."""
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        started, cpu = time.perf_counter(), time.process_time()
        vectors = embedder.encode([passage.text for passage in passages])
        encoded = time.perf_counter()
        fill_collection(Path(directory) / "chroma", vector_keys(vectors), vectors)
        build_lexical((passage.text for passage in passages), Path(directory) / "lexical")
        return Built(time.perf_counter() - started, encoded - started, time.process_time() - cpu, vectors)


def make_peer(config: RetrievalConfig) -> Any:
    """Load Chroma's sentence-transformers function on the same weights and device.

    Raises:
        EmbedderError: the model is not there, or is behind an endpoint.
    """
    from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

    device = "cpu" if config.embedder.device == "auto" else config.embedder.device
    return SentenceTransformerEmbeddingFunction(model_name=str(find_model(config.embedder.model)), device=device)


def build_peer(function: Any, texts: Sequence[str]) -> Built:
    """Add texts to a new collection on disk, which embeds them itself."""
    import chromadb
    from chromadb.config import Settings

    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        client: Any = chromadb.PersistentClient(path=directory, settings=Settings(anonymized_telemetry=False))
        try:
            started, cpu = time.perf_counter(), time.process_time()
            collection = client.create_collection("peer", embedding_function=function)
            for start in range(0, len(texts), PEER_BATCH):
                batch = list(texts[start : start + PEER_BATCH])
                collection.add(ids=[str(start + row) for row in range(len(batch))], documents=batch)
            seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
            stored = collection.get(include=["embeddings"])
        finally:
            client.close()
    order = np.argsort(np.array(stored["ids"], dtype=np.int64))
    return Built(seconds, 0.0, cpu_s, np.asarray(stored["embeddings"], dtype=np.float32)[order])


def compare_rankings(material: Material, top_k: int, ours: tuple[Vectors, Vectors], theirs: tuple[Vectors, Vectors]) -> dict[str, float]:
    """Rank every passage by brute force for every question, with each side's vectors of questions and passages.

    Returns:
        Share of the peer's first ten passages that are among our first ten, and for each side the share of questions with a gold
        page among the first `top_k` pages.
    """
    pages = np.array([passage.page_id for passage in material.passages])
    kept, found = 0, [0, 0]
    for row, question in enumerate(material.questions):
        orders = [np.argsort(-(passages @ queries[row]), kind="stable") for queries, passages in (ours, theirs)]
        kept += len(np.intersect1d(orders[0][:NEIGHBOURS], orders[1][:NEIGHBOURS]))
        for side, order in enumerate(orders):
            best = list(dict.fromkeys(pages[order].tolist()))[:top_k]
            found[side] += bool(set(question.page_ids) & set(best))
    asked = max(1, len(material.questions))
    neighbours = min(NEIGHBOURS, len(pages))
    page = {"ours": found[0] / asked, "peer": found[1] / asked}
    return {
        "questions": len(material.questions),
        "kept_frac": kept / (asked * neighbours),
        **page,
        "lost_points": 100 * (page["peer"] - page["ours"]),
    }


def _compare_recall(
    config: RetrievalConfig, material: Material, embedder: Embedder, peer: Any, ours: Vectors, theirs: Vectors
) -> dict[str, Any]:
    asked = [question.question for question in material.questions]
    if not asked:
        return {"questions": 0}
    queries = np.asarray(peer(asked), dtype=np.float32)
    return compare_rankings(material, config.top_k, (embedder.encode_queries(asked), ours), (queries, theirs))


def _measure_titles(embedder: Embedder, config: RunConfig) -> dict[str, Any]:
    """Build an index of nothing but titles, once."""
    pages = generate_world(WorldConfig(pages=TITLES, seed=config.corpus.world.seed)).pages
    titles = [group[0] for group in _by_page(pages, config.retrieval)]
    built = build_ours(embedder, titles, config.retrieval)
    return {"titles": len(titles), "seconds": built.seconds, "encode_s": built.encode_s}


def _by_page(pages: Sequence[Page], config: RetrievalConfig) -> list[list[Passage]]:
    passages = make_passages(Library(pages), config.max_passage_chars)
    return [list(group) for _, group in groupby(passages, key=lambda passage: passage.page_id)]


def _rates(builds: Sequence[Built], count: int) -> dict[str, Any]:
    encode = [built.encode_s for built in builds if built.encode_s]
    parts = {"encode_s": median(encode), "fill_s": median(built.seconds - built.encode_s for built in builds)} if encode else {}
    cpu = summarize([count / built.cpu_s for built in builds])
    return {"sections_per_s": summarize([count / built.seconds for built in builds]), "sections_per_cpu_s": cpu, **parts}


def _cosines(ours: Vectors, theirs: Vectors) -> dict[str, float]:
    cosines = np.vecdot(ours, theirs / np.linalg.norm(theirs, axis=1, keepdims=True))
    return {"min": float(cosines.min()), "median": float(np.median(cosines))}


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def render_index(result: dict[str, Any]) -> str:
    """Render the tables."""
    ours, peer, recall, bars = result["ours"], result["peer"], result["recall"], result["bars"]
    rows = [
        ("sections/s, this project", render_spread(ours["sections_per_s"], 0), ""),
        ("sections/s, Chroma's collection.add", render_spread(peer["sections_per_s"], 0), ""),
        ("ratio", render_spread(result["ratio"], 2), f">= {bars['ratio']:g}"),
        ("ratio by processor time", render_spread(result["cpu_ratio"], 2), ""),
        (
            "cosine of the two vectors, least (median)",
            f"{result['cosine']['min']:.5f} ({result['cosine']['median']:.5f})",
            f">= {bars['cosine']:g}",
        ),
    ]
    if recall["questions"]:
        rows += [
            ("of the peer's first ten passages kept", f"{recall['kept_frac']:.1%}", ""),
            ("gold page found, ours / peer", f"{recall['ours']:.1%} / {recall['peer']:.1%}", ""),
            ("points lost", f"{recall['lost_points']:.2f}", f"<= {bars['points']:g}"),
        ]
    titles = result["titles"]
    rows.append((f"{titles['titles']:,} titles", f"{titles['seconds']:.1f} s", f"<= {bars['titles_s']:g} s"))
    lines = [
        f"{result['sections']:,} sections of {result['mean_chars']:.0f} characters ({result['corpus']}), {result['embedder'].split('@')[0]}"
        f" in {'bfloat16' if result['embedder'].endswith('+bfloat16') else 'float32'}; median of {result['rounds']} (lowest to highest)",
        f"ours: {ours['encode_s']:.1f} s embedding, {ours['fill_s']:.1f} s storing; at most {result['peak_mb']:,.0f} MB of memory;"
        f" every build the same bits: {'yes' if result['same_bits'] else 'NO'}",
        render_machine(result["machine"]),
    ]
    return "\n".join([Table(("", "measured", "bar"), tuple(rows)).to_text(), *lines])
