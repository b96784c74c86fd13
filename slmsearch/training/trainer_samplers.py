"""Samplers over the weights being trained: torch in the same process, or vLLM."""

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch.nn import Linear, Parameter
from trl.models import unwrap_model_for_generation

from slmsearch.artifacts.writers import is_abandoned, writer_mark
from slmsearch.config import PolicyConfig, TrainConfig
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Sampler
from slmsearch.errors import ConfigError
from slmsearch.models.known import split_commit
from slmsearch.sampling.decoder import Decoder
from slmsearch.sampling.engine_sampler import Engine, EngineSampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.sampling.vllm import LORA_RANKS, ColocatedEngine, ServedEngine, served_adapter
from slmsearch.training.block_sizes import MERGE_UP_TO
from slmsearch.training.fused_lora import unchanged_adapters
from slmsearch.training.grpo import AdapterClient
from slmsearch.training.rollout_bridge import OpenSampler


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Create a temporary folder, in memory where there is such a place; first remove those of processes that were killed."""
    memory = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else gettempdir())
    for left in filter(is_abandoned, memory.glob("slmsearch-*-*@*")):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix="slmsearch-", suffix=f"-{writer_mark()}", dir=memory) as name:
        yield Path(name)


def open_torch_sampler(tokenizer: Any, tool_role: str) -> OpenSampler:
    """Open a torch sampler over the trained weights themselves; graphs captured on a card are reused in later steps."""
    renderer, decoder = ChatRenderer(tokenizer, tool_role), Decoder()

    @contextmanager
    def open_sampler(trainer: Any) -> Iterator[Sampler]:
        with sampling_mode(trainer) as model:
            yield TorchSampler(model, tokenizer, tool_role, renderer, decoder)

    return open_sampler


def open_base_sampler(tokenizer: Any, tool_role: str) -> OpenSampler:
    """Open a torch sampler over the weights that training began from: the adapter is disabled meanwhile.

    Raises:
        ConfigError: all weights are trained, so that no frozen base exists.
    """
    renderer, decoder = ChatRenderer(tokenizer, tool_role), Decoder()

    @contextmanager
    def open_sampler(trainer: Any) -> Iterator[Sampler]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not isinstance(model, PeftModel):
            raise ConfigError("planner.worker.kind base needs an adapter to switch off: set train.method to lora, or choose another worker")
        with torch.no_grad(), _eval_mode(trainer), model.disable_adapter():
            yield TorchSampler(model.get_base_model(), tokenizer, tool_role, renderer, decoder)

    return open_sampler


def engine_settings(model: Any, policy: PolicyConfig, train: TrainConfig, use_cpu: bool) -> dict[str, object]:
    """Collect the settings of a loaded policy that vLLM needs and TRL does not pass. A CPU build has no sleep."""
    _, commit = split_commit(policy.model)
    settings: dict[str, object] = {"revision": commit, "tokenizer_revision": commit, "enable_sleep_mode": not use_cpu}
    if train.method == "lora":
        adapter: Any = model.peft_config["default"] if isinstance(model, PeftModel) else train.lora
        settings |= {"enable_lora": True, "max_lora_rank": next((limit for limit in LORA_RANKS if limit >= adapter.r), LORA_RANKS[-1])}
    if policy.dtype != "auto":  # vLLM would load float32 weights in 16 bits
        settings["dtype"] = policy.dtype
    return settings


def open_vllm_sampler(tokenizer: Any, tool_role: str) -> OpenSampler:
    """Sample from the vLLM engine that TRL's trainer has made or is connected to, with the current weights.

    An adapter is passed as an adapter, in a directory of its own in memory, under a name of its own: merging into bfloat16 weights would
    round most of a young adapter away. Where all weights are trained TRL transfers them.

    A colocated engine is awake only meanwhile; its sleep of level 1 keeps the base weights in main memory. Every process of training
    has its own connection to a server, and its own copy of the adapter there: processes need not take the same number of turns.
    """
    numbers = itertools.count(1)

    @contextmanager
    def open_sampler(trainer: Any) -> Iterator[Sampler]:
        generation = trainer.vllm_generation
        model = trainer.accelerator.unwrap_model(trainer.model)
        colocated = generation.mode == "colocate"
        sleeps = colocated and trainer.accelerator.device.type != "cpu"
        if not (colocated or hasattr(generation, "vllm_client")):  # TRL makes a client in the first process only
            generation.vllm_client = AdapterClient(base_url=generation.server_base_url, connection_timeout=generation.server_timeout)
        if sleeps:
            generation.llm.wake_up()
        try:
            with ExitStack() as stack:
                engine: Engine
                if isinstance(model, PeftModel):
                    number, directory = next(numbers), stack.enter_context(folder_in_memory())
                    model.save_pretrained(str(directory), selected_adapters=["default"], save_embedding_layers=False)
                    if colocated:
                        engine = ColocatedEngine(generation.llm, directory, number)
                    else:
                        engine = stack.enter_context(
                            served_adapter(generation.vllm_client, f"{directory.name.partition('@')[0]}-{number}", directory)
                        )
                else:
                    generation.sync_weights()
                    engine = ColocatedEngine(generation.llm) if colocated else ServedEngine(generation.vllm_client)
                yield EngineSampler(engine, tokenizer, tool_role)
        finally:
            if sleeps:
                generation.llm.sleep(level=1)

    return open_sampler


@contextmanager
def sampling_mode(trainer: Any) -> Iterator[Any]:
    """Put the trained model into its state for sampling: wrappers and gradient checkpointing off, eval mode, no gradients; then restore.

    TRL calls `rollout_func` in train mode with gradients on.
    """
    unwrapping = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator)
    with torch.no_grad(), unwrapping as unwrapped, _eval_mode(trainer), merged(unwrapped) as model, unchanged_adapters(model):
        yield model


@contextmanager
def _eval_mode(trainer: Any) -> Iterator[None]:
    was_training = trainer.model.training
    trainer.model.eval()
    try:
        with trainer.accelerator.autocast():
            yield
    finally:
        trainer.model.train(was_training)


@contextmanager
def merged(model: Any) -> Iterator[Any]:
    """Remove PEFT's wrapper; on a CPU also merge the adapter into the weights of a model that is not large, during sampling.

    A small model spends much of its time on the adapter's many small operations. PEFT's own merge and unmerge leave rounding
    errors in the base weights at every step; here the untouched layers are restored. In bfloat16 the policy's text changes about as much as
    by PEFT's own rounding (docs/benchmarks.md), and `policy/kl_sampler` shows it. On a CUDA device nothing is merged: in a graph the small
    operations cost little, and merged weights have other addresses in every step, so that no graph could be kept.
    """
    if not isinstance(model, PeftModel):
        yield model
        return
    base = model.get_base_model()
    adapted = [(name, layer) for name, layer in base.named_modules() if isinstance(layer, LoraLinear)]
    small = sum(weight.numel() for weight in base.parameters()) <= MERGE_UP_TO
    if not small or not all(_takes_merging(layer) for _, layer in adapted):
        yield base
        return
    try:
        for name, layer in adapted:
            _replace(base, name, _merge(layer))
        yield base
    finally:
        for name, layer in adapted:
            _replace(base, name, layer)


def _takes_merging(layer: Any) -> bool:
    weight = layer.base_layer.weight
    plain = type(layer.base_layer) is Linear and not layer.lora_variant and not any(layer.lora_bias.values())  # DoRA is a variant
    return plain and weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)


def _merge(layer: Any) -> Linear:
    base = layer.base_layer.weight
    weight = (base.float() + sum(layer.get_delta_weight(name).float() for name in layer.active_adapters)).to(base.dtype)
    plain = Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    plain.weight, plain.bias = Parameter(weight, requires_grad=False), layer.base_layer.bias
    return plain


def _replace(model: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)
