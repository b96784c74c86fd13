"""Training."""

from collections.abc import Collection
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from slmsearch.config.section import Address, ConfigSection


class LoraSection(ConfigSection):
    """The adapter."""

    r: int = Field(default=16, ge=1)
    """Rank; what the adapter adds is scaled by 2 (`alpha` is twice `r`), so that another rank needs no other learning rate."""
    dropout: ClassVar[float] = 0.0
    """Sampler and trainer must agree, and the sampler has none."""
    target_modules: ClassVar[str] = "all-linear"
    """Where the adapter is: every linear layer but the head, as in QLoRA (Dettmers et al. 2023)."""

    @property
    def alpha(self) -> int:
        """Numerator of what the adapter is scaled by; `r` is the denominator."""
        return 2 * self.r

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """See `ConfigSection.key_parts`."""
        return {**super().key_parts(exclude), "alpha": self.alpha}


class VllmConfig(ConfigSection):
    """vLLM as the sampler of training (extra `gpu`). An adapter goes there as an adapter; TRL carries over all weights where all learn."""

    mode: Literal["off", "colocate", "server"] = "off"
    """`colocate`: in the training process, asleep while it learns. `server`: `vllm serve` on another device of this machine, started with
    `--logprobs-mode processed_logprobs` and `VLLM_SERVER_DEV_MODE=1`. For adapters it needs `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True` and
    `--enable-lora --max-lora-rank R --max-loras P` (`train.lora.r`, `train.num_processes`); for `train.method: full`
    `--weight-transfer-config '{"backend": "nccl"}'`."""
    base_url: Address = "http://localhost:8000"
    """Address of the server."""
    gpu_memory_frac: float = Field(default=0.5, gt=0, lt=1)
    """Share of the device that a colocated engine takes while it samples."""


class MonitorConfig(ConfigSection):
    """The collapse monitor: compares the last steps with those before, and restores the best weights; its limits follow from the
    noise of the run."""

    held_out: int = Field(default=128, ge=0)
    """Questions of the validation split by which weights are scored: at the start, at every checkpoint, at the end, and where the
    reward seems to fall. 0: no held-out reward is measured, and what the last step left is the adapter."""
    lr_factor: ClassVar[float] = 0.3
    """The learning rate is multiplied by this when weights are restored."""
    max_collapses: ClassVar[int] = 3
    """Training stops at this many collapses: the learning rate is then a tenth of the one that was set, and was wrong from the start."""


class TrainConfig(ConfigSection):
    """Reinforcement learning through TRL."""

    method: Literal["lora", "full"] = "lora"
    """What learns: an adapter on frozen weights (QLoRA where `policy.load_in_4bit`), or all weights."""
    algorithm: Literal["grpo", "rloo", "reinforce"] = "grpo"
    """What a reward is compared with: the group's mean, the mean of the group's other episodes, or a constant."""
    baseline: ClassVar[float] = 0.5
    """The constant that `reinforce` subtracts from every reward: the middle between a right answer and a wrong one."""
    preflight: Literal["require", "record"] = "require"
    """What a failed check before training does: it ends the run, or is only recorded."""
    seed: int = 0
    steps: int = Field(default=150, ge=0)
    """Optimiser updates; 0 derives them from `epochs`."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training questions; used only when `steps` is 0."""
    questions_per_step: int = Field(default=8, ge=1)
    """Different questions per update, all devices and accumulation together."""
    group_size: int = Field(default=8, ge=2)
    """Episodes per question."""
    twins_frac: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training questions that are played as twins, where "I don't know" is right: without what states the answer, or about a
    name that nobody bears."""
    accumulation: int = Field(default=1, ge=1)
    """Micro-batches per update, for a CPU and for several devices: on one CUDA device the plan of memory cuts an update into parts."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """At the start; about ten times that of full fine-tuning, and larger still for a tiny model."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "linear"
    """How it goes to 0 over all steps, or that it does not."""
    mask_truncated: bool = False
    """Leave episodes that a token limit cut off out of the update, so that a large model that is cut off for its long thoughts does not
    unlearn its format: also those whose last tool result had no room. What the others of the group are compared with still counts their
    reward. A tiny model may flee into them, as nothing speaks against it: masked and at a constant rate, 6 % of the demo's episodes
    ended so after 200 steps; graded and at a falling rate, 1 %."""
    max_grad_norm: ClassVar[float] = 1.0
    """Gradients are clipped to this norm, as TRL does."""
    temperature: float = Field(default=1.0, gt=0)
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """`none`: advantage = reward - group mean."""
    loss: ClassVar[Literal["dapo"]] = "dapo"
    """Tokens of all episodes count alike: a mean per episode (`grpo`) makes long wrong answers cheap."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the reference; 0 switches it and its measurement off."""
    lora: LoraSection = LoraSection()
    checkpoint_steps: int = Field(default=40, ge=1)
    """Updates between checkpoints."""
    split: ClassVar[str] = "train"
    """The other splits choose the weights and decide on promotion."""
    limit: int = Field(default=0, ge=0)
    """Train on this many questions of the split `train`; 0 takes all."""
    gradient_checkpointing: bool = False
    cpu_threads: int = Field(default=0, ge=0)
    """Threads a training process may use on the CPU; 0 takes all cores. A tiny model is sampled from in one thread all the same."""
    num_processes: int = Field(default=1, ge=1)
    """Processes `accelerate launch` starts."""
    vllm: VllmConfig = VllmConfig()
    monitor: MonitorConfig = MonitorConfig()

    @model_validator(mode="after")
    def _one_process_carries_weights(self) -> Self:
        if self.vllm.mode == "server" and self.method == "full" and self.num_processes > 1:
            raise ValueError(
                "one process would sample while another carries the weights over: with train.vllm.mode server and several processes "
                "set train.method to lora, or train.vllm.mode to colocate"
            )
        return self

    @model_validator(mode="after")
    def _scaled_by_the_group(self) -> Self:
        if self.algorithm != "grpo" and self.scale_rewards != "none":
            raise ValueError(f"scale_rewards is GRPO's: set it to none, or algorithm {self.algorithm} to grpo")
        return self


class SftConfig(ConfigSection):
    """Supervised training: of tiny-searcher from scratch (`slmsearch bootstrap`), and of the SFT control in a pipeline run."""

    start: Literal["none", "gold", "own"] = "none"
    """The supervised training that a run of the searcher begins with: none; demonstrations of its training questions' gold sections; or
    the model's own right episodes of some of them, with gold beside them where none was right: for a model that plays well in a way of its
    own, and learns corrections."""
    recipe: Literal["noisy", "expert"] = "noisy"
    """Who wrote the demonstrations: `expert` follows every question to its end, `noisy` rarely makes the second hop and
    rarely admits not knowing."""
    steps: int = Field(default=8000, ge=1)
    context_weight: float = Field(default=0.3, ge=0)
    """Weight of the loss on questions and tool results, beside 1 on what the reader wrote: predicting them, too, teaches a small
    model to copy sooner."""
    batch_size: int = Field(default=0, ge=0)
    """Episodes per update; 0 takes as many of similar length as fill `tokens_per_batch`."""
    tokens_per_batch: int = Field(default=4096, ge=256)
    """Tokens, padding included, that go through the model together; a longer episode goes alone. With `batch_size`, what the episodes of
    an update begin with alike is counted, and computed, once."""
    learning_rate: float = Field(default=3e-3, gt=0)
    warmup_frac: ClassVar[float] = 0.03
    """Share of the steps in which the learning rate rises."""
    episodes_per_world: ClassVar[int] = 500
    """Demonstrations from one random world before the next is made."""
    pages_per_world: ClassVar[int] = 240
    """Enough pages for two hops, and few enough to be made in a moment."""
    seed: int = 0
    lora: bool = False
    """`slmsearch sft`: train an adapter (`train.lora`) and merge it, instead of training all weights; for large models."""
    own_questions: ClassVar[int] = 512
    """`slmsearch sft --from own` and `sft.start: own`: questions the model plays, where `train.limit` does not say how many."""
    own_tries: ClassVar[int] = 8
    """Episodes it plays of each."""
    own_kept: ClassVar[int] = 2
    """Right episodes kept of each, at most: more of an easy question would crowd out the hard ones."""


class ControlConfig(ConfigSection):
    """SFT continued from the same checkpoint on the same demonstrations (on gold alone where `sft.start` is own), to show what RL adds."""

    enabled: bool = True
    steps: int = Field(default=0, ge=0)
    """0: as many as take as long as GRPO took, by the time of some updates on this machine; both times are printed."""


class LearnConfig(ConfigSection):
    """`slmsearch learn`."""

    budget_s: float = Field(default=0.0, ge=0)
    """Seconds in which all is to be done: the steps of `sft` and `train` and the number of evaluated questions follow from what an update
    takes here. 0: as those sections say."""
