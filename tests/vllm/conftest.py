"""vLLM itself, on the CPU: everything here is marked `vllm` and skipped where it is not installed.

The stand-ins of `tests/slmsearch/sampling/fake_vllm.py` show what our code does with an engine; these tests show what the engine does.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 900
THERE = find_spec("vllm") is not None
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}
"""Read when vLLM is imported."""
if THERE:
    os.environ.update(CPU)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            if not THERE:
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed; `make test-vllm` has it for the CPU"))


@pytest.fixture(scope="session")
def gqa_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 whose query heads share key heads, with tiny-searcher's tokenizer: 0.2 million weights, 1,024 positions."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from tests.root import ROOT

    tokenizer: Any = AutoTokenizer.from_pretrained(ROOT / "data" / "models" / "tiny-searcher")
    # Prints the system message, as templates of instruct models do and tiny-searcher's does not.
    user = "{% if message['role'] == 'user' %}"
    environment = "{% if message['role'] == 'system' %}{{ message['content'] }}{% elif message['role'] == 'user' %}"
    assert user in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(user, environment)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1280,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
        max_position_embeddings=1024,
        initializer_range=0.1,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    path = tmp_path_factory.mktemp("gqa")
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
