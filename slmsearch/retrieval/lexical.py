"""Lexical ranking: BM25 (bm25s) over stemmed words (PyStemmer), with each passage as a document.

Scores are those of Lucene's BM25 with its usual constants; none is fitted to a corpus. Words are lower-cased, accents and English stop
words are removed, and the rest is stemmed as English; words of other languages mostly stay unchanged. In scripts without spaces and Korean,
each two neighbouring characters count as a word, and each Chinese character.
"""

import logging
import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slmsearch.corpus.scripts import ACCENTS, GLUED, MARKS
from slmsearch.errors import IndexUnusableError

LEXICAL_VERSION = 2
"""Version of the ranking, part of the index key: raise it if the scores of the same passages change."""
K1, B = 1.2, 0.75
FILES = ("data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy", "vocab.index.json", "params.index.json")
"""Files that bm25s writes, in the order in which they are hashed."""
NOTHING = ""
"""Text of a passage without words, so that none is empty; no query contains it."""
_ACCENTS, _GLUED, _WORD = re.compile(f"[{ACCENTS}]+"), re.compile(f"[{GLUED}]+"), re.compile(rf"[\w{MARKS}]+")


class Stems:
    """Stemmer of texts; serves any number of threads."""

    def __init__(self) -> None:
        import Stemmer
        from bm25s.stopwords import STOPWORDS_EN

        self._stemmer = Stemmer.Stemmer("english")
        self._stop_words = frozenset(STOPWORDS_EN)
        self._lock = threading.Lock()  # the stemmer keeps a cache

    def __call__(self, text: str) -> list[str]:
        """Return the stems of a text in order."""
        text = text.casefold()
        if not text.isascii():
            text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
            text = _GLUED.sub(_divided, text)
        words = [word for word in _WORD.findall(text) if word not in self._stop_words]
        with self._lock:
            return list(self._stemmer.stemWords(words))


def _divided(run: re.Match[str]) -> str:
    """Return a run of characters as words between spaces."""
    words = [*map("".join, pairwise(run[0])), *(char for char in run[0] if "\u3400" <= char < "\ua000")]
    return f" {' '.join(words) or run[0]} "


def _bm25s() -> Any:
    if "bm25s" in sys.modules:
        import bm25s
    else:
        # If JAX is installed, bm25s runs it on import, and JAX takes three quarters of a GPU. `datasets` may have imported and not run it.
        before = sys.modules.get("jax")
        sys.modules["jax"] = None  # type: ignore[assignment]
        try:
            import bm25s
        finally:
            if before is None:
                del sys.modules["jax"]
            else:
                sys.modules["jax"] = before
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG for itself
    return bm25s


def build_lexical(texts: Iterable[str], directory: Path) -> None:
    """Write the lexical index of passages, one row each."""
    stems = Stems()
    vocabulary: dict[str, int] = {NOTHING: 0}
    rows = [[vocabulary.setdefault(stem, len(vocabulary)) for stem in stems(text)] or [0] for text in texts]
    scorer = _bm25s().BM25(k1=K1, b=B, method="lucene")
    scorer.index((rows, vocabulary), show_progress=False)
    scorer.save(directory, show_progress=False)


class LexicalIndex:
    """Open lexical index; its arrays are memory-mapped."""

    def __init__(self, directory: Path, passages: int) -> None:
        """Open the index.

        Raises:
            IndexUnusableError: the index cannot be read, or belongs to other passages.
        """
        try:
            self._scorer: Any = _bm25s().BM25.load(directory, mmap=True, show_progress=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexUnusableError(
                f"the lexical index in {directory} cannot be read ({error}); delete the version and build it"
            ) from error
        scores = self._scorer.scores
        if scores["num_docs"] != passages:
            raise IndexUnusableError(
                f"the lexical index in {directory} has {scores['num_docs']} passages instead of {passages}; build again"
            )
        # Plain views of the mapped files: slicing a memmap costs more than the work on a slice.
        self._scorer.scores = {name: np.asarray(value) if isinstance(value, np.ndarray) else value for name, value in scores.items()}
        self._passages = passages
        self._stems = Stems()

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return each passage's BM25 score divided by the best one's, in [0, 1]; all 0 if no word of the query occurs."""
        ids: Sequence[int] = self._scorer.get_tokens_ids(self._stems(query))
        if not len(ids):
            return np.zeros(self._passages, dtype=np.float32)
        scores: NDArray[np.float32] = self._scorer.get_scores_from_ids(ids)
        best = scores.max(initial=0)
        return scores / best if best > 0 else scores
