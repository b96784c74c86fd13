"""The benchmark of encoding a query, on a small generated world."""

import pytest

from slmsearch.bench import query
from slmsearch.config import CorpusConfig, EmbedderConfig, PathsConfig, RetrievalConfig, RunConfig, WorldConfig
from slmsearch.errors import ConfigError


def test_both_ways_rank_the_same_questions(tmp_path, monkeypatch):
    monkeypatch.setattr(query, "LIMIT", 12)
    config = RunConfig(
        paths=PathsConfig(data_dir=str(tmp_path)),
        corpus=CorpusConfig(world=WorldConfig(pages=40)),
        retrieval=RetrievalConfig(embedder=EmbedderConfig(device="cpu")),
    )
    said = []
    found = query.run_query(config, 2, said.append)
    values = found.values
    assert said == ["before: ranks 12 questions", "after: ranks 12 questions"]
    assert (values["questions"], values["together"]) == (12, 12)
    assert values["before"]["page_at_1"] > 0.5 and abs(values["page_at_1_difference"]) < 0.1
    assert 0 < values["after_ms"] == values["after"]["one"]["median"] and values["before_ms"] > 0
    assert "| library |" in found.render() and "12 questions" in found.render()


def test_an_endpoint_is_not_measured():
    config = RunConfig(retrieval=RetrievalConfig(embedder=EmbedderConfig(base_url="http://127.0.0.1:1")))
    with pytest.raises(ConfigError, match="endpoint"):
        query.run_query(config, 1, print)
