"""What of a model's shape decides its memory, read from its configuration; no weights are loaded."""

import copy
from dataclasses import dataclass
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.errors import ModelError
from slmsearch.generate.load import check_local, first_line
from slmsearch.models.known import split_commit

_TOKENS = 64
"""Tokens of the passes that are counted; what grows with their square is left out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model's shape decides its memory."""

    parameters: int
    linear_widths: tuple[tuple[int, int], ...]
    """Inputs and outputs of every linear layer that an adapter may sit on."""
    layers: int
    hidden: int
    kv_width: int
    """Key heads times head size."""
    vocabulary: int
    query_width: int
    """Query heads times head size."""
    intermediate: int
    """Widest layer."""
    saved: float
    """Bytes that autograd keeps per token and layer for the backward pass."""


def measure_shape(config: RunConfig, model: str | None = None) -> Shape:
    """Read the shape of a model that is trained as a run says.

    Args:
        config: the run.
        model: directory of another model than the policy's.

    Raises:
        ModelError: the configuration is missing, damaged, or cannot be fetched.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model, revision = split_commit(model or config.policy.model)
    check_local(model, "policy.model", "config.json")
    try:
        read: Any = AutoConfig.from_pretrained(model, revision=revision).get_text_config()
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the shape of model {model!r}: {first_line(error)}; give a path or Hub id in policy.model") from error
    with torch.device("meta"):
        skeleton: Any = AutoModelForCausalLM.from_config(read)
    head = skeleton.get_output_embeddings()
    widths = tuple((m.in_features, m.out_features) for m in skeleton.modules() if isinstance(m, torch.nn.Linear) and m is not head)
    parameters = {id(weight): weight.numel() for weight in skeleton.parameters()}
    heads = getattr(read, "num_key_value_heads", None) or read.num_attention_heads
    size = getattr(read, "head_dim", None) or read.hidden_size // read.num_attention_heads
    return Shape(
        sum(parameters.values()),
        widths,
        read.num_hidden_layers,
        read.hidden_size,
        heads * size,
        read.vocab_size,
        read.num_attention_heads * size,
        max(max(width) for width in widths),
        _count_saved(read, 2, config) - _count_saved(read, 1, config),
    )


def _count_saved(read: Any, layers: int, config: RunConfig) -> float:
    """Count the bytes per token that the forward pass of a model of so many layers keeps for the backward pass."""
    import torch
    from transformers import AutoModelForCausalLM

    read = copy.deepcopy(read)
    read.num_hidden_layers = layers
    if getattr(read, "layer_types", None):
        read.layer_types = read.layer_types[:layers]
    dtype = torch.bfloat16 if config.policy.load_in_4bit else getattr(torch, config.policy.dtype)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(read, dtype=dtype)
        backbone = model.base_model
        if config.train.method == "lora":
            from peft import LoraConfig, get_peft_model

            lora = config.train.lora
            model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=lora.r, target_modules=lora.target_modules))
    weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    ids = torch.zeros(1, _TOKENS, dtype=torch.long, device="meta")
    mask = torch.ones(1, 1, _TOKENS, _TOKENS, dtype=torch.bool, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = backbone(input_ids=ids, attention_mask=mask, use_cache=False)
    del output
    return float(sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)) / _TOKENS
