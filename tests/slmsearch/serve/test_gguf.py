"""Adapters as GGUF: what llama.cpp computes with them is what torch computes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest

from flows.cli.settings import find_project_root
from slmsearch.config import WorldConfig
from slmsearch.corpus.world import generate_world
from slmsearch.errors import ConfigError
from slmsearch.serve.gguf import convert_adapter
from tests.slmsearch.serve.tiny_gguf import write_tiny_gguf

MODEL = find_project_root() / "data" / "models" / "tiny-searcher"
NEW_TOKENS = 40


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(MODEL, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def prompts() -> Iterator[list[list[int]]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    questions = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1)).questions[:12]
    asked = [[{"role": "user", "content": question.question}] for question in questions]
    yield [list(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]) for messages in asked]


def with_torch(model: Any, prompt: list[int]) -> list[int]:
    import torch

    written = model.generate(torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False)
    return [int(token) for token in written[0][len(prompt) :]]


def with_llama_cpp(llama: Any, prompt: list[int]) -> list[int]:
    llama.reset()
    written: list[int] = []
    for token in llama.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
        written.append(token)
        if token == llama.token_eos() or len(written) == NEW_TOKENS:
            break
    return written


def open_llama(path: Path, adapter: Path | None = None) -> Any:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (extra `llamacpp`)")
    lora = None if adapter is None else str(adapter)
    return llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, logits_all=False, verbose=False, lora_path=lora)


def test_greedy_tokens_are_those_of_torch(converted: Path, prompts: list[list[int]]) -> None:
    from transformers import AutoModelForCausalLM

    llama = open_llama(converted)
    model = AutoModelForCausalLM.from_pretrained(MODEL).eval()
    assert [with_llama_cpp(llama, prompt) for prompt in prompts] == [with_torch(model, prompt) for prompt in prompts]
    llama.close()


def test_an_adapter_is_the_same_on_both_sides(converted: Path, prompts: list[list[int]], tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(MODEL).eval()
    plain = [with_torch(base, prompt) for prompt in prompts]
    adapted: Any = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False))
    expected = [with_torch(adapted, prompt) for prompt in prompts]
    assert expected != plain, "the adapter must do something to be seen"
    adapted.save_pretrained(tmp_path / "adapter")
    llama = open_llama(converted, convert_adapter(tmp_path / "adapter", tmp_path))
    assert [with_llama_cpp(llama, prompt) for prompt in prompts] == expected
    llama.close()


def test_a_second_time_nothing_is_done(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from safetensors.numpy import save_file

    source = tmp_path / "adapter"
    source.mkdir()
    (source / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "use_rslora": True}))
    place = "base_model.model.model.layers.1.self_attn.q_proj"
    matrices = {f"{place}.lora_{half}.weight": numpy.full((4, 8), number, "float16") for number, half in enumerate("AB")}
    save_file(matrices, source / "adapter_model.safetensors")
    made = convert_adapter(source, tmp_path / "made")
    before = made.stat().st_mtime_ns
    assert convert_adapter(source, tmp_path / "made") == made
    assert made.stat().st_mtime_ns == before
    read = gguf.GGUFReader(made)
    fields = {name: read.fields[name].contents() for name in ("general.architecture", "general.type", "adapter.type", "adapter.lora.alpha")}
    assert list(fields.values()) == ["qwen3", "adapter", "lora", 16.0], "scaled by the root of the rank"
    written = {tensor.name: (float(tensor.data.min()), tensor.data.dtype.name) for tensor in read.tensors}
    assert written == {f"blk.1.attn_q.weight.lora_{half}": (float(number), "float32") for number, half in enumerate("ab")}
    save_file({f"{place}.bias": matrices[f"{place}.lora_A.weight"]}, source / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match="which is no LoRA matrix"):
        convert_adapter(source, tmp_path / "made")


def test_what_is_no_plain_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "use_dora": True}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="is no plain LoRA adapter"):
        convert_adapter(tmp_path, tmp_path / "made")
