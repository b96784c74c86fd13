"""Supervised training in a process of its own, which saves a checkpoint after each update and names each on its output."""

import sys
from itertools import islice
from pathlib import Path
from typing import ClassVar

from slmsearch.config import PolicyConfig, RunConfig, SftConfig


class SmallWorlds(SftConfig):
    pages_per_world: ClassVar[int] = 80
    episodes_per_world: ClassVar[int] = 100


def make_llama(vocabulary, pad, end=None):
    """Make a Llama whose query heads share key heads, as SmolLM2's do."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"pad_token_id": pad, "eos_token_id": end, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=True, max_position_embeddings=1024, **ends, **sizes))


def write_llama(folder):
    """Write one with a tokenizer of its own."""
    from slmsearch.environments.searcher.demonstrations import make_demonstrations
    from slmsearch.training.bootstrap import build_tokenizer

    shown = islice(make_demonstrations(SmallWorlds(recipe="expert"), 3, 0), 200)
    tokenizer = build_tokenizer("\n".join([one.question, *(part for turn in one.turns for part in turn)]) for one in shown)
    make_llama(len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def teach_small(kind, out, model, **told):
    """Make the tiny searcher, all of whose weights learn, or teach a model through an adapter, whose updates go over trees."""
    if kind == "tiny":
        from slmsearch.training.bootstrap import bootstrap

        return bootstrap(RunConfig(sft=SmallWorlds(steps=12, tokens_per_batch=512)), out, **told)
    from slmsearch.training.teach import train_start

    settings = SmallWorlds(steps=10, batch_size=2, tokens_per_batch=1024, context_weight=0, lora=True)
    config = RunConfig(policy=PolicyConfig(model=model, device="cpu"), sft=settings)
    return train_start(config, ["demonstrations"], out, **told)


def main() -> None:
    from slmsearch.training import sft_checkpoints

    kind, out, model = sys.argv[1:]
    sft_checkpoints.SAVE_S = sft_checkpoints.SAVES_APART = 0
    teach_small(kind, Path(out), model, on_phase=lambda what, unit, step, total: print(f"update {step}", flush=True))


if __name__ == "__main__":
    main()
