"""Conversion of a GGUF to a model directory: weights dequantised to bfloat16, tokenizer and chat template as files of their own."""

from collections import Counter
from pathlib import Path
from typing import Any

from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of

READ_RULES = ("gpt-2", "qwen2", "smollm")
"""Rules for dividing text, by llama.cpp's names, of which a byte-level BPE that is read from a GGUF gives the same tokens."""
NAMED_FRAC = 0.01
"""Smallest share of the weights from which on a kind is named."""


def convert_gguf(source: Path, out: Path, tied: bool = False) -> int:
    """Write a GGUF's weights, configuration, tokenizer and chat template into an existing directory; return the number of weights.

    Args:
        source: the GGUF.
        out: directory to write to.
        tied: embedding and head are one matrix; where the file has two, take the head's, of which quantising leaves more.

    Raises:
        ModelError: the file is damaged, or of an architecture that cannot be read.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(source)
    try:
        made: Any = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # parsers of a binary file raise any exception on a wrong byte
        raise _unreadable(source, error) from error
    model, loaded = made
    if lost := sorted(loaded["missing_keys"]):  # transformers gives them random numbers
        raise ModelError(f"{source.name} cannot be read: it has no {lost[0]} ({len(lost)} weights are missing); fetch it again")
    # The weights are plain numbers now; these attributes would prevent saving them.
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer, model.is_quantized = None, False
    if tied:
        model.get_input_embeddings().weight = model.get_output_embeddings().weight
        model.config.tie_word_embeddings = True
    model = model.to(torch.bfloat16)
    try:
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except Exception as error:  # of a full disk safetensors and tokenizers raise errors of their own
        raise ModelError(f"{out} cannot be written ({cause_of(error)}); make room and try again") from error
    return int(model.num_parameters())


def describe_weights(source: Path) -> str:
    """Describe the formats of a GGUF's weights, and the bits of each, scales included.

    A file's name can mislead: beside `Q4_1` (5 bits with its scales) embeddings often have 8.

    Raises:
        ModelError: the file is damaged.
    """
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(source).tensors
    except Exception as error:  # as above
        raise _unreadable(source, error) from error
    bits, weights = 8 * sum(int(tensor.n_bytes) for tensor in tensors), Counter[str]()
    for tensor in tensors:
        weights[tensor.tensor_type.name] += int(tensor.n_elements)
    kinds = [kind for kind, number in weights.most_common() if number >= NAMED_FRAC * weights.total()]
    return f"{' and '.join(kinds)}, {bits / weights.total():.2f} bits a weight"


def load_tokenizer(source: Path) -> Any:
    """Return the tokenizer of a GGUF, with its chat template.

    Raises:
        ModelError: the file is damaged, or its tokenizer is of a kind that cannot be read.
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        fields = GGUFReader(source).fields
        rule, is_bpe = fields.get("tokenizer.ggml.pre"), fields["tokenizer.ggml.model"].contents() == "gpt2"
    except Exception as error:  # as above
        raise _unreadable(source, error) from error
    name = "" if rule is None else str(rule.contents())
    if name and is_bpe and name not in READ_RULES:
        raise ModelError(
            f"{source.name} divides text by rules ({name}) that are not read from a GGUF: put the model's tokenizer.json and"
            " tokenizer_config.json beside it"
        )
    if name == "smollm":
        # transformers knows the vocabulary but not this rule: every digit is a token, also behind blanks.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def _unreadable(source: Path, error: Exception) -> ModelError:
    return ModelError(f"{source.name} cannot be read ({cause_of(error)}): the file is cut short or damaged; fetch it again")
