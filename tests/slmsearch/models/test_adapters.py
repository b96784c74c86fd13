"""Adapters of every kind are loaded exactly as PEFT computes them, or refused."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from slmsearch.config import PolicyConfig
from slmsearch.errors import ModelError
from slmsearch.models import load
from slmsearch.models.known import shipped_models
from slmsearch.models.load import load_adapter, merge_adapter
from slmsearch.training.fused_lora import lower_frozen
from slmsearch.training.teach import load_student
from slmsearch.training.trainer_samplers import merged

IDS = torch.arange(1, 40)[None]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {"target_modules": "all-linear"},
    "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "both-ends": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    "tying": {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
    "saved-head": {"modules_to_save": ["lm_head"]},
    "saved-embedding": {"modules_to_save": ["embed_tokens"]},
    "saved-tying": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "saved-norm": {"modules_to_save": ["norm"]},
    "tokens": {"trainable_token_indices": [1, 2, 3]},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "fan-in-fan-out": {"fan_in_fan_out": True},
    "bias": {"bias": "all", "lora_bias": True},
    "ranks": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}},
    "layers": {"layers_to_transform": [1]},
}


def write_base(folder: Path, layers: int = 2, tied: bool = True, heads: int = 4, bias: bool = False) -> Path:
    torch.manual_seed(0)
    sizes = {
        "attention_bias": bias,
        "hidden_size": 12 * heads,
        "intermediate_size": 96,
        "num_attention_heads": heads,
        "max_position_embeddings": 64,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=layers, tie_word_embeddings=tied, **sizes)).save_pretrained(folder)
    return folder


def open_base(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def write_adapter(base: Path, out: Path, **settings: Any) -> Path:
    torch.manual_seed(1)
    chosen = {"target_modules": ["q_proj", "v_proj"], **settings}
    model = get_peft_model(open_base(base), LoraConfig(r=4, task_type="CAUSAL_LM", **chosen))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(out)
    return out


@torch.no_grad()
def log_probabilities(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.eval()(IDS).logits.log_softmax(-1)
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_adapter_computes_what_peft_computes_beside_the_base_and_is_saved_so(kind: str, tied: bool, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", tied=tied, bias=kind == "bias")
    adapter = write_adapter(base, tmp_path / "adapter", **KINDS[kind])
    beside = PeftModel.from_pretrained(open_base(base), str(adapter))
    wanted = log_probabilities(beside)
    assert (wanted - log_probabilities(open_base(base))).abs().max() > 0.1, "the adapter changes something"
    with merged(beside) as sampled:
        torch.testing.assert_close(log_probabilities(sampled), wanted, rtol=0, atol=1e-4)
    found = merge_adapter(open_base(base), str(adapter))
    torch.testing.assert_close(log_probabilities(found), wanted, rtol=0, atol=1e-4)
    found.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(log_probabilities(open_base(tmp_path / "merged")), wanted, rtol=0, atol=1e-4)
    assert torch.equal(log_probabilities(merge_adapter(open_base(base), str(adapter), keep=True)), wanted)


@pytest.mark.parametrize(("layers", "lacks"), [((2, 4), "the adapter"), ((4, 2), "the model")])
def test_an_adapter_of_another_number_of_layers_is_refused(layers: tuple[int, int], lacks: str, tmp_path: Path) -> None:
    own, other = (write_base(tmp_path / f"{count}", count) for count in layers)
    adapter = write_adapter(own, tmp_path / "adapter")
    for trainable in (False, True):
        with pytest.raises(ModelError, match=rf"{lacks} has no base_model.model.model.layers.2.\S+ \(8 in all\)"):
            load_adapter(open_base(other), str(adapter), trainable)


def test_an_adapter_of_another_size_is_refused(tmp_path: Path) -> None:
    adapter = write_adapter(write_base(tmp_path / "base"), tmp_path / "adapter")
    with pytest.raises(ModelError, match="was it trained on this base"):
        load_adapter(open_base(write_base(tmp_path / "wider", heads=6)), str(adapter))


def open_policy(base: Path, adapter: Path) -> Any:
    return load.load_model(PolicyConfig(model=str(base), adapter=str(adapter), device="cpu", dtype="float32"))


def write_whole_base(folder: Path, seed: int = 0) -> Path:
    """A base of this seed with a tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(shipped_models() / "tiny-searcher")
    torch.manual_seed(seed)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("named", "fits"),
    [
        ("", True),
        ("own", True),
        ("copy", True),
        ("owner/own", True),
        ("other-owner/OWN-bnb-4bit", True),
        ("another", False),
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct", False),
        ("/gone/own", True),
        ("/gone/sft-1", False),
    ],
)
def test_an_adapter_that_names_another_base_is_refused(named: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own, _ = write_whole_base(tmp_path / "own"), write_whole_base(tmp_path / "another", 1)
    shutil.copytree(own, tmp_path / "copy")
    adapter = write_adapter(own, tmp_path / "adapter")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": named}))
    if fits:
        open_policy(own, adapter)
        return
    with pytest.raises(ModelError, match=f"was trained on {named}, and policy.model is {own}: give its base"):
        open_policy(own, adapter)
    with pytest.raises(ModelError, match="was trained on"):
        load_student(PolicyConfig(model=str(own), adapter=str(adapter), device="cpu"), lora=True)


def test_an_adapter_that_brings_another_tokenizer_is_refused(tmp_path: Path) -> None:
    own = write_whole_base(tmp_path / "own")
    adapter = write_adapter(own, tmp_path / "adapter")
    tokenizer = AutoTokenizer.from_pretrained(own)
    tokenizer.save_pretrained(adapter)
    open_policy(own, adapter)
    (adapter / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(ModelError, match="brings another chat template"):
        open_policy(own, adapter)
    tokenizer.add_tokens(["<more>"])
    tokenizer.save_pretrained(adapter)
    with pytest.raises(ModelError, match="brings another vocabulary"):
        open_policy(own, adapter)


@pytest.mark.parametrize("first", ["pissa", "pissa_niter_4", "olora"])
def test_an_adapter_that_changes_its_base_when_it_is_loaded_is_refused(first: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    adapter = write_adapter(base, tmp_path / "adapter", init_lora_weights=first)
    with pytest.raises(ModelError, match=f"began as {first}"):
        load_adapter(open_base(base), str(adapter))


def test_what_cannot_be_merged_exactly_is_refused_and_can_be_kept_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = write_base(tmp_path / "base")
    biased = write_adapter(base, tmp_path / "biased", lora_bias=True)
    with pytest.raises(ModelError, match=r"cannot merge adapter .*lora_bias.*beside bfloat16 weights"):
        merge_adapter(open_base(base), str(biased))
    beside = PeftModel.from_pretrained(open_base(base), str(biased))
    wanted = log_probabilities(beside)
    with merged(beside) as sampled:
        assert torch.equal(log_probabilities(sampled), wanted), "neither is it merged for sampling"
    assert torch.equal(log_probabilities(merge_adapter(open_base(base), str(biased), keep=True)), wanted)
    monkeypatch.setattr(load, "_untie", lambda model: None)
    with pytest.raises(ModelError, match="log-probabilities change by"):
        merge_adapter(open_base(base), str(write_adapter(base, tmp_path / "head", **KINDS["head"])))


@pytest.mark.parametrize(("off", "refused"), [((2e-3, 0.0), True), ((0.0, 0.5), False)])
def test_what_float32_rounds_of_unlikely_tokens_is_no_reason_to_refuse(
    off: tuple[float, float], refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_base(tmp_path / "base")
    adapter, found = write_adapter(base, tmp_path / "adapter"), torch.tensor([[0.0, -20.0]])
    probes = iter([found, found + torch.tensor([off])])
    monkeypatch.setattr(load, "_probe", lambda _: next(probes))
    with pytest.raises(ModelError, match=r"log-probabilities change by 0\.002") if refused else nullcontext():
        merge_adapter(open_base(base), str(adapter))


@pytest.fixture
def halved(tmp_path: Path) -> Path:
    """Write a base in bfloat16 with a tokenizer."""
    base = write_base(tmp_path / "halved")
    open_base(base).bfloat16().save_pretrained(base)
    AutoTokenizer.from_pretrained(shipped_models() / "tiny-searcher").save_pretrained(base)
    return base


def adapted(base: Path, adapter: Path) -> PolicyConfig:
    return PolicyConfig(model=str(base), adapter=str(adapter), dtype="bfloat16", device="cpu")


def test_what_an_adapter_saves_whole_goes_on_in_float32_above_bfloat16(halved: Path, tmp_path: Path) -> None:
    model, _ = load_student(adapted(halved, write_adapter(halved, tmp_path / "adapter", modules_to_save=["norm"])), lora=True)
    learns = {name: weight.dtype for name, weight in model.named_parameters() if weight.requires_grad}
    assert any("modules_to_save" in name for name in learns) and set(learns.values()) == {torch.float32}


def test_an_adapter_that_could_not_be_merged_at_the_end_is_refused_at_the_beginning(halved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot merge adapter"):
        load_student(adapted(halved, write_adapter(halved, tmp_path / "adapter", lora_bias=True)), lora=True)


def test_embedding_and_head_stay_in_float32_below_an_adapter_on_the_head(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    model = load_adapter(open_base(base), str(write_adapter(base, tmp_path / "adapter", **KINDS["head"])))
    lower_frozen(model)
    layers = model.get_base_model()
    assert layers.get_input_embeddings().weight.dtype == layers.get_output_embeddings().weight.dtype == torch.float32
    assert layers.model.layers[0].self_attn.k_proj.weight.dtype == torch.bfloat16
