"""Real tokenizers with real chat templates, made from files of packages and TRL's copies of the templates.

Qwen2, 2.5 and 3 share one vocabulary (151,643 merged tokens and their special ones); SmolLM2's comes out of its GGUF.
"""

import base64
import hashlib
import itertools
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.zoo.packages import CACHE, QWEN, SMOLLM2, require

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # of Qwen2
SPECIAL = """
    <|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|>
    <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>
"""
ADDED = """
    <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>
    <tool_response> </tool_response> <think> </think>
"""
TEMPLATES = {"qwen2.5": "qwen2_5.jinja", "qwen3": "qwen3.jinja", "qwen3-instruct-2507": "qwen3_instruct_2507.jinja"}
SMALL = 1280
TINY = Path(__file__).resolve().parents[2] / "data" / "models" / "tiny-searcher"


def load_real_tokenizers() -> dict[str, Any]:
    """Return tokenizers by name: tiny-searcher's, SmolLM2's, and Qwen's with each of its templates.

    Skips the test where the files they are made from could not be fetched.
    """
    from transformers import AutoTokenizer

    qwen = {name: load_qwen(template) for name, template in TEMPLATES.items()}
    return {"tiny-searcher": AutoTokenizer.from_pretrained(TINY), "smollm2": load_smollm2(), **qwen}


def load_qwen(template: str) -> Any:
    """Return Qwen's tokenizer with one of TRL's copies of its chat templates."""
    from transformers import PreTrainedTokenizerFast

    require(QWEN)
    text = files("trl").joinpath("chat_templates", template).read_text(encoding="utf-8")
    return PreTrainedTokenizerFast(
        tokenizer_file=str(_cached("qwen", QWEN, _write_qwen)), eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=text
    )


def load_smollm2() -> Any:
    """Return SmolLM2's tokenizer and chat template."""
    from transformers import AutoTokenizer

    require(SMOLLM2)
    return AutoTokenizer.from_pretrained(_cached("smollm2", SMOLLM2, _write_smollm2).parent)


def load_small_smollm2() -> Any:
    """Return SmolLM2's tokenizer with the first of its words alone: the same rules, and read from a GGUF in a fraction of the time."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    real = load_smollm2()
    parts = json.loads(real.backend_tokenizer.to_str())
    words = {word: number for word, number in parts["model"]["vocab"].items() if number < SMALL}
    merges = [pair for pair in parts["model"]["merges"] if "".join(pair) in words]
    parts["model"] |= {"vocab": words, "merges": merges}
    special = {name: getattr(real, name) for name in ("eos_token", "bos_token", "pad_token", "unk_token")}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(parts)), chat_template=real.chat_template, **special)


def _write_smollm2(folder: Path) -> None:
    from slmsearch.models.convert import load_tokenizer

    load_tokenizer(SMOLLM2).save_pretrained(folder)


def _write_qwen(folder: Path) -> None:
    """Turn tiktoken's ranks into merges: the last merge that makes a token joins the two parts that lower ranks leave."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    lines = (line.split() for line in QWEN.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = [tuple(map(spell, _parts(token, rank, ranks))) for token, rank in ranks.items() if len(token) > 1]
    tokenizer = Tokenizer(models.BPE(vocab={spell(token): rank for token, rank in ranks.items()}, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL.split()])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED.split()])
    tokenizer.save(str(folder / "tokenizer.json"))


def _parts(token: bytes, limit: int, ranks: dict[bytes, int]) -> list[bytes]:
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        found = [(ranks.get(left + right, limit), place) for place, (left, right) in enumerate(itertools.pairwise(parts))]
        rank, place = min(found)
        if rank >= limit:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def _cached(name: str, source: Path, write: Any) -> Path:
    """Return `tokenizer.json` in a folder that `write` filled once, named by what it was made from and by this file."""
    made_by = hashlib.sha256(source.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    folder = CACHE / f"{name}-{made_by}"
    if not (folder / "tokenizer.json").is_file():
        staging = CACHE / f".{name}-{os.getpid()}"
        staging.mkdir(parents=True, exist_ok=True)
        write(staging)
        if not folder.exists():  # another process may have been faster
            staging.rename(folder)
    return folder / "tokenizer.json"
