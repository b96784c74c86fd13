"""What a GGUF's weights take is counted, not taken from its name."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from slmsearch.errors import ModelError
from slmsearch.models.convert import convert_gguf, describe_weights
from tests.slmsearch.models.wheels import write_gguf
from tests.zoo.packages import SMOLLM2


def write_tensors(path: Path, *kinds: gguf.GGMLQuantizationType) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for number, kind in enumerate(kinds):
        weights = np.random.default_rng(number).standard_normal((4, 256)).astype(np.float32)
        writer.add_tensor(f"blk.{number}.weight", gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_scales_count_and_tensors_of_more_bits_do(tmp_path: Path) -> None:
    """Q4_1 keeps a scale and a minimum of 16 bits for every 32 weights; Q8_0 a scale."""
    kind = gguf.GGMLQuantizationType
    assert describe_weights(write_tensors(tmp_path / "a.gguf", kind.Q4_1)) == "Q4_1, 5.00 bits a weight"
    mixed = write_tensors(tmp_path / "b.gguf", kind.Q8_0, kind.Q4_1, kind.Q4_1, kind.Q4_1)
    assert describe_weights(mixed) == "Q4_1 and Q8_0, 5.88 bits a weight", "most weights first"


def test_a_damaged_file_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "c.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(ModelError, match=r"c\.gguf cannot be read"):
        describe_weights(tmp_path / "c.gguf")


def test_the_known_model_is_no_four_bit_one() -> None:
    if not SMOLLM2.is_file():
        pytest.skip("no packages: make test-packages")
    assert describe_weights(SMOLLM2) == "Q4_1 and Q8_0, 5.74 bits a weight"


def test_of_a_file_with_an_own_head_a_tied_model_takes_the_head_for_both(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    source = write_gguf(tmp_path / "small.gguf", own_head=True)
    counts = dict[bool, int]()
    for tied in (False, True):
        (out := tmp_path / str(tied)).mkdir()
        counts[tied] = convert_gguf(source, out, tied)
    apart, together = (AutoModelForCausalLM.from_pretrained(tmp_path / str(tied)) for tied in (False, True))
    embedding, head = apart.get_input_embeddings().weight, apart.get_output_embeddings().weight
    assert not torch.equal(embedding, head) and counts[False] - counts[True] == embedding.numel()
    assert together.get_input_embeddings().weight is together.get_output_embeddings().weight
    assert torch.equal(together.get_input_embeddings().weight, head)
