"""`slmsearch bench query`: what encoding one query costs, the former way beside the product's, and what that does to rankings.

The former way took every query in float32, in a batch of four rows filled up with repeats, on all threads of torch. Both ways take turns
in one process, over the same questions of the configured corpus. A round encodes `QUERIES` questions one by one and counts the median,
then `TOGETHER` different ones at once, which is what training does. Neither way remembers a query here. The library's own `encode` of
one query takes turns, too.

Pages are ranked twice in the product's index: `page_at_1` is the share of questions whose first page is a gold page, and its difference
what the product's way adds to the former one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from statistics import median
from typing import Any

import numpy as np

from slmsearch.bench.result import Result, Say, Spread, describe_machine, tabulate, take_turns
from slmsearch.config import RunConfig
from slmsearch.environments.indexed_corpus import open_indexed_corpus
from slmsearch.errors import ConfigError
from slmsearch.evaluate.retrieval import choose_questions
from slmsearch.retrieval.embed import Vectors
from slmsearch.retrieval.embedders import LocalEmbedder
from slmsearch.retrieval.search import open_index

QUERIES, TOGETHER, LIMIT = 20, 64, 1000
"""Questions that a round encodes one by one, at once, and that are ranked."""
ROWS, MULTIPLE = 4, 4
"""The former shape: rows, and what tokens were padded to a multiple of."""
COLUMNS = {"": "{side}", "one query, ms": "{one:.2f}", "64 queries, ms": "{many:.0f}", "page@1": "{page_at_1:.1%}"}
Encode = Callable[[Sequence[str]], Any]


class FormerEmbedder(LocalEmbedder):
    """Encodes queries as they were encoded before."""

    _former: Any = None

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        from slmsearch.retrieval.embed_passages import PassageEncoder

        if any(self._loaded().prompts.values()):
            return super()._encode_new_queries(texts)
        if self._former is None:
            self._former = PassageEncoder(self._loaded(), "float32")
        by_length, vectors = dict[int, list[int]](), np.empty((len(texts), self.dimension), dtype=np.float32)
        token_ids = self._former._tokenize(texts)
        for row, ids in enumerate(token_ids):
            by_length.setdefault(-(-len(ids) // MULTIPLE) * MULTIPLE, []).append(row)
        for length, same in by_length.items():
            for start in range(0, len(same), ROWS):
                rows = same[start : start + ROWS]
                vectors[rows] = self._former._forward([token_ids[row] for row in rows], ROWS, length)
        return vectors


def run_query(config: RunConfig, runs: int, say: Say) -> Result:
    """Measure both ways with the configured corpus, embedder and ranking.

    Raises:
        ConfigError: the embedder is an endpoint, or no question has a gold page.
        EmbedderError: the embedder is missing.
    """
    import torch

    if config.retrieval.embedder.base_url:
        raise ConfigError("retrieval.embedder.base_url names an endpoint, which encodes queries its own way; measure a local model")
    corpus = open_indexed_corpus(config)
    questions, _ = choose_questions([*chain.from_iterable(corpus.questions.values())], LIMIT, seed=0)
    if not questions:
        raise ConfigError("no question of the corpus names a gold page; give others with --corpus.questions")
    texts = [question.question for question in questions]
    embedders = {"before": FormerEmbedder(config.retrieval.embedder), "after": LocalEmbedder(config.retrieval.embedder)}
    found: dict[str, dict[str, Any]] = {}
    for side, embedder in embedders.items():
        say(f"{side}: ranks {len(texts)} questions")
        index = open_index(config.paths.index, corpus.index_key, config.retrieval, embedder)
        first = [[hit.page_id for hit in hits] for hits in index.search(texts, 1)]
        index.close()
        right = sum(pages[0] in question.page_ids for pages, question in zip(first, questions, strict=True) if pages)
        found[side] = {"page_at_1": right / len(texts), "first": first}
    model = embedders["after"]._loaded()
    encoders: dict[str, Encode] = {side: embedder._encode_new_queries for side, embedder in embedders.items()}
    encoders["library"] = partial(model.encode, normalize_embeddings=True, show_progress_bar=False)
    distinct = list(dict.fromkeys(texts))[:TOGETHER]
    rounds = take_turns({side: partial(_time, encode, distinct) for side, encode in encoders.items()}, runs)
    for side, times in rounds.items():
        one, many = (Spread([round(of[n], 3) for of in times]) for n in range(2))
        found.setdefault(side, {"page_at_1": None}).update(one=one, many=many)
    changed = sum(a != b for a, b in zip(*(found[side].pop("first") for side in embedders), strict=True))
    machine, difference = describe_machine("torch", "sentence-transformers"), found["after"]["page_at_1"] - found["before"]["page_at_1"]
    values = {
        "before_ms": found["before"]["one"]["median"],
        "after_ms": found["after"]["one"]["median"],
        "page_at_1_difference": round(difference, 5),
        "first_page_changed": changed,
        "questions": len(texts),
        "together": len(distinct),
        "precision": embedders["after"].precision,
        "threads": torch.get_num_threads(),
        "machine": asdict(machine),
    }
    note = f"{len(texts)} questions, the first page of {changed} changed; {values['precision']}, {values['threads']} threads"
    return Result({**values, **found}, (tabulate(COLUMNS, ({"side": side, **of} for side, of in found.items())),), (note, str(machine)))


def _time(encode: Encode, texts: Sequence[str]) -> tuple[float, float]:
    """Return milliseconds for one query, the median, and for all at once."""
    one = median(_elapsed(encode, [text]) for text in texts[:QUERIES])
    return one, _elapsed(encode, texts)


def _elapsed(encode: Encode, texts: Sequence[str]) -> float:
    start = time.perf_counter()
    encode(texts)
    return (time.perf_counter() - start) * 1000
