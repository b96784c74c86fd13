"""A model written as a GGUF is the model: its weights are read back, its tokenizer keeps its rules, and what it cannot say is refused."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, GemmaConfig, LlamaConfig, Qwen2Config, Qwen3Config

from slmsearch.config import PolicyConfig
from slmsearch.errors import ModelError
from slmsearch.models import convert, gguf_file, k_quants
from slmsearch.models.convert import convert_gguf
from slmsearch.models.gguf_file import write_gguf
from slmsearch.models.k_quants import BLOCK, in_parts, quantise_q4_k, quantise_q6_k
from slmsearch.models.load import load_tokenizer
from tests.root import ROOT
from tests.zoo.tokenizers import load_small_smollm2

TINY = ROOT / "data" / "models" / "tiny-searcher"
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1280,
    "max_position_embeddings": 128,
}
KINDS: dict[str, Callable[..., Any]] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


HEADS = {"llama": 16, "qwen2": 16, "qwen3": 128}
"""transformers reads no other size of a head from a Qwen3's GGUF."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(PolicyConfig(model=str(TINY)))


def make(kind: str, tied: bool, **more: Any) -> Any:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(KINDS[kind](**{**SHAPE, "tie_word_embeddings": tied, "eos_token_id": 1, **more}))
    for weight in model.parameters():  # biases and norms, too, which begin as zeros and ones
        torch.nn.init.normal_(weight, std=0.1)
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_read_back_as_they_were(kind: str, tied: bool, tmp_path: Path) -> None:
    real = load_small_smollm2()
    model = make(kind, tied, head_dim=HEADS[kind], vocab_size=len(real)).bfloat16()  # `convert_gguf` writes it, which rounds none of these
    assert write_gguf(model, real, tmp_path / "m.gguf", "f32", "m")
    (tmp_path / "back").mkdir()
    convert_gguf(tmp_path / "m.gguf", tmp_path / "back", tied)
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype=torch.bfloat16)
    weights, found = model.state_dict(), back.state_dict()
    assert weights.keys() == found.keys()
    assert [name for name in weights if not torch.equal(weights[name], found[name])] == []
    assert (back.get_input_embeddings().weight is back.get_output_embeddings().weight) is tied


def test_a_missing_weight_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers puts random numbers in its place, and prints a report."""
    whole = gguf_file._list_weights
    monkeypatch.setattr(gguf_file, "_list_weights", lambda model: (one for one in whole(model) if "layers.1.mlp.up_proj" not in one[0]))
    real = load_small_smollm2()
    write_gguf(make("qwen2", True, vocab_size=len(real)), real, tmp_path / "m.gguf", "f32", "m")
    with pytest.raises(ModelError, match=r"it has no model.layers.1.mlp.up_proj.weight \(1 weights are missing\)"):
        convert_gguf(tmp_path / "m.gguf", tmp_path, tied=True)


def test_heads_of_a_qwen3_that_transformers_takes_for_larger_are_refused(tmp_path: Path) -> None:
    real = load_small_smollm2()
    write_gguf(make("qwen3", True, vocab_size=len(real)), real, tmp_path / "m.gguf", "f32", "m")
    with pytest.raises(ModelError, match=r"m\.gguf cannot be read"):
        convert_gguf(tmp_path / "m.gguf", tmp_path, tied=True)


def test_what_the_format_cannot_say_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    gemma = AutoModelForCausalLM.from_config(GemmaConfig(**SHAPE))
    with pytest.raises(ModelError, match="no GGUF can be written of a gemma model: llama, qwen2, qwen3 can"):
        write_gguf(gemma, tokenizer, tmp_path / "m.gguf", "f32", "m")
    scaled = make("qwen2", True, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(ModelError, match=r"a model with scaled positions \(linear\)"):
        write_gguf(scaled, tokenizer, tmp_path / "m.gguf", "f32", "m")
    assert list(tmp_path.iterdir()) == []
    write_gguf(make("qwen2", True), tokenizer, tmp_path / "m.gguf", "f32", "m")
    with pytest.raises(
        ModelError, match=r"m\.gguf divides text by rules \(superbpe\) that are not read from a GGUF: put the model's tokenizer"
    ):
        load_tokenizer(PolicyConfig(model=str(tmp_path / "m.gguf")))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / file, tmp_path)
    assert load_tokenizer(PolicyConfig(model=str(tmp_path / "m.gguf")))("Where?")["input_ids"] == tokenizer("Where?")["input_ids"]


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_a_tokenizer_whose_rules_are_read_from_the_file_gives_the_same_tokens(
    arch: str, real_tokenizers: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load_small_smollm2()
    plain = copy.deepcopy(small)
    plain.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [
        "Who wrote Faust, in 1808?",
        "  two  blanks\n\n\ttab",
        "It's 3.14159 km², naïve café",
        "I'LL DON'T",
        "日本語 and ½",
        "a1b22c333 12345",
    ]
    for name, real in (("smollm", small), ("qwen2", real_tokenizers["qwen2.5"]), ("gpt-2", plain)):
        write_gguf(make(arch, True, vocab_size=len(real)), real, tmp_path / f"{name}.gguf", "bf16", name)
        read = load_tokenizer(PolicyConfig(model=str(tmp_path / f"{name}.gguf")))
        assert [read(text, add_special_tokens=False)["input_ids"] for text in texts] == [
            real(text, add_special_tokens=False)["input_ids"] for text in texts
        ], name
    monkeypatch.setattr(convert, "READ_RULES", ("smollm",))
    with pytest.raises(ModelError, match=r"rules \(gpt-2\)"):
        load_tokenizer(PolicyConfig(model=str(tmp_path / "gpt-2.gguf")))


def test_real_tokenizers_keep_their_rules(real_tokenizers: dict[str, Any], tmp_path: Path) -> None:
    known = {}
    for name, real in real_tokenizers.items():
        try:
            known[name] = write_gguf(make("qwen2", True, vocab_size=len(real) + 8), real, tmp_path / f"{name}.gguf", "bf16", name)
        except ModelError as error:
            assert "no byte-level BPE" in str(error), name
    assert {name for name, same in known.items() if not same} == {"tiny-searcher"}


def test_every_type_is_as_near_as_its_bits_allow(tokenizer: Any, tmp_path: Path) -> None:
    model = make("llama", True, hidden_size=256, intermediate_size=320, head_dim=64, num_hidden_layers=8)
    errors, bits = {}, {}
    for kind in ("bf16", "q8_0", "q4_k_m"):
        write_gguf(model, tokenizer, tmp_path / kind, kind, "m")  # type: ignore[arg-type]
        tensors = gguf.GGUFReader(tmp_path / kind).tensors
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 8)
        places = {names.get_name(name, try_suffixes=(".weight",)): weight for name, weight in model.state_dict().items()}
        exact = {
            tensor.name: places[tensor.name].numpy() for tensor in tensors if "attn_q" not in tensor.name and "attn_k" not in tensor.name
        }
        wrong = [dequantize(t.data, t.tensor_type).reshape(exact[t.name].shape) - exact[t.name] for t in tensors if t.name in exact]
        errors[kind] = float(np.sqrt(np.mean(np.concatenate([one.ravel() ** 2 for one in wrong])))) / 0.1
        bits[kind] = 8 * sum(int(t.n_bytes) for t in tensors) / sum(int(t.n_elements) for t in tensors)
        assert {t.tensor_type.name for t in tensors if t.data.ndim == 1} == {"F32"}
    assert errors["bf16"] < 0.003 < errors["q8_0"] < 0.01 < errors["q4_k_m"] < 0.07
    assert 16 <= bits["bf16"] < 16.1 and 8.5 <= bits["q8_0"] < 8.6 and 4.5 <= bits["q4_k_m"] < 6


FLOATS = st.floats(-1e4, 1e4, width=32, allow_subnormal=False).map(lambda value: 0.0 if abs(value) < 1e-4 else value)


def test_blocks_are_worked_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k_quants, "AT_ONCE", 3)
    values = np.random.default_rng(1).normal(size=(5, 2 * BLOCK)).astype(np.float32)
    assert np.array_equal(in_parts(values, quantise_q4_k), quantise_q4_k(values))


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, (2, BLOCK), elements=FLOATS, fill=st.just(0.0)))
def test_k_quants_miss_no_weight_by_more_than_a_step(values: Any) -> None:
    for quantise, kind, levels in (
        (quantise_q4_k, gguf.GGMLQuantizationType.Q4_K, 15),
        (quantise_q6_k, gguf.GGMLQuantizationType.Q6_K, 31),
    ):
        found = dequantize(quantise(values), kind)
        assert np.array_equal(in_parts(np.stack([values, values[::-1]]), quantise), np.stack([quantise(values), quantise(values[::-1])]))
        assert found.shape == values.shape and np.isfinite(found).all()
        span = np.abs(values).max(-1, keepdims=True)
        assert (np.abs(found - values) <= span * 2.5 / levels + 1e-6).all(), kind.name
