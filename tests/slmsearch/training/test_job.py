"""Keys change with what decides the result and with nothing else; secrets do not reach the disk."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from slmsearch.config import EmbedderConfig, JudgeConfig, PolicyConfig, RetrievalConfig, RunConfig
from slmsearch.config.secrets import split_secrets
from slmsearch.environments.searcher.searcher_environment import SearcherTeaching
from slmsearch.models.hashes import model_hash
from slmsearch.training.job import TrainJob, control_key, make_job, start_key, train_key


@pytest.fixture
def config(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "config.json").write_text("{}")
    return RunConfig(policy=PolicyConfig(model=str(model)))


def changed(config, section, **values):
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("train", {"seed": 1}),
        ("train", {"learning_rate": 2e-3}),
        ("reward", {"call_cost": 0.03}),
        ("searcher", {"max_turns": 3}),
        ("searcher", {"system_prompt": "Search."}),
        ("retrieval", {"top_k": 9}),
        ("judge", {"kind": "ollama"}),
        ("policy", {"dtype": "bfloat16"}),
        ("train", {"checkpoint_steps": 7}),  # where held-out questions are scored, and the best weights chosen
    ],
)
def test_what_decides_the_result_is_in_the_key(config, section, values):
    assert train_key(changed(config, section, **values), "d", "i") != train_key(config, "d", "i")


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("train", {"preflight": "record"}),
        (
            "judge",
            {"timeout_s": 1.0, "model": "never asked by the exact judge", "loaded": "after", "require_qualified": False},
        ),
        ("evaluate", {"limit": 3}),
        ("policy", {"api_key": SecretStr("k")}),
    ],
)
def test_what_does_not_is_not(config, section, values):
    assert train_key(changed(config, section, **values), "d", "i") == train_key(config, "d", "i")


def test_without_held_out_questions_checkpoints_decide_nothing(config):
    unwatched = config.changed({"train.monitor.held_out": 0})
    assert train_key(unwatched.changed({"train.checkpoint_steps": 7}), "d", "i") == train_key(unwatched, "d", "i")


@pytest.mark.parametrize("setting", [{"policy.dtype": "bfloat16"}, {"policy.load_in_4bit": True}])
def test_supervised_adapters_are_named_by_the_numbers_of_their_base(config, setting, monkeypatch):
    monkeypatch.setattr(SearcherTeaching, "start_parts", lambda teaching, digest: {})  # those need a corpus
    other = config.changed(setting)
    for lora in (True, False):
        one, two = (each.changed({"sft.lora": lora}) for each in (config, other))
        assert (start_key(one, "d") == start_key(two, "d")) is not lora
        assert (control_key(one, "m", "t") == control_key(two, "m", "t")) is not lora


@pytest.mark.parametrize(
    "setting",
    [
        {"policy.chat_template_kwargs": {"enable_thinking": False}},
        *({f"searcher.{name}": value} for name, value in (("tool_role", "user"), ("max_turn_tokens", 77), ("missing_names", False))),
    ],
)
def test_a_control_is_named_by_what_its_examples_are_written_with(config, setting):
    steps = config.changed({"control.steps": 5, "sft.start": "none"})
    assert control_key(steps.changed(setting), "m", "t") != control_key(steps, "m", "t")


def test_a_control_that_goes_on_with_an_adapter_is_named_by_it(config, tmp_path):
    steps, keys = config.changed({"control.steps": 5, "sft.start": "none"}), set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_model.safetensors").write_text(name)
        keys.add(control_key(steps.changed({"policy.adapter": str(tmp_path / name)}), "m", "t"))
    assert len({*keys, control_key(steps, "m", "t")}) == 3


def test_data_index_and_weights_are_in_the_key(config):
    keys = {train_key(config, "d", "i"), train_key(config, "e", "i"), train_key(config, "d", "j")}
    (Path(config.policy.model) / "README.md").write_text("notes do not count")
    assert train_key(config, "d", "i") in keys
    (Path(config.policy.model) / "model.safetensors").write_bytes(b"other weights")
    keys.add(train_key(config, "d", "i"))
    assert len(keys) == 4


def test_a_hub_id_is_named_by_its_commit():
    assert model_hash("owner/no-such-model@abc") == model_hash("owner/no-such-model@abc") != model_hash("owner/no-such-model@abd")
    assert model_hash("a/path/that/is/missing") != model_hash("owner/no-such-model")


def test_the_first_download_of_a_model_does_not_rename_it(tmp_path, monkeypatch):
    """What is waiting for a job under its key, and what was measured under it, must be found after the download, too."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    fetched = []

    def fetch(model, name):
        directory = tmp_path / f"models--{model.replace('/', '--')}"
        settings = directory / "snapshots" / "abc" / name
        settings.parent.mkdir(parents=True)
        settings.write_text("{}")
        (directory / "refs").mkdir()
        (directory / "refs" / "main").write_text("abc")
        fetched.append(name)
        return str(settings)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    before = model_hash("owner/to-be-fetched")
    if not fetched:  # loading it would
        fetch("owner/to-be-fetched", "config.json")
    assert before == model_hash("owner/to-be-fetched") == model_hash("owner/to-be-fetched@abc")
    assert fetched == ["config.json"]
    for commit in ("one", "two"):  # an adapter's repository holds no config.json
        cached = tmp_path / "models--owner--adapter" / "snapshots" / commit / "adapter_config.json"
        cached.parent.mkdir(parents=True)
        cached.write_text("{}")
    (tmp_path / "models--owner--adapter" / "refs").mkdir()
    named = []
    for commit in ("one", "two"):
        (tmp_path / "models--owner--adapter" / "refs" / "main").write_text(commit)
        named.append(model_hash("owner/adapter"))
    assert named == [model_hash("owner/adapter@one"), model_hash("owner/adapter@two")]


def test_a_job_survives_the_disk_without_its_secrets(config, tmp_path):
    judge = JudgeConfig(kind="openai", api_key=SecretStr("judge-key"))
    retrieval = RetrievalConfig(embedder=EmbedderConfig(api_key=SecretStr("embedder-key")))
    config = config.model_copy(update={"judge": judge, "retrieval": retrieval})
    job = make_job(changed(config, "paths", data_dir=str(tmp_path)), "digest", "index")
    assert job.directory == tmp_path / "training" / job.train_key
    text = job.to_json()
    assert "judge-key" not in text and "embedder-key" not in text and "***" not in text
    _, secrets = split_secrets(job.config)
    assert secrets == {"judge.api_key": "judge-key", "retrieval.embedder.api_key": "embedder-key"}
    assert TrainJob.from_json(text, secrets) == job
    assert TrainJob.from_json(text).config.judge.api_key is None
