"""Memory plan of a run: how much each phase needs, from its settings and the model's shape, before any weights are loaded.

A phase holds what always stays (weights, optimiser, the copy of the best weights) and its own share: playing holds the key-value cache of
a batch, the update what autograd keeps of a micro-batch or of a part of it (`parts.py`), supervised training that of a micro-batch of
demonstrations. No two phases need the device at once, so the largest is the peak; a judge needs it while episodes are played, or always
(`judge.loaded`). Every part is an upper bound: all episodes are as long as the limits allow and share only a group's opening.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from slmsearch.config import PolicyConfig, RunConfig, TrainConfig
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ModelError
from slmsearch.foreign import cause_of
from slmsearch.models.known import split_commit
from slmsearch.models.load import check_local
from slmsearch.processes.memory_limit import left_in_cgroup
from slmsearch.training.block_sizes import CHECKED_COLUMNS, CHECKED_TOKENS, KEPT_STATES, MERGE_UP_TO, TILE_VALUES, TOKENS_PER_BLOCK

GIB = 1 << 30
JUDGE_BYTES = {"qwen2.5:7b": 4.7e9, "qwen2.5:3b": 1.9e9, "phi3:mini": 2.2e9}
"""Weights of judges that Ollama serves, as its library lists them, quantised."""
RUNTIME_BYTES = {"cpu": 0.9e9, "cuda": 0.8e9}
"""Python with its libraries, embedder and corpus; on a GPU the context and its workspaces."""
NF4_BYTES = 0.52
"""Bytes of a weight in 4 bits, with its share of the scales; embedding, head and norms stay 16 bits wide."""
PROMPT_TOKENS = 256
"""Approximate tokens of the opening messages, where no tokenizer is at hand."""
CHARS_PER_TOKEN = 3.0
"""Characters per token of a tool result: few, for an upper bound of tokens."""
COLUMNS = 64
"""Columns by which the cache grows at once."""

PREFLIGHT, HELD_OUT, SAMPLING, UPDATE, EVALUATION, SFT = "preflight", "held_out", "sampling", "update", "evaluation", "sft"
"""Phases: playing before the first update; scoring weights; playing a step; learning from it; playing an evaluation; supervised training
before all of them, where `planner.sft.enabled` is set."""

PART_NODES, PART_VALUES = (16_384, 8192, 4096, 2048, 1024), 8 << 20
"""Nodes of a part of an update on one CUDA device (powers of two, as flex attention has them): the fewest with `PART_VALUES` hidden
values in a layer, or what memory allows. With fewer the host cannot keep the card busy: a part of SmolLM2 is some 5,000 kernels at any
size, and with 4,096 nodes an H100 was 20 % busy."""
MEMORY_FRAC = 0.95
"""Share of the free memory that a plan may use."""
HEAP_FRAC = 1.1
"""Memory that glibc's heap holds beside the activations on the CPU, as a share of them. Measured with SmolLM2-135M, two episodes of 513
tokens and two of 961."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Numbers of a model's shape that decide its memory."""

    parameters: int
    linear_widths: tuple[tuple[int, int], ...]
    """Inputs and outputs of every linear layer that may have an adapter."""
    layers: int
    hidden: int
    kv_width: int
    """Key heads times head size."""
    vocabulary: int
    query_width: int
    """Query heads times head size."""
    intermediate: int
    """Width of the widest layer."""
    saved: float
    """Bytes that autograd keeps per token and layer for the backward pass of an update."""
    saved_in_sft: float
    """Bytes that autograd keeps per token and layer in supervised training."""
    width: int = 4
    """Bytes of a weight where `policy.dtype` leaves them to the model."""


def measure_shape(config: RunConfig, model: str | None = None) -> ModelShape:
    """Read the shape of the policy's model, or of another one, from its configuration, as a run trains it; no weights are loaded.

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
    named = config.policy.dtype if config.policy.dtype != "auto" else str(read.dtype or "float32").removeprefix("torch.")
    dtype = getattr(torch, named)
    return ModelShape(
        sum(parameters.values()),
        widths,
        read.num_hidden_layers,
        read.hidden_size,
        heads * size,
        read.vocab_size,
        read.num_attention_heads * size,
        max(max(width) for width in widths),
        *_count_saved(read, config.policy, config.train, config.sft.lora, dtype),
        dtype.itemsize,
    )


def _count_saved(read: Any, policy: PolicyConfig, train: TrainConfig, own: bool, dtype: Any) -> tuple[float, float]:
    """Count the bytes per token and layer that an update keeps, and those that supervised training keeps, of an adapter if `own`."""
    import torch

    from slmsearch.training.saved import Pass, count_saved

    on_card = policy.device != "cpu"
    lora = train.lora if train.method == "lora" else None
    fused = lora is not None and not policy.load_in_4bit and not (on_card and train.num_processes > 1)
    update = Pass(dtype, lora, on_card and dtype != torch.float32, fused)
    sft = Pass(dtype if own else torch.float32, train.lora if own else None, True, own and not policy.load_in_4bit, lowered=True)
    return count_saved(read, update), count_saved(read, sft)


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One consumer of memory."""

    name: str
    num_bytes: float
    setting: str
    """Setting that makes the part smaller; empty where there is none."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Needs of each phase, and the device's free memory."""

    device: str
    phases: Mapping[str, tuple[MemoryPart, ...]]
    """All parts that a phase holds, by its name."""
    available: float
    """Free bytes of the device."""
    part_nodes: int = 0
    """Nodes of a part of an update, see `parts.py`; 0: its micro-batches are not cut."""

    def needs(self, phase: str) -> float:
        """Return the bytes of a phase."""
        return sum(part.num_bytes for part in self.phases[phase])

    @property
    def worst(self) -> str:
        """Phase that needs most."""
        return max(self.phases, key=self.needs)

    @property
    def peak(self) -> float:
        """Bytes at the worst moment."""
        return self.needs(self.worst)

    @property
    def largest(self) -> MemoryPart:
        """Largest part of the peak that a setting can make smaller."""
        return max((part for part in self.phases[self.worst] if part.setting), key=lambda part: part.num_bytes)

    def render(self) -> str:
        """Write the plan as lines."""
        lines = []
        for phase, parts in self.phases.items():
            lines += [f"  {phase:10}  {part.name:<30} {part.num_bytes / GIB:8.2f} GiB" for part in parts]
            lines.append(f"  {phase:10}  {'':<30} {self.needs(phase) / GIB:8.2f} GiB")
        peak = f"{self.peak / GIB:.2f} of {self.available / GIB:.2f} GiB on {self.device}, in {self.worst}"
        return "\n".join([*lines, f"  peak {peak}"])


def count_trained(train: TrainConfig, shape: ModelShape) -> int:
    """Count the weights that are trained."""
    return shape.parameters if train.method == "full" else sum(train.lora.r * (a + b) for a, b in shape.linear_widths)


def plan_memory(config: RunConfig, shape: ModelShape, available: Mapping[str, float], prompt_tokens: int = PROMPT_TOKENS) -> MemoryPlan:
    """Plan the memory of a training run and of its evaluations.

    Args:
        config: settings of the run.
        shape: layers and widths of the policy's model.
        available: free bytes of `cpu` and, where there is one, of `cuda`.
        prompt_tokens: tokens of the opening messages.
    """
    device = "cuda" if config.policy.device != "cpu" and "cuda" in available else "cpu"
    planner = _Planner(config, shape, device, prompt_tokens)
    train, judge = config.train, config.judge
    judged = MemoryPart("judge", JUDGE_BYTES.get(judge.model, 5e9), "judge.loaded")
    beside = judge.kind == "ollama" and device == "cuda"
    always = (
        planner.weights,
        MemoryPart("runtime", RUNTIME_BYTES[device], ""),
        *((judged,) if beside and judge.loaded == "always" else ()),
    )
    meanwhile = (judged,) if beside and judge.loaded == "sampling" else ()
    episodes = train.questions_per_step * train.group_size // train.num_processes
    batch = config.evaluate.batch_size

    def playing(rows: int, prompts: int, setting: str) -> tuple[MemoryPart, ...]:
        if train.vllm.mode == "off":
            return (*planner.playing(rows, prompts, setting), *planner.merged, *meanwhile)
        engine = MemoryPart("vLLM", train.vllm.gpu_memory_frac * available[device], "train.vllm.gpu_memory_frac")
        return (engine, *meanwhile) if train.vllm.mode == "colocate" else meanwhile

    # A worked example is at most as long as an episode.
    prompted = replace(planner, prompt_tokens=prompt_tokens + config.evaluate.shots * environment_of(config).limits.max_episode_tokens)
    learning = (*always, planner.learning)
    nodes = planner.fit_nodes(sum(part.num_bytes for part in learning), available[device])
    phases = {
        PREFLIGHT: (*learning, *playing(batch, -(-batch // train.group_size), "evaluate.batch_size")),
        HELD_OUT: (*learning, *playing(batch, batch, "evaluate.batch_size")),
        SAMPLING: (*learning, *playing(episodes, -(-episodes // train.group_size), "train.questions_per_step")),
        UPDATE: (*learning, *planner.updating(episodes // train.accumulation, nodes)),
        EVALUATION: (*always, *prompted.playing(batch, batch, "evaluate.batch_size"), *meanwhile),
    }
    if config.planner.sft.enabled or config.sft.start != "none":
        phases[SFT] = (*always[1:], *planner.imitating())
    return MemoryPlan(device, phases, available[device], nodes)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Memory planner of one run on one device."""

    config: RunConfig
    shape: ModelShape
    device: str
    prompt_tokens: int

    @property
    def width(self) -> int:
        """Bytes of an activation."""
        named = self.config.policy.dtype
        return self.shape.width if named == "auto" else 4 if named == "float32" else 2

    @property
    def tokens(self) -> int:
        """Tokens of the longest episode, prompt included."""
        return self.prompt_tokens + environment_of(self.config).limits.max_episode_tokens

    @property
    def weights(self) -> MemoryPart:
        """Weights of the model."""
        policy = self.config.policy
        if policy.load_in_4bit:
            linear = sum(inputs * outputs for inputs, outputs in self.shape.linear_widths)
            return MemoryPart("weights", NF4_BYTES * linear + self.width * (self.shape.parameters - linear), "policy.model")
        return MemoryPart("weights", self.shape.parameters * self.width, "policy.dtype" if self.width == 4 else "policy.load_in_4bit")

    @property
    def learning(self) -> MemoryPart:
        """Memory that stays for learning: gradient, two moments, the copy of the best weights, and the adapter if there is one."""
        trained = count_trained(self.config.train, self.shape)
        if self.config.train.method == "full":  # learns the weights in place, in their own precision
            return MemoryPart("gradient, optimiser, best", trained * 4 * self.width, "train.method")
        return MemoryPart("adapter, gradient, optimiser, best", trained * 5 * 4, "train.lora.r")

    @property
    def merged(self) -> tuple[MemoryPart, ...]:
        """Copy of the adapted layers while training plays, where there is one."""
        linear = sum(inputs * outputs for inputs, outputs in self.shape.linear_widths)
        wanted = self.config.train.method == "lora" and self.device == "cpu" and not self.config.policy.load_in_4bit
        return (
            (MemoryPart("merged layers", self.width * linear, "policy.dtype"),) if wanted and self.shape.parameters <= MERGE_UP_TO else ()
        )

    def playing(self, rows: int, prompts: int, setting: str) -> tuple[MemoryPart, ...]:
        """Count the memory of playing a batch of `rows` episodes with `prompts` different openings; `setting` makes it smaller."""
        shape, limits = self.shape, environment_of(self.config).limits
        result = min(int(limits.max_result_chars / CHARS_PER_TOKEN), limits.max_episode_tokens)
        # Cache slots are as long as the longest of a batch, and a fed block as wide as the widest.
        columns = -(-(self.tokens + 1) // COLUMNS) * COLUMNS
        layer = 2 * shape.kv_width * self.width * rows * columns
        fed = max(prompts * self.prompt_tokens, rows * result)
        passing = fed * (4 * shape.hidden + 2 * shape.query_width + 4 * shape.intermediate) * self.width
        seen = 8 * fed * columns + 2 * rows * columns * shape.query_width * self.width
        return (
            MemoryPart("key-value cache", shape.layers * layer, setting),
            MemoryPart("cache being moved", 3 * layer, setting),
            MemoryPart("one layer of what is fed", passing + seen, setting),
            MemoryPart("logits", 40 * rows * shape.vocabulary, setting),
        )

    def fit_nodes(self, held: float, available: float) -> int:
        """Choose the nodes of a part so that an update fits beside `held` bytes; 0 where updates are not cut.

        On a CPU the model alone decides, so that the same seed trains the same bytes however much memory is free.
        """
        train = self.config.train
        if train.num_processes > 1:
            return 0
        if self.device == "cpu":
            return min(TOKENS_PER_BLOCK, max(PART_NODES[-1], KEPT_STATES // (self.shape.layers * self.shape.hidden)))
        rows = train.questions_per_step * train.group_size // train.accumulation
        wanted = min((nodes for nodes in PART_NODES if nodes * self.shape.hidden >= PART_VALUES), default=PART_NODES[0])
        needs = {nodes: held + sum(part.num_bytes for part in self.updating(rows, nodes)) for nodes in PART_NODES if nodes <= wanted}
        return next((nodes for nodes, bytes_needed in needs.items() if bytes_needed <= MEMORY_FRAC * available), PART_NODES[-1])

    def updating(self, rows: int, nodes: int) -> tuple[MemoryPart, ...]:
        """Count the memory of a micro-batch of `rows` episodes: its blocks until the backward pass, or a part of `nodes` nodes."""
        openings = -(-rows // self.config.train.group_size)
        distinct = openings * self.prompt_tokens + rows * (self.tokens - self.prompt_tokens)
        block = min(distinct, max(nodes or TOKENS_PER_BLOCK, self.tokens))
        kept = block if nodes else distinct
        held = Held(kept, block, self._again(kept, block), self.shape.saved, self.width)
        return count_held(self.config.train, self.shape, self.device, held, "policy.model" if nodes else "train.accumulation")

    def _again(self, kept: int, block: int) -> int:
        """Count the nodes that a tree's attention holds in addition: padding nodes on a card, elsewhere histories that a call takes."""
        from slmsearch.models.flex import filled_up

        return kept // block * (filled_up(block) - block) if self.device == "cuda" else kept

    def imitating(self) -> tuple[MemoryPart, ...]:
        """Count the memory of supervised training: the model as it learns, and a micro-batch of examples or its longest one."""
        config, shape = self.config, self.shape
        longest = config.planner.sft.max_tokens if config.planner.sft.enabled else self.tokens
        setting = "planner.sft.max_tokens" if config.planner.sft.enabled else "sft.tokens_per_batch"
        tokens = max(config.sft.tokens_per_batch, longest)
        whole = not config.sft.lora
        held = (
            (
                MemoryPart("weights", shape.parameters * 4, "sft.lora"),
                MemoryPart("gradient, optimiser", shape.parameters * 3 * 4, "sft.lora"),
            )
            if whole
            else (self.weights, self.learning)
        )
        again = self._again(tokens, tokens) if config.sft.batch_size else 0
        taught = Held(tokens, tokens, again, shape.saved_in_sft, self.width)
        return (*held, *count_held(config.train, shape, self.device, taught, setting))


class Held(NamedTuple):
    """Tokens that an update holds."""

    kept: int
    """Tokens until the backward pass."""
    block: int
    """Tokens of these that go through a layer together."""
    again: int
    """Tokens whose queries, keys and values attention holds once more."""
    saved: float
    """Bytes that autograd keeps of a token in a layer."""
    width: int
    """Bytes of an activation."""


def count_held(train: TrainConfig, shape: ModelShape, device: str, held: Held, setting: str) -> tuple[MemoryPart, ...]:
    """Count the memory of an update beside what always stays; `setting` makes it smaller."""
    kept, block, again, saved, width = held
    cut, beside = setting, again * 2 * (shape.query_width + shape.kv_width) * width
    activations = shape.layers * (kept * saved + beside)
    layer: float = block * (4 * shape.intermediate + 4 * shape.hidden) * width
    setting = "train.gradient_checkpointing"
    if train.gradient_checkpointing:
        activations, layer, setting = float(kept * shape.layers * shape.hidden * width), block * saved + beside, cut
    # Logits, their inputs and their gradient.
    head = 3 * 4 * min(TILE_VALUES, kept * shape.vocabulary)
    if device == "cpu":  # without Triton every operation on the tile makes a copy, nine at once
        head = max(head, min(block, CHECKED_TOKENS) * CHECKED_COLUMNS * 4 * 9)
    return (
        MemoryPart("activations", activations, setting),
        *((MemoryPart("freed, kept by the allocator", HEAP_FRAC * activations, setting),) if device == "cpu" else ()),
        MemoryPart("one layer of the backward pass", layer, cut),
        MemoryPart("log-probabilities", head + 4 * kept * shape.hidden * width, cut),
        MemoryPart("step of the optimiser", 8.0 * count_trained(train, shape), "train.lora.r"),
    )


def measure_available() -> dict[str, float]:
    """Measure the free memory of this machine and of its first GPU, in bytes."""
    import psutil
    import torch

    free = {"cpu": min(float(psutil.virtual_memory().available), left_in_cgroup())}
    if torch.cuda.is_available():
        free["cuda"] = float(torch.cuda.mem_get_info()[0])
    return free
