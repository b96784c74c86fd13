"""Commands that look after index versions, in this process."""

import json
import os
from pathlib import Path

import pytest

from tests.flows.fakes import write_corpus
from tests.flows.test_commands import Invoke, flags, invoke

__all__ = ["invoke"]


@pytest.fixture
def two(invoke: Invoke, tmp_path: Path) -> list[str]:
    """Keys of two versions, the second current."""
    corpus = write_corpus(tmp_path)
    keys = []
    for limit in ("20", "0"):
        code, out, err = invoke("index", "build", "--json", *flags(corpus), "--corpus.limit_pages", limit)
        assert code == 0, err
        keys.append(json.loads(out)["key"])
    return keys


def test_versions_are_verified_rolled_back_and_removed(invoke: Invoke, two: list[str]) -> None:
    code, out, _ = invoke("index", "verify", "--all")
    assert code == 0 and out.count("ok ") == 2
    code, out, _ = invoke("index", "rollback", "--json")
    assert (code, json.loads(out)) == (0, {"before": two[1], "current": two[0]})
    code, out, _ = invoke("housekeeping", "--apply", "--older-than", "0", "--json")
    assert {item["key"] for item in json.loads(out)["items"] if item["kind"] == "indexes"} == {two[1]}
    code, out, err = invoke("index", "rollback")
    assert code != 0 and "no earlier index version is left" in err
    code, out, _ = invoke("index", "list")
    assert two[1] not in out


def test_a_damaged_version_fails_verification(invoke: Invoke, two: list[str]) -> None:
    vectors = Path(os.environ["SLMSEARCH_PATHS__DATA_DIR"]) / "index" / two[1] / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"\1")
    code, out, _ = invoke("index", "verify")
    assert code == 1 and "damaged" in out
    code, out, _ = invoke("index", "verify", two[0])
    assert code == 0


def test_versions_are_pushed_and_pulled(invoke: Invoke, two: list[str], tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    code, out, _ = invoke("index", "push", shared, two[0])
    assert code == 0 and "copied to" in out
    code, out, _ = invoke("index", "pull", shared, two[0])
    assert code == 0 and out.startswith(f"{two[0]} was here already")
    code, _, err = invoke("index", "pull", shared, "0123456789abcdef0123")
    assert code != 0 and "holds no complete 0123456789abcdef0123" in err


def test_the_report_measures_all_three(invoke: Invoke, tmp_path: Path) -> None:
    corpus = flags(write_corpus(tmp_path))
    code, out, err = invoke("retrieval-report", "--json", "--limit", "12", *corpus)
    assert code == 0, err
    result = json.loads(out)
    assert result["n"] == 12 and list(result["retrievers"]) == ["lexical", "dense", "hybrid"]
    assert all(0 <= of[name] <= 1 for of in result["retrievers"].values() for name in ("page_at_1", "page_at_5", "section_at_5", "mrr"))
    shown = result["first_search"]
    assert (shown["top_k"], list(shown["forms"])) == (3, ["titles", "sections", "text"])
    assert shown["forms"]["titles"]["answer_shown"] == 0.0, "a title holds no year"
    assert shown["forms"]["text"]["answer_shown"] == shown["forms"]["text"]["all_text_shown"] > 0.5
    code, out, _ = invoke("retrieval-report", "--split", "test", *corpus)
    assert code == 0 and "hybrid" in out
    code, _, err = invoke("retrieval-report", *corpus[:2])
    assert code != 0 and "no question of this corpus has an answer and names its page" in err


def test_only_pages_of_a_folder_are_searched(invoke: Invoke, two: list[str]) -> None:
    code, out, _ = invoke("search", "TownC2", "--within", "p1", "--json", "--top-k", "5")
    assert code == 0 and all(hit["page_id"].startswith("p1") for hit in json.loads(out)["hits"])
    code, out, _ = invoke("search", "TownC2", "--ranking", "lexical", "--json")
    assert json.loads(out)["hits"][0]["page_id"] == "p2"
