"""How far updates over trees are from row-wise ones, on the batch of a measured step: gradients in float32, and tokens computed."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from slmsearch.bench.shapes import Shape
from slmsearch.learn.fused_lora import fused_lora
from slmsearch.learn.grpo import NO_ADVANTAGE, SearchTrainer, make_adapter_config
from slmsearch.learn.memory import TOKENS_PER_BLOCK
from slmsearch.learn.training import load_trainable
from slmsearch.learn.tree import build_trees, score_tree

COMPARED_TOKENS, COMPARED_OF_A_LARGE_MODEL, LARGE = 24_000, 4_000, 50_000_000
"""Tokens of the rows whose gradients are compared, and of models with so many weights: row by row all activations lie in memory at once."""


class _Scorer(SearchTrainer):
    """What scoring needs of a trainer."""

    def __init__(self, temperature: float) -> None:
        accelerator = SimpleNamespace(autocast=torch.enable_grad, is_main_process=True)
        self.__dict__ |= {"accelerator": accelerator, "temperature": temperature}


def compare_trees(shape: Shape, inputs: Mapping[str, Tensor]) -> dict[str, object]:
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


def _difference(shape: Shape, method: str, batch: tuple[Tensor, Tensor, Tensor], advantages: Tensor) -> float:
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
    """Let a trainer leave the inputs of its last loss in the mapping that is returned."""
    compute, caught = trainer._compute_loss, dict[str, Tensor]()

    def catching(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        caught.update({name: value.detach().clone() for name, value in inputs.items() if isinstance(value, Tensor)})
        loss: Tensor = compute(model, inputs)
        return loss

    trainer._compute_loss = catching
    return caught
