"""Lends the weights being trained to whatever samples from them: torch in the same process, or vLLM."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch.nn import Linear, Parameter
from trl.models import unwrap_model_for_generation

from slmsearch.errors import ConfigError
from slmsearch.generate.engine_writer import Engine, EngineWriter
from slmsearch.generate.torch_writer import TorchWriter
from slmsearch.generate.vllm import ColocatedEngine, ServedEngine
from slmsearch.generate.writer import Writer

FOLD_UP_TO = 50_000_000
"""Weights a model may have for its adapter to be folded in while episodes are played: it costs a copy of the adapted layers."""

Lend = Callable[[Any], AbstractContextManager[Writer]]
"""Trainer -> writer that samples from its weights, for as long as the context lasts."""


def lend_torch(tokenizer: Any, tool_role: str) -> Lend:
    """Lend to a torch writer over the very weights that are trained."""

    @contextmanager
    def lend(trainer: Any) -> Iterator[Writer]:
        with playable(trainer) as model:
            yield TorchWriter(model, tokenizer, tool_role)

    return lend


def lend_base(tokenizer: Any, tool_role: str) -> Lend:
    """Lend to a torch writer over the weights that training began from: the adapter is off while it writes.

    Raises:
        ConfigError: all weights are trained, so that nothing is frozen.
    """

    @contextmanager
    def lend(trainer: Any) -> Iterator[Writer]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not isinstance(model, PeftModel):
            raise ConfigError("planner.worker.kind base needs an adapter to switch off: set train.method to lora, or choose another worker")
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            with torch.no_grad(), trainer.accelerator.autocast(), model.disable_adapter():
                yield TorchWriter(model.get_base_model(), tokenizer, tool_role)
        finally:
            trainer.model.train(was_training)

    return lend


def lend_vllm(tokenizer: Any, tool_role: str) -> Lend:
    """Lend to the vLLM engine that TRL's trainer has made or is connected to.

    A colocated engine is awake only meanwhile. Level 2 of its sleep drops the weights, so they are carried over anew whenever it has
    slept or the trainer has stepped on.
    """

    @contextmanager
    def lend(trainer: Any) -> Iterator[Writer]:
        generation = trainer.vllm_generation
        sleeps = generation.mode == "colocate" and generation.enable_sleep_mode
        if trainer._last_loaded_step != trainer.state.global_step or (sleeps and generation._llm_weights_sleeping):
            generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
        if sleeps:
            generation.llm.wake_up(tags=["kv_cache"])
        try:
            engine: Engine = ServedEngine(generation.vllm_client) if generation.mode == "server" else ColocatedEngine(generation.llm)
            yield EngineWriter(engine, tokenizer, tool_role)
        finally:
            if sleeps:
                generation.llm.sleep(level=2)
                generation._llm_weights_sleeping = True

    return lend


@contextmanager
def playable(trainer: Any) -> Iterator[Any]:
    """Lend the trained model for sampling: wrappers and gradient checkpointing off, eval mode, no gradients; then restore.

    TRL calls `rollout_func` in train mode with gradients on.
    """
    with torch.no_grad(), unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as unwrapped:
        was_training = trainer.model.training
        trainer.model.eval()
        try:
            with trainer.accelerator.autocast(), folded(unwrapped) as model:
                yield model
        finally:
            trainer.model.train(was_training)


@contextmanager
def folded(model: Any) -> Iterator[Any]:
    """Take PEFT's wrapper off; in a small float32 model fold the adapter into the weights while it is lent, too.

    A small model spends most of its time on the adapter's many little operations. PEFT's own merge and unmerge leave rounding
    errors in the base weights at every step; here the untouched layers are put back.
    """
    if not isinstance(model, PeftModel):
        yield model
        return
    base = model.get_base_model()
    adapted = [(name, layer) for name, layer in base.named_modules() if isinstance(layer, LoraLinear)]
    small = sum(weight.numel() for weight in base.parameters()) <= FOLD_UP_TO
    if not small or any(type(layer.base_layer) is not Linear or layer.base_layer.weight.dtype != torch.float32 for _, layer in adapted):
        yield base
        return
    try:
        for name, layer in adapted:
            _replace(base, name, _fold(layer))
        yield base
    finally:
        for name, layer in adapted:
            _replace(base, name, layer)


def _fold(layer: Any) -> Linear:
    weight = layer.base_layer.weight + sum(layer.get_delta_weight(name) for name in layer.active_adapters)
    plain = Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    plain.weight, plain.bias = Parameter(weight, requires_grad=False), layer.base_layer.bias
    return plain


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
