"""What llama.cpp computes with a GGUF of tiny-searcher is what torch computes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import WorldConfig
from slmsearch.corpus.world import generate_world
from tests.root import ROOT
from tests.slmsearch.serving.engines.tiny_gguf import write_tiny_gguf

MODEL = ROOT / "data" / "models" / "tiny-searcher"
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


def open_llama(path: Path) -> Any:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (extra `llamacpp`)")
    return llama_cpp.Llama(str(path), n_ctx=512, n_threads=1, logits_all=False, verbose=False)


def test_greedy_tokens_are_those_of_torch(converted: Path, prompts: list[list[int]]) -> None:
    from transformers import AutoModelForCausalLM

    llama = open_llama(converted)
    model = AutoModelForCausalLM.from_pretrained(MODEL).eval()
    assert [with_llama_cpp(llama, prompt) for prompt in prompts] == [with_torch(model, prompt) for prompt in prompts]
    llama.close()
