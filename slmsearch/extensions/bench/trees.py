"""Updates over trees beside row-wise ones: their differences on the batch of a measured step, and the time of each on a device."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from slmsearch.config import LoraSection
from slmsearch.extensions.bench.gpu import name_of, shape_of
from slmsearch.extensions.bench.result import Result, Say, Spread, describe_machine, median_ratio, tabulate, take_turns
from slmsearch.extensions.bench.shapes import BenchShape
from slmsearch.models.attention import use_attention
from slmsearch.models.flex import takes_flex
from slmsearch.training.block_sizes import TOKENS_PER_BLOCK
from slmsearch.training.fused_lora import fused_lora
from slmsearch.training.grpo import NO_ADVANTAGE, SearchTrainer
from slmsearch.training.grpo_settings import make_adapter_config
from slmsearch.training.memory import GIB
from slmsearch.training.training_run import load_trainable
from slmsearch.training.tree import build_trees, check_tree, score_tree

COMPARED_TOKENS, COMPARED_OF_A_LARGE_MODEL, LARGE = 24_000, 4_000, 50_000_000
"""Tokens of the rows whose gradients are compared, fewer with at least `LARGE` weights: row by row memory holds all activations."""

MODEL = "smollm2-135m-instruct"
GROUPS, GROUP, GROUP_ON_CPU, OPENING, TURNS, TURN = 2, 8, 3, 160, 5, 96
"""Sizes of the timed batch: groups, episodes of each, fewer on a CPU, tokens of an opening, turns with results, tokens of one."""
COLUMNS = {"": "{side}", "update, s": "{seconds:.2f}", "tokens a second": "{rate:.0f}", "peak, GiB": "{peak_gib}"}


class _Scorer(SearchTrainer):
    """Attributes of a trainer that scoring needs."""

    def __init__(self, temperature: float) -> None:
        accelerator = SimpleNamespace(autocast=torch.enable_grad, is_main_process=True)
        self.__dict__ |= {"accelerator": accelerator, "temperature": temperature}


def compare_trees(shape: BenchShape, inputs: Mapping[str, Tensor]) -> dict[str, object]:
    """Compare on the inputs of TRL's loss.

    Returns:
        `gradient_difference`: the largest difference of a weight's gradient over the largest gradient, of an adapter and of all weights
        (`gradient_difference_lora`, `_full`) the larger; `tokens_ratio`: tokens computed over different histories.
    """
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    taught = (inputs["completion_mask"] * inputs["tool_mask"]).bool() & (inputs["advantages"].abs() > NO_ADVANTAGE)[:, None]
    rows = taught.any(1).nonzero()[:, 0]
    tokens = COMPARED_TOKENS if shape.parameters < LARGE else COMPARED_OF_A_LARGE_MODEL
    kept = rows[: max(2, tokens // int(real.sum(1).max()))]
    found: dict[str, float] = {}
    for method in ("lora", "full"):
        found[f"gradient_difference_{method}"] = _difference(
            shape, method, (ids[kept], real[kept], taught[kept]), inputs["advantages"][kept]
        )
    return {"gradient_difference": max(found.values()), **found, "tokens_ratio": _count_tokens(ids[rows], real[rows], taught[rows])}


def _difference(shape: BenchShape, method: str, batch: tuple[Tensor, Tensor, Tensor], advantages: Tensor) -> float:
    from peft import get_peft_model
    from trl.trainer.utils import add_fused_lm_head

    ids, real, taught = batch
    model, _ = load_trainable(shape.config.policy.model_copy(update={"dtype": "float32"}))
    model = model.to(ids.device)
    trainer, width = _Scorer(shape.config.train.temperature), taught.shape[1]
    add_fused_lm_head(model, temperature=trainer.temperature, outputs=("log_probs", "entropy"))
    model.requires_grad_(method == "full")
    if method == "lora":
        torch.manual_seed(0)
        model = get_peft_model(model, make_adapter_config(shape.config.train.lora))
        for name, weight in model.named_parameters():  # an adapter begins as nothing: half of its gradient would be 0
            if "lora_B" in name:
                weight.data += 0.02 * torch.randn_like(weight)
    needed = torch.cat([torch.zeros_like(ids[:, :-width], dtype=torch.bool), taught], dim=1)
    gradients = []
    for over_trees in (False, True):
        model.zero_grad()
        with fused_lora(model):
            scored = (
                score_tree(trainer, model, ids, real, needed, width)
                if over_trees
                else trainer.score_rows(model, ids, real, needed, width)[0]
            )
            (scored * advantages[:, None] * taught).sum().div(taught.sum()).backward()
        gradients.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    return max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True)) / largest


def _count_tokens(ids: Tensor, real: Tensor, taught: Tensor) -> float:
    rows: list[list[int]] = []
    for row, mask, needs in zip(ids, real.bool(), taught, strict=True):
        last = int(needs.nonzero().max()) + ids.shape[1] - taught.shape[1]
        rows.append(row[:last][mask[:last]].tolist())
    computed, distinct = (sum(len(tree.ids) for _, tree in build_trees(rows, most, 64)) for most in (TOKENS_PER_BLOCK, 1 << 30))
    return computed / distinct


def catch_inputs(trainer: Any) -> dict[str, Tensor]:
    """Return a mapping in which a trainer leaves the inputs of its last loss."""
    compute, caught = trainer._compute_loss, dict[str, Tensor]()

    def catching(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        caught.update({name: value.detach().clone() for name, value in inputs.items() if isinstance(value, Tensor)})
        loss: Tensor = compute(model, inputs)
        return loss

    trainer._compute_loss = catching
    return caught


def run_trees(layers: int, device: str, runs: int, say: Say) -> Result:
    """Time `runs` updates of each side on a device, with an adapter on random weights; 0 layers take all of the model's."""
    model, shape = _adapted(layers, device)
    trainer, peaks = _Scorer(1.0), dict[str, float]()
    ids, mask, needed = make_episodes(shape.vocab_size, GROUP_ON_CPU if device == "cpu" else GROUP)
    batch = (ids.to(device), mask.to(device), needed.to(device), ids.shape[1] - OPENING)
    sides: dict[str, Callable[..., Tensor]] = {
        "rows": lambda *given: trainer.score_rows(*given)[0],
        "trees": lambda *given: score_tree(trainer, *given),
    }

    def update(side: str) -> float:
        if on_card := device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        sides[side](model, *batch).sum().backward()
        if on_card:
            torch.cuda.synchronize()
            peaks[side] = max(peaks.get(side, 0.0), torch.cuda.max_memory_allocated() / GIB)
        seconds = time.perf_counter() - started
        model.zero_grad()
        say(f"  {side} {seconds:.2f} s")
        return seconds

    with fused_lora(model) if device == "cpu" else nullcontext():
        check = check_tree(trainer, model, *batch)
        times = take_turns({side: partial(update, side) for side in sides}, runs)
    tokens, nodes = int(mask.sum()), sum(len(tree.ids) for _, tree in build_trees(ids.tolist(), 1 << 30, 64))
    found = {
        side: {"seconds": (spread := Spread(taken)), "rate": tokens / spread["median"], "peak_gib": peaks.get(side)}
        for side, taken in times.items()
    }
    machine, ratio = describe_machine("torch", "transformers", "trl", "peft"), median_ratio(times["rows"], times["trees"])
    facts = {"device": name_of(device), "layers": shape.num_hidden_layers, "tokens": tokens, "nodes": nodes}
    kernel = takes_flex(*_heads(shape, model.dtype, device))
    checked = {"one_kernel": kernel, "trees_used": check.passed, "difference": check.as_json()["difference"]}
    notes = (f"{facts['device']}; {machine}", f"rows over trees {ratio:.2f}; {tokens} tokens, of {nodes} different histories")
    values = {"machine": asdict(machine), **facts, **checked, **found, "ratio": ratio}
    return Result(values, (tabulate(COLUMNS, ({"side": side, **one} for side, one in found.items())),), notes)


def _adapted(layers: int, device: str) -> tuple[Any, Any]:
    """Make random weights with an adapter on a device; return them and their shape."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(shape_of(MODEL, layers), dtype=torch.float32 if device == "cpu" else torch.bfloat16)
    use_attention(model)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return get_peft_model(model, make_adapter_config(LoraSection())), model.config


def _heads(shape: Any, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Make a node's query, key and value."""
    size, counts = shape.hidden_size // shape.num_attention_heads, (shape.num_attention_heads, *[shape.num_key_value_heads] * 2)
    return [torch.zeros(count, 1, size, dtype=dtype, device=device) for count in counts]


def make_episodes(vocabulary: int, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Make the timed batch: episodes leave their group one after the other, turn by turn; ids, mask and what is needed, (R, T)."""
    chance = torch.Generator().manual_seed(0)
    rows = torch.randint(1, vocabulary, (GROUPS * group, OPENING + TURNS * TURN), generator=chance)
    turn = (torch.arange(rows.shape[1]) - OPENING).div(TURN, rounding_mode="floor")
    for row in range(len(rows)):
        first, place = row - row % group, row % group
        alike = OPENING + (place * TURNS // group) * TURN if place else 0
        rows[row, : max(alike, OPENING)] = rows[first, : max(alike, OPENING)]
    written = (turn >= 0) & ((torch.arange(rows.shape[1]) - OPENING) % TURN < TURN // 3)  # the rest is what tools answered
    return rows, torch.ones_like(rows), written.repeat(len(rows), 1)
