"""`slmsearch bench index`: building an index beside what Chroma's users do, `collection.add` with its sentence-transformers function.

Both sides embed the very same texts with the same weights on the same processor and fill a new collection on disk, in turns and
with models loaded. The peer has its texts in the largest batches Chroma takes, so that it, too, sorts them by length, and Chroma's own
settings; it keeps the texts in a full-text index. Ours is what `slmsearch index build` does: the embedder's `encode`, then the
collection and its metadata, then the lexical index.

A bare title is no section and is not counted as one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from slmsearch.bench.result import Say, describe_machine, render_machine, render_spread, render_table, summarize
from slmsearch.config import RetrievalConfig, RunConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.sources import load_source
from slmsearch.errors import CorpusError, EmbedderError
from slmsearch.retrieval.chroma import fill_collection
from slmsearch.retrieval.embed import Embedder, Vectors
from slmsearch.retrieval.embed_local import find_model
from slmsearch.retrieval.embedders import load_embedder
from slmsearch.retrieval.lexical import build_lexical
from slmsearch.retrieval.passages import Passage, make_passages
from slmsearch.retrieval.vectors import vector_keys

PEER_BATCH = 5_000
"""Chroma takes 5,461 at most."""
BARS = {"ratio": 3.0, "cosine": 0.99}


@dataclass(frozen=True, slots=True)
class Built:
    """One timed build."""

    seconds: float
    encode_s: float
    """Of `seconds`; 0 where it cannot be told apart."""
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
    passages = choose_passages(config, sections)
    texts = [passage.text for passage in passages]
    embedder = load_embedder(config.retrieval.embedder)
    say(f"{len(texts)} sections, {embedder.id}; warming up")
    build_ours(embedder, passages, config.retrieval)
    peer = make_peer(config.retrieval)
    build_peer(peer, texts[:PEER_BATCH])
    ours, theirs = [], []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            if side:
                theirs.append(build_peer(peer, texts))
            else:
                ours.append(build_ours(embedder, passages, config.retrieval))
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
        "same_bits": all(np.array_equal(ours[0].vectors, built.vectors) for built in ours),
        "cosine": _cosines(ours[0].vectors, theirs[0].vectors),
        "bars": BARS,
    }


def choose_passages(config: RunConfig, sections: int) -> list[Passage]:
    """Take pages, evenly spread, until there are enough sections."""
    pages = make_passages(Library(load_source(config.corpus)[0]), config.retrieval.max_passage_chars)
    found = [list(group)[1:] for _, group in groupby(pages, key=lambda passage: passage.page_id)]  # the first is the bare title
    total = sum(map(len, found))
    if not total:
        raise CorpusError("the corpus has no sections to be indexed; name another with --corpus.pages, or leave it out")
    return [passage for passages in found[:: max(1, total // sections)] for passage in passages][:sections]


def build_ours(embedder: Embedder, passages: Sequence[Passage], config: RetrievalConfig) -> Built:
    """Embed and store as `build_index` does."""
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        started = time.perf_counter()
        vectors = embedder.encode([passage.text for passage in passages])
        encoded = time.perf_counter()
        fill_collection(Path(directory) / "chroma", vector_keys(vectors), vectors)
        build_lexical((passage.text for passage in passages), Path(directory) / "lexical")
        return Built(time.perf_counter() - started, encoded - started, vectors)


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
            started = time.perf_counter()
            collection = client.create_collection("peer", embedding_function=function)
            for start in range(0, len(texts), PEER_BATCH):
                batch = list(texts[start : start + PEER_BATCH])
                collection.add(ids=[str(start + row) for row in range(len(batch))], documents=batch)
            seconds = time.perf_counter() - started
            stored = collection.get(include=["embeddings"])
        finally:
            client.close()
    order = np.argsort(np.array(stored["ids"], dtype=np.int64))
    return Built(seconds, 0.0, np.asarray(stored["embeddings"], dtype=np.float32)[order])


def _rates(builds: Sequence[Built], count: int) -> dict[str, Any]:
    encode = [built.encode_s for built in builds if built.encode_s]
    parts = {"encode_s": median(encode), "fill_s": median(built.seconds - built.encode_s for built in builds)} if encode else {}
    return {"sections_per_s": summarize([count / built.seconds for built in builds]), **parts}


def _cosines(ours: Vectors, theirs: Vectors) -> dict[str, float]:
    cosines = np.vecdot(ours, theirs / np.linalg.norm(theirs, axis=1, keepdims=True))
    return {"min": float(cosines.min()), "median": float(np.median(cosines))}


def render_index(result: dict[str, Any]) -> str:
    """Render the table."""
    ours, cosine, bars = result["ours"], result["cosine"], result["bars"]
    rows = [
        ("sections/s, this project", render_spread(ours["sections_per_s"], 0), ""),
        ("sections/s, Chroma's collection.add", render_spread(result["peer"]["sections_per_s"], 0), ""),
        ("ratio", render_spread(result["ratio"], 2), f">= {bars['ratio']:g}"),
        ("cosine of the two vectors, least (median)", f"{cosine['min']:.5f} ({cosine['median']:.5f})", f">= {bars['cosine']:g}"),
    ]
    name, precision = result["embedder"].split("@")[0], "bfloat16" if result["embedder"].endswith("+bfloat16") else "float32"
    lines = [
        f"{result['sections']:,} sections of {result['mean_chars']:.0f} characters ({result['corpus']}), {name} in {precision}; "
        f"median of {result['rounds']} (lowest to highest)",
        f"ours: {ours['encode_s']:.1f} s embedding, {ours['fill_s']:.1f} s storing; "
        f"every build the same bits: {'yes' if result['same_bits'] else 'NO'}",
        render_machine(result["machine"]),
    ]
    return "\n".join([render_table(("", "measured", "bar"), rows), *lines])
