"""Every command that takes a model, on every model of the zoo: real shapes, real tokenizers, real templates.

The weights are random, so nothing is right; what is looked at is that the command goes through, and that what learns has changed.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from slmsearch.evaluate.store import load_rows
from slmsearch.processes.ports import free_port
from tests.zoo.conftest import Slmsearch, Zoo
from tests.zoo.models import MAX_BYTES

pytestmark = [pytest.mark.zoo, pytest.mark.slow, pytest.mark.timeout(600)]

PLAY = {"searcher__max_turn_tokens": 8, "searcher__max_turns": 2, "searcher__max_episode_tokens": 64, "evaluate__limit": 2}
LEARN = {
    **PLAY,
    "train__steps": 2,
    "train__questions_per_step": 2,
    "train__group_size": 2,
    "train__checkpoint_steps": 1,
    "train__preflight": "record",
    "train__monitor__held_out": 0,
    "train__cpu_threads": 1,
    "reward__kind": "random",
}
"""Chance as the reward: random weights earn nothing else that differs within a group."""


def answer(slmsearch: Slmsearch, *arguments: object) -> dict[str, Any]:
    code, out, err = slmsearch(*arguments, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert isinstance(result, dict)
    return result


def trained(slmsearch: Slmsearch, zoo: Zoo, **settings: object) -> Path:
    return Path(answer(slmsearch, "train", *zoo.flags(**{**LEARN, **settings}))["adapter"])


def rows(zoo: Zoo, result: dict[str, Any]) -> list[Any]:
    return list(load_rows(zoo.folder / "data" / "evals" / result["key"]))


def weights(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(path)


@pytest.fixture
def adapter(zoo: Zoo, slmsearch: Slmsearch) -> Path:
    """The adapter that `train` makes; trained once, looked up after that."""
    return trained(slmsearch, zoo)


def test_a_model_is_small_and_has_its_shape(zoo: Zoo) -> None:
    assert sum(file.stat().st_size for file in zoo.model.rglob("*.safetensors")) <= MAX_BYTES
    config = json.loads((zoo.model / "config.json").read_text())
    assert config["num_key_value_heads"] < config["num_attention_heads"]


def test_evaluate(zoo: Zoo, slmsearch: Slmsearch) -> None:
    assert len(rows(zoo, answer(slmsearch, "evaluate", *zoo.flags(**PLAY)))) == 2


def test_sft(zoo: Zoo, slmsearch: Slmsearch) -> None:
    out = zoo.folder / "taught"
    settings = {"sft__steps": 2, "sft__tokens_per_batch": 1024}
    answer(slmsearch, "sft", "--out", out, *zoo.flags(**settings, searcher__max_episode_tokens=1024))
    assert (out / "model.safetensors").is_file()


def test_train_lora(adapter: Path) -> None:
    found = weights(adapter / "adapter_model.safetensors")
    assert any(bool(value.any()) for name, value in found.items() if "lora_B" in name), "it learnt something"
    assert all(bool(value.isfinite().all()) for value in found.values())


def test_resume(zoo: Zoo, slmsearch: Slmsearch, adapter: Path) -> None:
    """As a kill after the first checkpoint leaves it; the same command ends with the same bytes."""
    whole = (adapter / "adapter_model.safetensors").read_bytes()
    training = adapter.parent
    shutil.rmtree(adapter)
    shutil.rmtree(training / "checkpoints" / "checkpoint-2")
    (training / "manifest.json").unlink()
    assert trained(slmsearch, zoo) == adapter
    assert (adapter / "adapter_model.safetensors").read_bytes() == whole


def test_train_full(zoo: Zoo, slmsearch: Slmsearch) -> None:
    model = trained(slmsearch, zoo, train__method="full", train__learning_rate=1e-3)
    before, after = weights(zoo.model / "model.safetensors"), weights(model / "model.safetensors")
    assert any(bool((after[name].float() != before[name].float()).any()) for name in before)


def test_train_qlora(zoo: Zoo, slmsearch: Slmsearch) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: it comes with the extra `dev` on Linux")
    path = trained(slmsearch, zoo, policy__load_in_4bit="true")
    assert any(bool(value.any()) for name, value in weights(path / "adapter_model.safetensors").items() if "lora_B" in name)


def test_export(zoo: Zoo, slmsearch: Slmsearch, adapter: Path) -> None:
    merged = answer(slmsearch, "export", "merge", "--adapter-path", adapter, "--local-save-path", zoo.folder / "merged")
    assert merged["base_model"] == str(zoo.model)
    push = ("export", "push", "--adapter-path", adapter, "--repo-name", "me/zoo", "--dry-run")
    sent = answer(slmsearch, *push)
    assert sent["sent"] is False and "adapter_model.safetensors" in sent["files"] and "chat_template.jinja" in sent["files"]
    assert "model.safetensors" in answer(slmsearch, *push, "--merged")["files"]


def test_ask(zoo: Zoo, slmsearch: Slmsearch) -> None:
    answer(slmsearch, "index", "build", *zoo.flags())
    code, out, err = slmsearch("ask", "When was TownC2 founded?", "--policy", "untrained", "--json", *zoo.flags(**PLAY))
    assert code in (0, 1), err
    assert json.loads(out)["turns"], "it wrote something"


def test_serve_and_infer(zoo: Zoo, slmsearch: Slmsearch) -> None:
    serve = [sys.executable, "-m", "flows", "serve", "policy"]
    port = ["--port", str(free_port())]
    started = subprocess.run([*serve, *port, "--detach", "--json", *zoo.flags()], capture_output=True, text=True, timeout=300)
    try:
        assert started.returncode == 0, started.stderr
        endpoint = json.loads(started.stdout)
        given = ("--base-url", endpoint["base_url"], "--model", endpoint["model"], "--max-tokens", "8")
        for environment in ("planner", "searcher"):
            (found,) = answer(slmsearch, "infer", "2 + 2?", "--environment", environment, *given, *zoo.flags(**PLAY))["answers"]
            assert found["stop_reason"] != "failed"
        # Random weights may write special tokens alone, which a server shows as nothing, but counts.
        client = OpenAI(base_url=endpoint["base_url"], api_key="none")
        asked = [{"role": "user", "content": "2 + 2?"}]
        reply = client.chat.completions.create(model=endpoint["model"], messages=asked, max_tokens=8, temperature=0)
        assert reply.usage is not None and 0 < reply.usage.completion_tokens <= 8
    finally:
        subprocess.run([*serve, "--stop"], capture_output=True, timeout=120)


def test_train_planner_and_its_adapter(zoo: Zoo, slmsearch: Slmsearch) -> None:
    """The worker is the policy's own base with the adapter off: the only one of its kinds that needs the model."""
    worker = {"planner__worker__kind": "base", "planner__worker__max_new_tokens": 4, "planner__max_plan_tokens": 16}
    problems = {"planner__limit": 60}
    settings = {**LEARN, **worker, **problems, "planner__reward__kind": "random"}
    result = answer(slmsearch, "run", "train-planner", "--here", *zoo.flags(**settings))
    adapter = result["training"]["output"]
    planning = zoo.folder / "planner.yaml"
    planning.write_text("environment: planner\n")
    limited = zoo.flags(**{**settings, "evaluate__limit": 3})
    planned = answer(slmsearch, "evaluate", "--config", planning, "--policy", adapter, *limited)
    assert len(rows(zoo, planned)) == 3
