"""Names of policies, and what each is made of."""

import shutil
from pathlib import Path

import pytest
from pydantic import SecretStr

from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer
from slmsearch.environments.searcher.random_turns import random_turn
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ConfigError
from slmsearch.evaluate.policies import PolicySpec, describe_policy, parse_policy
from slmsearch.evaluate.run import make_policy_sampler
from slmsearch.judge import ExactJudge
from slmsearch.models.known import KNOWN
from slmsearch.sampling.openai_sampler import WHOLE
from tests.slmsearch.evaluate.corpus import make_toolbox

CONFIG = PolicyConfig(model="base@abc", adapter="adapters/a", dtype="bfloat16", api_key=SecretStr("secret"))


def test_the_configured_policy_with_and_without_its_adapter() -> None:
    trained, untrained = (
        parse_policy("trained", CONFIG, SearcherEnvironment.controls.baselines, "data"),
        parse_policy("untrained", CONFIG, SearcherEnvironment.controls.baselines, "data"),
    )
    assert trained.policy == CONFIG
    assert untrained.policy == CONFIG.model_copy(update={"adapter": None})
    assert (trained.name, untrained.name) == ("trained", "untrained")


def test_trained_without_adapter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.adapter"):
        parse_policy("trained", PolicyConfig(), SearcherEnvironment.controls.baselines, "data")


@pytest.mark.parametrize("name", ["random", "retrieve-then-answer"])
def test_baselines_have_no_model(name: str) -> None:
    spec = parse_policy(name, CONFIG, SearcherEnvironment.controls.baselines, "data")
    assert (spec.name, spec.policy) == (name, None)


def test_another_model_keeps_device_and_dtype_only() -> None:
    spec = parse_policy("Qwen/Qwen3-0.6B", CONFIG, SearcherEnvironment.controls.baselines, "data")
    assert spec.name == "Qwen3-0.6B"
    assert spec.policy == PolicyConfig(model="Qwen/Qwen3-0.6B", dtype="bfloat16")


def test_a_directory_with_an_adapter_is_an_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    spec = parse_policy(str(tmp_path), CONFIG, SearcherEnvironment.controls.baselines, "data")
    assert spec.policy == CONFIG.model_copy(update={"adapter": str(tmp_path)})


def test_an_adapter_of_a_known_model_is_found_by_name_and_put_on_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, adapter = next(iter(KNOWN)), tmp_path / "models" / "smollm2-135m-searcher"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{base}"}}')
    spec = parse_policy(adapter.name, CONFIG, SearcherEnvironment.controls.baselines, str(tmp_path))
    assert spec.name == adapter.name
    assert spec.policy == PolicyConfig(model=str(tmp_path / "models" / base), adapter=str(adapter), dtype="bfloat16")
    copy = shutil.copytree(adapter, tmp_path / "copy")
    named, by_path = (
        describe_policy(parse_policy(name, CONFIG, SearcherEnvironment.controls.baselines, str(tmp_path)), RunConfig().evaluate)
        for name in (adapter.name, str(copy))
    )
    assert named == by_path, "keys are by content"


def test_served_models() -> None:
    spec = parse_policy("openai:qwen2.5:7b@http://localhost:11434/v1", CONFIG, SearcherEnvironment.controls.baselines, "data")
    assert spec.name == "qwen2.5:7b"
    assert spec.policy is not None
    assert (spec.policy.model, spec.policy.base_url, spec.policy.adapter) == ("qwen2.5:7b", "http://localhost:11434/v1", None)


def test_a_key_goes_only_to_its_own_address() -> None:
    mine = CONFIG.model_copy(update={"base_url": "http://mine/v1"})
    other, same = (
        parse_policy("openai:m@http://other/v1", mine, SearcherEnvironment.controls.baselines, "data").policy,
        parse_policy("openai:m@http://mine/v1", mine, SearcherEnvironment.controls.baselines, "data").policy,
    )
    assert other is not None
    assert same is not None
    assert (other.api_key, same.api_key) == (None, CONFIG.api_key)
    local = parse_policy("some/model", mine, SearcherEnvironment.controls.baselines, "data").policy
    assert local is not None
    assert (local.api_key, local.base_url) == (None, None)


@pytest.mark.parametrize("spec", ["", "  ", "openai:", "openai:model", "openai:@http://x", "openai:model@localhost:1"])
def test_malformed_names_are_a_config_error(spec: str) -> None:
    with pytest.raises(ConfigError):
        parse_policy(spec, CONFIG, SearcherEnvironment.controls.baselines, "data")


def test_descriptions_follow_content_not_names(tmp_path: Path) -> None:
    for name, weights in (("one", b"same"), ("copy", b"same"), ("other", b"else")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(weights)
    one, copy, other = (
        describe_policy(parse_policy(str(tmp_path / name), CONFIG, SearcherEnvironment.controls.baselines, "data"), RunConfig().evaluate)
        for name in ("one", "copy", "other")
    )
    assert one == copy != other
    served = describe_policy(
        parse_policy("openai:m@http://x/v1", CONFIG, SearcherEnvironment.controls.baselines, "data"), RunConfig().evaluate
    )
    assert "secret" not in str(served)
    assert served["sampling"] == {"top_p": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}, "other draws, another key"


def test_writers_of_baselines() -> None:
    environment = SearcherEnvironment(RunConfig()).with_tools(make_toolbox(), ExactJudge())
    random = make_policy_sampler(parse_policy("random", CONFIG, SearcherEnvironment.controls.baselines, "data"), environment, [])
    assert type(random) is ScriptedSampler
    assert (random._script.func, random._script.keywords) == (random_turn, {"seed": RunConfig().evaluate.seed})  # type: ignore[attr-defined]
    retrieve = make_policy_sampler(
        parse_policy("retrieve-then-answer", CONFIG, SearcherEnvironment.controls.baselines, "data"), environment, []
    )
    assert type(retrieve) is ScriptedSampler
    assert isinstance(retrieve._script, RetrieveThenAnswer)


def test_a_served_policy_is_described_without_the_password_in_its_address() -> None:
    spec = PolicySpec("m", PolicyConfig(model="m", base_url="http://user:secret@x/v1"))
    assert describe_policy(spec, RunConfig().evaluate) == {"served": "m", "base_url": "http://x/v1", "sampling": WHOLE}
