"""Merged weights say what base and adapter say; what is sent is what was asked for, and only by push."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from slmsearch.artifacts.files import file_hash
from slmsearch.config import PolicyConfig
from slmsearch.errors import ModelError, ServiceError
from slmsearch.models.load import load_model
from slmsearch.training import export
from slmsearch.training.export import MAX_DIFFERENCE, collect_adapter, find_base, find_run, list_files, merge, push, write_card
from tests.slmsearch.training.hub import serving

RUN = {
    "n": 600,
    "metric": "answer/exact_match",
    "before": {"n": 600, "answer/correct": 0.5, "by": {"hops=2": {"n": 300, "answer/correct": 0.1}}},
    "after": {"n": 600, "answer/correct": 0.9, "by": {"hops=2": {"n": 300, "answer/correct": 0.8}}},
    "worker_alone": {"answer/correct": 0.3},
    "difference": {"mean": 0.4, "low": 0.35, "high": 0.45, "p": 0.001},
    "lineage": {"train_key": "abc"},
}


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # tests keep away from the real one
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def adapter(model_dir, tmp_path_factory):
    """An adapter that changes what the model says."""
    torch.manual_seed(1)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model_dir), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    path = tmp_path_factory.mktemp("adapter")
    model.peft_config["default"].base_model_name_or_path = str(model_dir)
    model.save_pretrained(path)
    (path / "checkpoint-3").mkdir()
    (path / "checkpoint-3" / "optimizer.pt").write_bytes(b"x")
    return path


def logits(model, tokenizer):
    return model(torch.tensor([tokenizer("When was Mira born? 1823")["input_ids"]])).logits


def test_merged_weights_say_the_same_and_stand_alone(adapter, model_dir, tmp_path):
    merged = merge(adapter, tmp_path / "merged", card="# mine\n")
    assert 0 < merged.difference <= MAX_DIFFERENCE
    assert merged.base_model == str(model_dir) == find_base(adapter)
    assert not any(str(model_dir.parent) in file.read_text() for file in merged.directory.iterdir() if file.suffix in {".json", ".md"})
    assert (tmp_path / "merged" / "README.md").read_text() == "# mine\n"
    with torch.no_grad():
        alone = logits(*load_model(PolicyConfig(model=str(tmp_path / "merged"), device="cpu")))
        apart = logits(*load_model(PolicyConfig(model=str(model_dir), adapter=str(adapter), device="cpu"), keep_adapter=True))
        base = logits(*load_model(PolicyConfig(model=str(model_dir), device="cpu")))
    assert (alone - apart).abs().max() <= MAX_DIFFERENCE < (alone - base).abs().max()
    assert not list(tmp_path.glob(".merged-*"))


def test_weights_that_say_something_else_are_not_written(adapter, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "merge_adapter", lambda model, adapter: model)  # forgets the adapter
    with pytest.raises(ModelError, match="differ"):
        merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_what_is_no_adapter_is_refused(tmp_path):
    with pytest.raises(ModelError, match="adapter_config"):
        merge(tmp_path, tmp_path / "merged")


def test_an_adapter_is_collected_with_its_tokenizer_and_without_checkpoints(adapter, model_dir, tmp_path):
    collect_adapter(adapter, tmp_path / "out", "# card\n")
    texts = [file.read_text() for file in (tmp_path / "out").iterdir() if file.suffix in {".json", ".md", ".jinja"}]
    assert not any(str(model_dir.parent) in text or str(tmp_path) in text for text in texts), "where things lie here is nobody's business"
    assert find_base(tmp_path / "out") == model_dir.name
    names = {name for name, _ in list_files(tmp_path / "out")}
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md", "tokenizer.json", "tokenizer_config.json"} <= names
    assert not any("checkpoint" in name for name in names)


def test_an_adapter_is_copied_in_bfloat16_without_what_its_base_brings(adapter, model_dir, tmp_path):
    (adapter / "README.md").write_text(f"base_model: {model_dir}\n")
    for name in ("optimizer.pt", "training_args.bin", "trainer_state.json", "rng_state_0.pth"):
        (adapter / name).write_bytes(str(tmp_path).encode())  # as in a checkpoint
    collect_adapter(adapter, tmp_path / "out", "# card\n", "bfloat16", tokenizer=False)
    assert {name for name, _ in list_files(tmp_path / "out")} == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    texts = [(tmp_path / "out" / name).read_text() for name in ("README.md", "adapter_config.json")]
    assert texts[0] == "# card\n" and "/" not in texts[1] and find_base(tmp_path / "out") == model_dir.name
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, tmp_path / "out"))
    assert before.keys() == after.keys() and {weight.dtype for weight in after.values()} == {torch.bfloat16}
    assert all(torch.equal(after[name], weight.bfloat16()) for name, weight in before.items())
    policy = PolicyConfig(model=str(model_dir), adapter=str(tmp_path / "out"), device="cpu")
    with torch.no_grad():
        rounded, exact = (logits(*load_model(policy.model_copy(update={"adapter": str(path)}))) for path in (tmp_path / "out", adapter))
        bare = logits(*load_model(policy.model_copy(update={"adapter": None})))
    assert (rounded - exact).abs().max() < 0.1 * (bare - exact).abs().max()


def test_a_card_carries_metrics_and_lineage_or_claims_nothing(adapter, tmp_path):
    summary = tmp_path / "latest-planner.json"
    summary.write_text(json.dumps({**RUN, "training": {"hash": file_hash(adapter / "adapter_model.safetensors")}}))
    found = find_run(adapter, [tmp_path / "missing.json", summary])
    assert found["n"] == 600
    card = write_card("mine", "owner/base", found, merged=False)
    assert "| answer/correct | 0.500 | 0.900 |" in card
    assert "+0.400 [+0.350, +0.450]" in card and "train_key: `abc`" in card and "base_model: owner/base" in card
    summary.write_text(json.dumps({**RUN, "training": {"hash": "another"}}))
    assert find_run(adapter, [summary]) == {}
    bare = write_card("mine", str(tmp_path / "base"), {}, merged=True)
    assert "nothing is claimed" in bare and str(tmp_path) not in bare


def test_push_sends_what_lies_in_the_directory(adapter, tmp_path, hub):
    collect_adapter(adapter, tmp_path / "out", "---\nlibrary_name: peft\n---\n# card\n")
    address = push(tmp_path / "out", "me/planner", private=True, token="hf_secret", endpoint=hub.url)
    made = hub.repos["me/planner"]
    assert made.get("private") is True or made.get("visibility") == "private"
    sent = hub.files["me/planner"]
    assert {name for name, _ in list_files(tmp_path / "out")} <= set(sent)
    assert sent["adapter_model.safetensors"] == (adapter / "adapter_model.safetensors").read_bytes()
    assert "Bearer hf_secret" in hub.tokens
    assert address.endswith("/me/planner/commit/abc")


def test_a_hub_that_refuses_is_one_clear_line(adapter, tmp_path, hub):
    collect_adapter(adapter, tmp_path / "out")
    hub.refuse = True
    with pytest.raises(ServiceError, match=r"403.*HF_TOKEN"):
        push(tmp_path / "out", "me/planner", private=False, token="hf_secret", endpoint=hub.url)
    assert hub.files == {}
