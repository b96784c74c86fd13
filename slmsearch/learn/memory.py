"""How much memory each phase of a run will need, from its settings and the model's shape, before any weights are loaded.

A phase holds what always stays (weights, optimiser, the copy of the best weights) and what is its own: playing holds the key-value
cache of a batch, the update what autograd keeps of a micro-batch. No two phases need the device at once, so the largest is the peak; a
judge needs it while episodes are played, or always (`judge.loaded`). Every part is the most that there can be:
all episodes as long as the limits allow, no two of a group alike.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slmsearch.config import RunConfig, TrainConfig
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from slmsearch.generate.load import check_local
from slmsearch.models.known import split_commit

GIB = 1 << 30
JUDGE_BYTES = {"qwen2.5:7b": 4.7e9, "qwen2.5:3b": 1.9e9, "phi3:mini": 2.2e9}
"""Weights of judges that Ollama serves, as its library lists them, quantised."""
RUNTIME_BYTES = {"cpu": 0.9e9, "cuda": 0.8e9}
"""Python with its libraries, embedder and corpus; on a GPU the context and its workspaces."""
NF4_BYTES = 0.52
"""Of a weight in 4 bits, with its share of the scales; embedding, head and norms stay 16 bits wide."""
PROMPT_TOKENS = 256
"""Tokens of the opening messages, about, where no tokenizer is at hand."""
CHARS_PER_TOKEN = 3.0
"""Of a tool result: few, so that it comes to many tokens."""
COLUMNS = 64
"""The cache grows by so many tokens at once."""

PREFLIGHT, HELD_OUT, SAMPLING, UPDATE, EVALUATION, SFT = "preflight", "held_out", "sampling", "update", "evaluation", "sft"
"""Playing before the first update; scoring weights; playing a step; learning from it; playing an evaluation; supervised training before
all of them, where `planner.sft.enabled` asks for it."""

ROWS_PER_BLOCK, SHORT, TOKENS_PER_BLOCK = 16, 512, 4096
"""What goes through the model together in the update: a tree of at most so many tokens as the last says, or a longer episode. Row by row,
episodes of similar length, padding cut off: so many where they are short (tokens), otherwise so many that they hold so many tokens."""
KEPT_STATES = 48 << 20
"""Hidden states (tokens x layers x size) of the last blocks of an update that keep their activations on a CPU, at least those of one block:
2,912 tokens of SmolLM2-135M. On a GPU all do: `train.accumulation` says how many there are."""
COUNTED_TOKENS = 64
"""Tokens of the passes by which activations are counted; what grows with their square is left out."""
HEAD_TOKENS, HEAD_COLUMNS = 4096, 32_768
"""The tile in which TRL computes log-probabilities: tokens x part of the vocabulary."""
MERGE_UP_TO = 500_000_000
"""Weights a float32 model may have for its adapter to be merged while episodes are played: it costs a copy of the adapted layers."""
TILE_VALUES = 16 << 20
"""Logits that are float32 at the same time in supervised training (64 MiB); without a limit those of 4,096 tokens of a vocabulary of
151,936 take 2.5 GB, and their gradient as much."""
HEAP_FRAC = 1.1
"""Of the activations: what glibc's heap holds beside them on the CPU. Measured with SmolLM2-135M, two episodes of 513 tokens and two of
961."""


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
    """Read from its configuration the shape of the policy's model, or of another one, as a run trains it; no weights are loaded.

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
        raise ModelError(f"cannot read the shape of model {model!r}: {cause_of(error)}; give a path or Hub id in policy.model") from error
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
        read.layer_types = (read.layer_types * layers)[:layers]
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

    ids = torch.zeros(1, COUNTED_TOKENS, dtype=torch.long, device="meta")
    mask = torch.ones(1, 1, COUNTED_TOKENS, COUNTED_TOKENS, dtype=torch.bool, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = backbone(input_ids=ids, attention_mask=mask, use_cache=False)
    del output
    return float(sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)) / COUNTED_TOKENS


@dataclass(frozen=True, slots=True)
class Part:
    """One consumer of memory."""

    name: str
    num_bytes: float
    setting: str
    """What to change to make it smaller; empty where nothing can."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What each phase needs, and what the device has."""

    device: str
    phases: Mapping[str, tuple[Part, ...]]
    """All that is held in a phase, by its name."""
    available: float
    """Bytes the device has free."""

    def needs(self, phase: str) -> float:
        """Bytes of a phase."""
        return sum(part.num_bytes for part in self.phases[phase])

    @property
    def worst(self) -> str:
        """The phase that needs most."""
        return max(self.phases, key=self.needs)

    @property
    def peak(self) -> float:
        """Bytes at the worst moment."""
        return self.needs(self.worst)

    @property
    def largest(self) -> Part:
        """The largest part of the peak that a setting can make smaller."""
        return max((part for part in self.phases[self.worst] if part.setting), key=lambda part: part.num_bytes)

    def render(self) -> str:
        """Write the plan as lines."""
        lines = []
        for phase, parts in self.phases.items():
            lines += [f"  {phase:10}  {part.name:<30} {part.num_bytes / GIB:8.2f} GiB" for part in parts]
            lines.append(f"  {phase:10}  {'':<30} {self.needs(phase) / GIB:8.2f} GiB")
        peak = f"{self.peak / GIB:.2f} of {self.available / GIB:.2f} GiB on {self.device}, in {self.worst}"
        return "\n".join([*lines, f"  peak {peak}"])


def count_trained(train: TrainConfig, shape: Shape) -> int:
    """Count the weights that learn."""
    return shape.parameters if train.method == "full" else sum(train.lora.r * (a + b) for a, b in shape.linear_widths)


def plan_memory(config: RunConfig, shape: Shape, available: Mapping[str, float], prompt_tokens: int = PROMPT_TOKENS) -> MemoryPlan:
    """Plan the memory of a training run and of its evaluations; `available` are free bytes of `cpu` and, where there is one, of `cuda`."""
    device = "cuda" if config.policy.device != "cpu" and "cuda" in available else "cpu"
    planner = _Planner(config, shape, device, prompt_tokens)
    train, judge = config.train, config.judge
    judged = Part("judge", JUDGE_BYTES.get(judge.model, 5e9), "judge.loaded")
    beside = judge.kind == "ollama" and device == "cuda"
    always = (planner.weights, Part("runtime", RUNTIME_BYTES[device], ""), *((judged,) if beside and judge.loaded == "always" else ()))
    meanwhile = (judged,) if beside and judge.loaded == "sampling" else ()
    episodes = train.questions_per_step * train.group_size // train.num_processes
    batch = config.evaluate.batch_size

    def playing(rows: int, prompts: int, setting: str) -> tuple[Part, ...]:
        if train.vllm.mode == "off":
            return (*planner.playing(rows, prompts, setting), *planner.merged, *meanwhile)
        engine = Part("vLLM", train.vllm.gpu_memory_frac * available[device], "train.vllm.gpu_memory_frac")
        return (engine, *meanwhile) if train.vllm.mode == "colocate" else meanwhile

    learning = (*always, planner.learning)
    phases = {
        PREFLIGHT: (*learning, *playing(batch, -(-batch // train.group_size), "evaluate.batch_size")),
        HELD_OUT: (*learning, *playing(batch, batch, "evaluate.batch_size")),
        SAMPLING: (*learning, *playing(episodes, -(-episodes // train.group_size), "train.questions_per_step")),
        UPDATE: (*learning, *planner.updating(episodes // train.accumulation)),
        EVALUATION: (*always, *planner.playing(batch, batch, "evaluate.batch_size"), *meanwhile),
    }
    if config.planner.sft.enabled:
        phases[SFT] = (*learning, *planner.imitating())
    return MemoryPlan(device, phases, available[device])


@dataclass(frozen=True, slots=True)
class _Planner:
    """Counts the parts of one run on one device."""

    config: RunConfig
    shape: Shape
    device: str
    prompt_tokens: int

    @property
    def width(self) -> int:
        """Bytes of an activation."""
        return 4 if self.config.policy.dtype == "float32" else 2

    @property
    def tokens(self) -> int:
        """Of the longest episode, prompt included."""
        return self.prompt_tokens + environment_of(self.config).limits_of(self.config).max_episode_tokens

    @property
    def weights(self) -> Part:
        """The model."""
        policy = self.config.policy
        if policy.load_in_4bit:
            linear = sum(inputs * outputs for inputs, outputs in self.shape.linear_widths)
            return Part("weights", NF4_BYTES * linear + 2 * (self.shape.parameters - linear), "policy.model")
        return Part("weights", self.shape.parameters * self.width, "policy.dtype" if self.width == 4 else "policy.load_in_4bit")

    @property
    def learning(self) -> Part:
        """What stays for learning: gradient, two moments, the copy of the best weights; an adapter is there itself, too."""
        trained = count_trained(self.config.train, self.shape)
        if self.config.train.method == "full":  # learns the weights in place, in their own precision
            return Part("gradient, optimiser, best", trained * 4 * self.width, "train.method")
        return Part("adapter, gradient, optimiser, best", trained * 5 * 4, "train.lora.r")

    @property
    def merged(self) -> tuple[Part, ...]:
        """The copy of the adapted layers while training plays, where there is one."""
        linear = sum(inputs * outputs for inputs, outputs in self.shape.linear_widths)
        wanted = self.config.train.method == "lora" and self.device == "cpu" and not self.config.policy.load_in_4bit
        return (Part("merged layers", self.width * linear, "policy.dtype"),) if wanted and self.shape.parameters <= MERGE_UP_TO else ()

    def playing(self, rows: int, prompts: int, setting: str) -> tuple[Part, ...]:
        """Count what a batch of `rows` episodes with so many different openings holds; `setting` makes it smaller."""
        shape, limits = self.shape, environment_of(self.config).limits_of(self.config)
        result = min(int(limits.max_result_chars / CHARS_PER_TOKEN), limits.max_episode_tokens)
        # Lines are as long as the longest of a batch, and what is fed to all as wide as the widest.
        columns = -(-(self.tokens + 1) // COLUMNS) * COLUMNS
        layer = 2 * shape.kv_width * self.width * rows * columns
        fed = max(prompts * self.prompt_tokens, rows * result)
        passing = fed * (4 * shape.hidden + 2 * shape.query_width + 4 * shape.intermediate) * self.width
        seen = 8 * fed * columns + 2 * rows * columns * shape.query_width * self.width
        return (
            Part("key-value cache", shape.layers * layer, setting),
            Part("cache being moved", 3 * layer, setting),
            Part("one layer of what is fed", passing + seen, setting),
            Part("logits", 40 * rows * shape.vocabulary, setting),
        )

    def updating(self, rows: int) -> tuple[Part, ...]:
        """Count what a micro-batch of so many episodes holds: its blocks until the backward pass."""
        block = min(rows * self.tokens, max(TOKENS_PER_BLOCK, self.tokens))
        # Without Triton every operation on the tile makes another, nine at once in the backward pass.
        tile = min(block, HEAD_TOKENS) * HEAD_COLUMNS * (4 * 9 if self.device == "cpu" else self.width)
        kept = rows * self.tokens
        if self.device == "cpu":
            kept = min(kept, max(block, KEPT_STATES // (self.shape.layers * self.shape.hidden)))
        return self._learning_from(kept, block, tile, "train.accumulation")

    def imitating(self) -> tuple[Part, ...]:
        """Count what a micro-batch of examples holds: its tokens, or those of the longest example."""
        tokens = max(self.config.sft.tokens_per_batch, self.config.planner.sft.max_tokens)
        # Logits, their softmax and their gradient.
        return self._learning_from(tokens, tokens, 3 * 4 * TILE_VALUES, "planner.sft.max_tokens")

    def _learning_from(self, tokens: int, block: int, tile: int, setting: str) -> tuple[Part, ...]:
        """Count what an update holds: `tokens` until the backward pass, `block` of them together in a layer, `tile` bytes at the head."""
        shape, cut, width = self.shape, setting, self.width
        kept = tokens * shape.layers * shape.saved
        setting = "train.gradient_checkpointing"
        if self.config.train.gradient_checkpointing:
            kept, setting = tokens * shape.layers * shape.hidden * width + block * shape.saved, cut
        return (
            Part("activations", kept, setting),
            *((Part("freed, kept by the allocator", HEAP_FRAC * kept, setting),) if self.device == "cpu" else ()),
            Part("one layer of the backward pass", block * (4 * shape.intermediate + 4 * shape.hidden) * width, cut),
            Part("log-probabilities", tile + 4 * tokens * shape.hidden * width, cut),
            Part("step of the optimiser", 8.0 * count_trained(self.config.train, shape), "train.lora.r"),
        )


def measure_available() -> dict[str, float]:
    """Measure the free memory of this machine and of its first GPU, bytes."""
    import psutil
    import torch

    free = {"cpu": float(psutil.virtual_memory().available)}
    if torch.cuda.is_available():
        free["cuda"] = float(torch.cuda.mem_get_info()[0])
    return free
