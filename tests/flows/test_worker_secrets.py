"""Secrets are filled in where this machine has them, and for no other address."""

import json
import re
from typing import Any

import pytest
from fastapi.encoders import jsonable_encoder
from pydantic import SecretStr

from flows.runtime.settings import load_config, recordable, secret_settings
from flows.runtime.worker_secrets import ALL_BUT_TRACKING, submitted, with_own_secrets
from slmsearch.config import RunConfig
from slmsearch.config.secrets import MASK
from slmsearch.errors import ConfigError
from slmsearch.training.job import TrainJob, make_job

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
    assert with_own_secrets(RunConfig.model_validate(stored)) == sent


def test_a_key_is_sent_nowhere_else() -> None:
    other = RunConfig.model_validate({"judge": {"base_url": "https://evil.example/v1"}})
    assert with_own_secrets(other).judge.api_key is None


def test_a_key_that_is_given_stays() -> None:
    given = RunConfig.model_validate({"judge": {"base_url": HERE, "api_key": "other"}})
    assert with_own_secrets(given).judge.api_key == SecretStr("other")


MARKER = "PLANTEDSECRET"
PLACES = {"judge.api_key": "judge.base_url", "policy.api_key": "policy.base_url", "planner.worker.api_key": "planner.worker.base_url",
          "retrieval.embedder.api_key": "retrieval.embedder.base_url", "retrieval.chroma_token": "retrieval.chroma_url",
          "sandbox.token": "sandbox.base_url"}  # fmt: skip
"""Keys, and where each is sent."""
CHOSEN = {"judge.": ["--judge.kind=openai"],
          "planner.": ["--environment=planner", "--planner.worker.kind=openai"], "sandbox.": ["--searcher.programs=true"]}  # fmt: skip
"""Beginnings of settings, and what a configuration says that reads them."""
ADDRESSES = ("tracking.uri", *PLACES.values())


def settings(name: str, password: str = MARKER) -> dict[str, str]:
    """Return the settings in which one secret is given."""
    if name in ADDRESSES:
        return {name: f"http://user:{password}@host.example/v1"}
    return {name: password, **({PLACES[name]: "http://host.example/v1"} if name in PLACES else {})}


def given(name: str, password: str = MARKER) -> RunConfig:
    return load_config(overrides=[f"--{dotted}={value}" for dotted, value in settings(name, password).items()], environment={})


def used(name: str, **more: str) -> RunConfig:
    """Return a configuration that reads what is given in it."""
    flags = [flag for beginning, flags in CHOSEN.items() if name.startswith(beginning) for flag in flags]
    return load_config(overrides=[*flags, *(f"--{dotted}={value}" for dotted, value in (settings(name) | more).items())], environment={})


def set_here(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("SLMSEARCH_" + name.upper().replace(".", "__"), value)


def leaf(config: RunConfig, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value.get_secret_value() if isinstance(value, SecretStr) else value


@pytest.mark.parametrize("name", [*sorted(secret_settings()), *ADDRESSES])
def test_a_worker_gets_every_secret_that_was_withheld_or_refuses(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    sent = used(name)
    stored = json.loads(json.dumps(submitted(sent)))
    assert MARKER not in str(stored) and MASK in str(stored), "it is withheld, and that it was is said"
    received = RunConfig.model_validate(stored)
    with pytest.raises(ConfigError, match=re.escape(name)):
        with_own_secrets(received)
    for dotted, value in settings(name).items():
        set_here(monkeypatch, dotted, value)
    assert leaf(with_own_secrets(received), name) == leaf(sent, name)


@pytest.mark.parametrize("name", [name for name in (*sorted(secret_settings()), *ADDRESSES) if name.startswith(tuple(CHOSEN))])
def test_a_worker_runs_without_a_secret_that_nothing_in_the_run_reads(name: str) -> None:
    received = RunConfig.model_validate(json.loads(json.dumps(submitted(given(name)))))
    filled = with_own_secrets(received)
    assert leaf(filled, name) == ("http://host.example/v1" if name in ADDRESSES else None)


@pytest.mark.parametrize("key", [f"https://host.example/{MARKER}", f"https://user:{MARKER}@host.example/{MARKER}"])
def test_a_key_that_is_an_address_is_withheld_as_a_whole(key: str) -> None:
    assert submitted(given("nightly.webhook", key))["nightly"] == {"webhook": MASK}


@pytest.mark.parametrize("name", sorted(PLACES))
def test_no_key_is_sent_to_another_address(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for dotted, value in settings(name).items():
        set_here(monkeypatch, dotted, value)
    elsewhere = load_config(overrides=[f"--{PLACES[name]}=http://evil.example/v1"], environment={})
    assert leaf(with_own_secrets(elsewhere), name) is None
    with pytest.raises(ConfigError, match="this machine has none for the same address"):
        with_own_secrets(RunConfig.model_validate(submitted(used(name, **{PLACES[name]: "http://evil.example/v1", name: "x"}))))


def test_a_key_without_an_address_does_not_go_where_the_name_of_a_policy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    set_here(monkeypatch, "policy.api_key", MARKER)
    stored = RunConfig.model_validate({"evaluate": {"policy": "openai:m@http://evil.example/v1"}})
    assert with_own_secrets(stored).policy.api_key is None


def test_a_flow_does_not_ask_for_what_it_does_not_read() -> None:
    stored = RunConfig.model_validate(submitted(given("judge.api_key")))
    assert with_own_secrets(stored, ALL_BUT_TRACKING).judge.api_key is None


@pytest.mark.parametrize("name", [*sorted(secret_settings()), *ADDRESSES])
def test_no_secret_is_written_as_json(name: str) -> None:
    """As Prefect stores the parameter of a flow that is called here, and as keys and manifests hold sections."""
    config = given(name)
    assert MARKER not in json.dumps(jsonable_encoder(config))
    assert MARKER not in config.model_dump_json()


@pytest.mark.parametrize("name", [*sorted(secret_settings()), *ADDRESSES])
def test_a_training_process_gets_every_secret_apart_from_its_job(name: str) -> None:
    from slmsearch.config.secrets import split_secrets

    config = given(name)
    job = make_job(config, "c", "i")
    assert MARKER not in job.to_json()
    assert TrainJob.from_json(job.to_json(), split_secrets(config)[1]).config == config


@pytest.mark.parametrize("name", ["judge.base_url", "planner.worker.base_url"])
def test_no_key_of_content_depends_on_a_password(name: str) -> None:
    """A key that did would be another on a machine with another password, and a way to guess it."""
    from slmsearch.training.job import train_sources

    for environment in ("searcher", "planner"):
        ones = [
            train_sources(
                RunConfig.model_validate(
                    {
                        **config.model_dump(),
                        "environment": environment,
                        "judge": {**config.judge.model_dump(), "kind": "openai"},
                        "planner": {**config.planner.model_dump(), "worker": {**config.planner.worker.model_dump(), "kind": "openai"}},
                    }
                ),
                "c",
                "i",
            )
            for config in (given(name, "one"), given(name, "two"))
        ]
        assert ones[0] == ones[1]
