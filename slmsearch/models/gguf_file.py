"""A model of transformers as a GGUF: the file that llama.cpp, Ollama, LM Studio and Jan run."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slmsearch.errors import ModelError
from slmsearch.models.k_quants import BLOCK, in_parts, quantise_q4_k, quantise_q6_k

Quantisation = Literal["f32", "bf16", "q8_0", "q4_k_m"]
ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
"""`model_type` of transformers -> name of `gguf.MODEL_ARCH`."""
_QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {_QWEN: "qwen2", _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"): "llama-bpe"}
"""Patterns by which the tokenizers of Qwen2 and Qwen3, and of Llama 3, divide text -> llama.cpp's names."""
GROUP = 32
"""Weights that share a scale in all types but f32 and bf16."""
NEAREST = "superbpe"
"""Rules for tokenizers whose own llama.cpp does not know: they divide at numbers alone, and give tiny-searcher's tokens most often."""
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_SYSTEM_IGNORED = "{% for m in messages %}{% if m['role'] == 'system' %}{% set ignored = m['content'] | length %}{% endif %}{% endfor %}"
"""Put before a template that passes over system messages: `llama-server` takes one that never looks at them for one that needs them as
part of the first question."""


def write_gguf(model: Any, tokenizer: Any, out: Path, kind: Quantisation, name: str, end_id: int | None = None) -> bool:
    """Write a model, its tokenizer and its chat template as one file.

    Args:
        model: a causal language model without adapter, of a family in `ARCHITECTURES`.
        tokenizer: its tokenizer, a byte-level BPE.
        out: the file.
        kind: type of the matrices; what is no matrix stays float32.
        name: the model's name for people.
        end_id: token that ends a turn; None for the tokenizer's end of text.

    Returns:
        Whether llama.cpp divides text into the same tokens. If not, it must be sent ids.

    Raises:
        ModelError: llama.cpp has no such model, or the file format no such tokenizer.
    """
    import gguf

    settings = model.config.get_text_config()
    if settings.model_type not in ARCHITECTURES:
        raise ModelError(f"no GGUF can be written of a {settings.model_type} model: {', '.join(ARCHITECTURES)} can")
    rope = settings.rope_parameters
    if rope.get("rope_type", "default") != "default":
        raise ModelError(f"no GGUF can be written of a model with scaled positions ({rope['rope_type']})")
    arch = gguf.MODEL_ARCH[ARCHITECTURES[settings.model_type]]
    size = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "f32" else f"MOSTLY_{kind.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(settings.max_position_embeddings)
    writer.add_embedding_length(settings.hidden_size)
    writer.add_block_count(settings.num_hidden_layers)
    writer.add_feed_forward_length(settings.intermediate_size)
    writer.add_head_count(settings.num_attention_heads)
    writer.add_head_count_kv(settings.num_key_value_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(settings.rms_norm_eps)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(settings.vocab_size)
    known = _add_tokenizer(writer, tokenizer, settings.vocab_size)
    writer.add_eot_token_id(tokenizer.eos_token_id if end_id is None else end_id)
    names = gguf.get_tensor_name_map(arch, settings.num_hidden_layers)
    for tensor, values in _list_weights(model):
        place = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        if place is None:
            raise ModelError(f"no GGUF can be written: the file format has no place for {tensor}")
        stored = _choose_type(kind, place, values.shape, settings.num_hidden_layers)
        quantise = {"Q4_K": quantise_q4_k, "Q6_K": quantise_q6_k}.get(stored)
        form = gguf.GGMLQuantizationType[stored]
        writer.add_tensor(place, in_parts(values, quantise) if quantise else gguf.quants.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return known


def _choose_type(kind: Quantisation, place: str, shape: Sequence[int], layers: int) -> str:
    """Return the type of a tensor; that of `q4_k_m` nearly as llama.cpp chooses it, with six bits where errors weigh most."""
    if kind == "f32" or len(shape) == 1 or shape[-1] % GROUP:
        return "F32"
    if kind != "q4_k_m":
        return kind.upper()
    layer = int(place.split(".")[1]) if place.startswith("blk.") else 0
    matters = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    fine = not place.startswith("blk.") or (matters and place.split(".")[2] in ("attn_v", "ffn_down"))
    if shape[-1] % BLOCK:
        return "Q8_0" if fine else "Q5_0"
    return "Q6_K" if fine else "Q4_K"


def _list_weights(model: Any) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield names and weights as llama.cpp wants them: a head that is the embedding is left out."""
    settings, tied = model.config.get_text_config(), model.get_input_embeddings().weight is model.get_output_embeddings().weight
    for name, weight in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = weight.float().cpu().numpy()
        heads = {"q_proj": settings.num_attention_heads, "k_proj": settings.num_key_value_heads}.get(name.split(".")[-2])
        if settings.model_type == "llama" and heads:
            # Its rotation turns neighbours, transformers' the two halves of a head: (heads, 2, half) becomes (heads, half, 2).
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        yield name, values


def _add_tokenizer(writer: Any, tokenizer: Any, size: int) -> bool:
    """Write a tokenizer of `size` tokens; return whether llama.cpp knows its rules.

    Raises:
        ModelError: it is no byte-level BPE.
    """
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    if spec["model"]["type"] != "BPE" or "ByteLevel" not in json.dumps(spec["pre_tokenizer"]):
        raise ModelError("no GGUF can be written: its tokenizer is no byte-level BPE")
    if (largest := max(tokenizer.get_vocab().values())) >= size:
        raise ModelError(f"no GGUF can be written: the tokenizer has a token {largest}, and the model {size} rows of weights")
    tokens = [f"[unused{i}]" for i in range(size)]
    kinds = [_UNUSED] * size
    for text, index in spec["model"]["vocab"].items():
        tokens[index], kinds[index] = text, _NORMAL
    for added in spec["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], _CONTROL if added["special"] else _USER_DEFINED
    rules = _find_rules(spec["pre_tokenizer"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rules or NEAREST)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_add_bos_token(False)  # a chat template writes what it wants
    writer.add_eos_token_id(tokenizer.eos_token_id)
    for add, token in ((writer.add_bos_token_id, tokenizer.bos_token_id), (writer.add_pad_token_id, tokenizer.pad_token_id)):
        if token is not None:
            add(token)
    if template := tokenizer.chat_template:
        writer.add_chat_template(template if "system" in template else _SYSTEM_IGNORED + template)
    return rules is not None


def _find_rules(pre_tokenizer: dict[str, Any]) -> str | None:
    """Return llama.cpp's name for the way in which a tokenizer divides text, or None."""
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"] and steps[0]["use_regex"]:
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"] and steps[1]["use_regex"]:
        return "smollm"
    return _PATTERNS.get(steps[0]["pattern"].get("Regex")) if kinds == ["Split", "ByteLevel"] else None
