"""BM25 over stems: what bm25s gives, mapped, for any query."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval.lexical import FILES, LexicalIndex, Stems, build_lexical

TEXTS = ["The rivers of Lisbon", "Lisbon", "Émile Café opened in 1920", "", "… — …", "東京 タワー", "running runs ran"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    directory = tmp_path_factory.mktemp("lexical")
    build_lexical(TEXTS, directory)
    return LexicalIndex(directory, len(TEXTS))


def test_words_meet_whatever_their_ending_case_and_accents():
    stems = Stems()
    assert stems("Rivers RIVER") == ["river", "river"]
    assert stems("Cafés cafe") == ["cafe", "cafe"]
    assert stems("the of 5 C") == ["5", "c"], "stop words go, numbers and letters stay"


def test_words_of_any_script_meet():
    stems = Stems()
    assert stems("東京の人") == ["東京", "京の", "の人", "東", "京", "人"], "words that nothing divides: pairs, and Chinese characters"
    assert stems("かがAPI 2か所") == ["かが", "api", "2", "か所", "所"] and stems("か") == ["か"] != stems("が")
    assert stems("서울은") == ["서울", "울은"], "the particle takes no part in the name"
    assert stems("ไทย") == ["ไท", "ทย"]
    assert stems("हिन्दी में") == ["हिन्दी", "में"], "vowel signs belong to their letters"
    assert stems("Ёлка كَتَبَ") == ["елка", "كتب"], "accents and points may be left out"
    assert stems("Straße STRASSE") == ["strass", "strass"]


@pytest.mark.parametrize("query, row", [("東京の人口は", 0), ("たこ焼き", 1), ("京都の寺", 2), ("寺", 2)])
def test_sentences_without_spaces_are_found_by_their_parts(tmp_path: Path, query: str, row: int):
    texts = ["東京の人口は約1400万人です。", "大阪の名物はたこ焼きです。", "京都には多くの寺があります。"]
    build_lexical(texts, tmp_path)
    scores = LexicalIndex(tmp_path, 3).scores(query)
    assert scores.argmax() == row and scores[row] == 1.0


@pytest.mark.parametrize("query, row", [("river", 0), ("lisbon", 1), ("emile", 2), ("1920", 2), ("東京", 5), ("runner runs", 6)])
def test_the_best_passage_scores_one(index: LexicalIndex, query: str, row: int):
    scores = index.scores(query)
    assert scores.argmax() == row and scores[row] == 1.0


@pytest.mark.parametrize("query", ["", "the of", "unheard", "🏰"])
def test_no_known_word_scores_nothing(index: LexicalIndex, query: str):
    assert not index.scores(query).any()


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_scored(index: LexicalIndex, query: str):
    scores = index.scores(query)
    assert scores.shape == (len(TEXTS),) and scores.min() >= 0 and scores.max() <= 1


def test_two_builds_have_the_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        build_lexical(TEXTS, tmp_path / name)
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in FILES)


def test_passages_without_words_are_no_obstacle(tmp_path: Path):
    build_lexical(["", "…"], tmp_path)
    assert np.array_equal(LexicalIndex(tmp_path, 2).scores("word"), [0, 0])


def test_a_damaged_index_is_refused(tmp_path: Path):
    build_lexical(TEXTS, tmp_path)
    with pytest.raises(IndexUnusableError, match="has 7 passages instead of 8"):
        LexicalIndex(tmp_path, 8)
    (tmp_path / FILES[0]).write_bytes(b"x")
    with pytest.raises(IndexUnusableError, match="cannot be read"):
        LexicalIndex(tmp_path, 7)


@pytest.mark.parametrize("before", ["", "import jax; "], ids=["not imported", "imported by another library"])
def test_jax_is_left_alone(tmp_path: Path, before: str):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("lax = None\n", encoding="utf-8")
    (tmp_path / "jax" / "lax.py").write_text("print('a GPU is taken')\ntop_k = max\n", encoding="utf-8")
    code = f"{before}from slmsearch.retrieval.lexical import _bm25s; _bm25s(); print('ready'); import jax.lax"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    said = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True).stdout
    assert said.split("\n")[:2] == ["ready", "a GPU is taken"], "bm25s does not compute with it; whoever wants it gets it"
