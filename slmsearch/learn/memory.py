"""How much memory a run will need, from its settings and the model's shape, before anything is loaded.

Sampling and updating never need the device at once, and a judge needs it while sampling (`judge.overlap`) or always
(`judge.keep_loaded`): the peak is what always stays (weights, optimiser) plus the larger of sampling and updating. Activations per
token and layer: 34 x hidden size bytes at 16 bits, attention scores not kept (Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models", section 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.errors import ModelError
from slmsearch.evaluate.systems import limits_of
from slmsearch.generate.load import check_local, first_line

GIB = 1 << 30
JUDGE_BYTES = {"qwen2.5:7b": 4.7e9, "qwen2.5:3b": 1.9e9, "phi3:mini": 2.2e9}
"""Weights of judges that Ollama serves, as its library lists them (4-bit)."""
RUNTIME_BYTES = {"cpu": 0.9e9, "cuda": 0.8e9}
"""Python with its libraries, embedder and corpus; on a GPU the context and its workspaces."""
NF4_BYTES = 0.55
"""Of a weight in 4 bits, with its share of the scales and of the layers that stay as they are."""
PROMPT_TOKENS = 256
"""Tokens of the opening messages, about."""


@dataclass(frozen=True, slots=True)
class Part:
    """One consumer of memory."""

    name: str
    num_bytes: float
    setting: str
    """What to change to make it smaller; empty where nothing can."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Parts of the plan, and what the device has."""

    device: str
    always: tuple[Part, ...]
    sampling: tuple[Part, ...]
    updating: tuple[Part, ...]
    available: float
    """Bytes the device has free."""

    @property
    def peak(self) -> float:
        """Bytes at the worst moment."""
        return _total(self.always) + max(_total(self.sampling), _total(self.updating))

    @property
    def largest(self) -> Part:
        """The largest part of the peak that a setting can make smaller."""
        phase = max(self.sampling, self.updating, key=_total)
        return max((part for part in (*self.always, *phase) if part.setting), key=lambda part: part.num_bytes)

    def render(self) -> str:
        """Write the plan as lines."""
        lines = []
        for phase, parts in (("always", self.always), ("sampling", self.sampling), ("updating", self.updating)):
            lines += [f"  {phase:9}  {part.name:<28} {part.num_bytes / GIB:8.2f} GiB" for part in parts]
        peak = f"{self.peak / GIB:.2f} of {self.available / GIB:.2f} GiB on {self.device}"
        return "\n".join([*lines, f"  peak {peak}"])


def _total(parts: tuple[Part, ...]) -> float:
    return sum(part.num_bytes for part in parts)


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


def measure_shape(model: str, revision: str | None = None) -> Shape:
    """Read a model's shape from its configuration; no weights are loaded.

    Args:
        model: path or Hub id.
        revision: commit on the Hub.

    Raises:
        ModelError: the configuration is missing, damaged, or cannot be fetched.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    check_local(model, "policy.model", "config.json")
    try:
        config: Any = AutoConfig.from_pretrained(model, revision=revision).get_text_config()
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the shape of model {model!r}: {first_line(error)}; give a path or Hub id in policy.model") from error
    with torch.device("meta"):
        skeleton: Any = AutoModelForCausalLM.from_config(config)
    head = skeleton.get_output_embeddings()
    widths = tuple((m.in_features, m.out_features) for m in skeleton.modules() if isinstance(m, torch.nn.Linear) and m is not head)
    parameters = {id(weight): weight.numel() for weight in skeleton.parameters()}
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Shape(sum(parameters.values()), widths, config.num_hidden_layers, config.hidden_size, heads * size, config.vocab_size)


def count_trained(config: RunConfig, shape: Shape) -> int:
    """Count the weights that learn."""
    if config.train.method == "full":
        return shape.parameters
    return sum(config.train.lora.r * (a + b) for a, b in shape.linear_widths)


def plan_memory(config: RunConfig, shape: Shape, available: Mapping[str, float]) -> MemoryPlan:
    """Plan the memory of a training run.

    Args:
        config: the run.
        shape: of the policy's model.
        available: free bytes of `cpu` and, where there is one, of `cuda`.
    """
    train, limits = config.train, limits_of(config)
    device = "cuda" if config.policy.device != "cpu" and "cuda" in available else "cpu"
    width = 4 if config.policy.dtype == "float32" else 2
    per_weight = NF4_BYTES if config.policy.load_in_4bit else width
    trained = count_trained(config, shape)
    weights_setting = "policy.dtype" if per_weight == 4 else "policy.model" if config.policy.load_in_4bit else "policy.load_in_4bit"
    # A full run learns the weights in place; an adapter is kept beside them.
    learning = Part("adapter, gradient, optimiser", trained * 16, "train.lora.r")
    if train.method == "full":
        learning = Part("gradient, optimiser", trained * (width + 8), "train.method")
    episodes = train.questions_per_step * train.group_size // train.num_processes
    rows = episodes // train.accumulation
    turns = 1 if config.system == "planner" else min(config.searcher.max_turns, 4)
    tokens = PROMPT_TOKENS + limits.max_episode_tokens
    kept = 2 * shape.hidden if train.gradient_checkpointing else 34 * shape.hidden
    activations = rows * tokens * shape.layers * kept * width / 2
    if train.gradient_checkpointing:
        activations += rows * tokens * 34 * shape.hidden * width / 2
    always = [
        Part("weights", shape.parameters * per_weight, weights_setting),
        learning,
        Part("runtime", RUNTIME_BYTES[device], ""),
    ]
    judge = Part("judge", JUDGE_BYTES.get(config.judge.model, 5e9), "judge.keep_loaded" if config.judge.keep_loaded else "judge.overlap")
    beside = config.judge.kind == "ollama" and device == "cuda"
    if beside and config.judge.keep_loaded:
        always.append(judge)
    sampling: tuple[Part, ...] = (
        Part("key-value cache", 2 * shape.layers * shape.kv_width * width * episodes * tokens, "train.questions_per_step"),
        Part("logits", 3 * 4 * episodes * shape.vocabulary, "train.questions_per_step"),
    )
    if train.vllm.mode == "colocate":
        sampling = (Part("vLLM", train.vllm.gpu_memory_frac * available[device], "train.vllm.gpu_memory_frac"),)
    elif train.vllm.mode == "server":
        sampling = ()
    if beside and config.judge.overlap and not config.judge.keep_loaded:
        sampling += (judge,)
    updating = (
        Part("activations", activations, "train.accumulation" if train.gradient_checkpointing else "train.gradient_checkpointing"),
        Part("logits", 3 * 4 * rows * limits.max_turn_tokens * turns * shape.vocabulary, "train.accumulation"),
    )
    return MemoryPlan(device, tuple(always), sampling, updating, available[device])


def measure_available() -> dict[str, float]:
    """Measure the free memory of this machine and of its first GPU, bytes."""
    import psutil
    import torch

    free = {"cpu": float(psutil.virtual_memory().available)}
    if torch.cuda.is_available():
        free["cuda"] = float(torch.cuda.mem_get_info()[0])
    return free
