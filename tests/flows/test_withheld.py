"""Keys are filled in where this machine has them, and for no other address."""

import pytest
from pydantic import SecretStr

from flows.settings import recordable
from flows.withheld import with_own_keys
from slmsearch.config import RunConfig

HERE = "https://judge.example/v1"


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLMSEARCH_JUDGE__API_KEY", "k1")
    monkeypatch.setenv("SLMSEARCH_JUDGE__BASE_URL", HERE)
    monkeypatch.setenv("SLMSEARCH_RETRIEVAL__EMBEDDER__API_KEY", "k2")


def test_a_run_as_prefect_stores_it_gets_its_keys_back() -> None:
    sent = RunConfig.model_validate({"judge": {"base_url": HERE, "api_key": "k1"}, "retrieval": {"embedder": {"api_key": "k2"}}})
    stored = recordable(sent)
    assert "k1" not in str(stored) and "k2" not in str(stored)
    assert with_own_keys(RunConfig.model_validate(stored)) == sent


def test_a_key_is_sent_nowhere_else() -> None:
    other = RunConfig.model_validate({"judge": {"base_url": "https://evil.example/v1"}})
    assert with_own_keys(other).judge.api_key is None


def test_a_key_that_is_given_stays() -> None:
    given = RunConfig.model_validate({"judge": {"base_url": HERE, "api_key": "other"}})
    assert with_own_keys(given).judge.api_key == SecretStr("other")
