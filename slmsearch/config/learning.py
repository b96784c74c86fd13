"""Settings of training."""

from collections.abc import Collection
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from slmsearch.config.section import Address, ConfigSection


class LoraSection(ConfigSection):
    """Settings of the LoRA adapter."""

    r: int = Field(default=16, ge=1)
    """Rank. `alpha` is twice `r`, so the adapter's output is scaled by 2 and another rank needs no other learning rate."""
    dropout: ClassVar[float] = 0.0
    """Dropout of the adapter. It is 0 because the sampler has none, and sampler and trainer must agree."""
    target_modules: ClassVar[str] = "all-linear"
    """Layers with an adapter: every linear layer but the head, as in QLoRA (Dettmers et al. 2023)."""

    @property
    def alpha(self) -> int:
        """Numerator of the adapter's scaling factor; `r` is the denominator."""
        return 2 * self.r

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """Extend `ConfigSection.key_parts` by `alpha`."""
        return {**super().key_parts(exclude), "alpha": self.alpha}


class VllmConfig(ConfigSection):
    """vLLM as the sampler of training (extra `gpu`). An adapter goes to it as an adapter; if all weights learn, TRL copies all."""

    mode: Literal["off", "colocate", "server"] = "off"
    """Place of the engine. `colocate`: in the training process, asleep during updates. `server`: `vllm serve` on another device of this
    machine, started with `--logprobs-mode processed_logprobs` and `VLLM_SERVER_DEV_MODE=1`. Adapters also need
    `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True` and `--enable-lora --max-lora-rank R --max-loras P` (`train.lora.r`, `train.num_processes`);
    `train.method: full` needs `--weight-transfer-config '{"backend": "nccl"}'`."""
    base_url: Address = "http://localhost:8000"
    """Address of the server."""
    gpu_memory_frac: float = Field(default=0.5, gt=0, lt=1)
    """Share of the GPU memory that a colocated engine uses while it samples."""


class MonitorConfig(ConfigSection):
    """Collapse monitor: compares the latest steps with earlier ones and restores the best weights; limits follow from the run's noise."""

    held_out: int = Field(default=128, ge=0)
    """Questions of the validation split that score the weights: at the start, at every checkpoint, at the end, and when the reward seems to
    fall. 0 measures no held-out reward, turns the monitor off and keeps the weights of the last step."""
    lr_factor: ClassVar[float] = 0.3
    """Factor on the learning rate at each restore."""
    max_collapses: ClassVar[int] = 3
    """Number of collapses that stops training. The learning rate is then a tenth of the initial one, which was wrong from the start."""


class TrainConfig(ConfigSection):
    """Reinforcement learning through TRL."""

    method: Literal["lora", "full"] = "lora"
    """Trained weights: `lora` trains an adapter on frozen weights (QLoRA with `policy.load_in_4bit`), `full` trains all weights."""
    algorithm: Literal["grpo", "rloo", "reinforce"] = "grpo"
    """Baseline subtracted from a reward: the group's mean (`grpo`), that of the other episodes (`rloo`), a constant (`reinforce`)."""
    baseline: ClassVar[float] = 0.5
    """Constant that `reinforce` subtracts from every reward: halfway between a right answer and a wrong one."""
    preflight: Literal["require", "record"] = "require"
    """Effect of a failed check before training: `require` ends the run, `record` only records the failure."""
    seed: int = 0
    """Seed of the order of questions and of the sampled episodes (of a vLLM server, which gets no seed, they cannot be repeated)."""
    steps: int = Field(default=150, ge=0)
    """Number of optimiser updates; 0 derives it from `epochs`."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training questions; used only when `steps` is 0."""
    questions_per_step: int = Field(default=8, ge=1)
    """Number of different questions per update, over all devices and accumulation steps."""
    group_size: int = Field(default=8, ge=2)
    """Episodes per question."""
    twins_frac: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training questions that are played as twins, for which "I don't know" is right: the evidence is hidden, or the question
    asks about a name that does not exist."""
    accumulation: int = Field(default=1, ge=1)
    """Micro-batches per update, for several devices. On one device the memory plan splits updates itself."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Initial learning rate: about ten times that of full fine-tuning, and higher still for a tiny model."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Decay of the learning rate: to 0 over all steps (`linear`, `cosine`), or none (`constant`)."""
    mask_truncated: bool = False
    """Leave episodes that were cut off by a token limit out of the update, including those whose last tool result did not fit. A large
    model that is cut off for long thoughts then does not unlearn its format. Their rewards still count in the group's baseline. A tiny
    model may drift into truncation, since nothing penalises it: 6 % of the demo's episodes were truncated after 200 steps with masking and
    a constant rate; 1 % when they were graded and the rate fell."""
    max_grad_norm: ClassVar[float] = 1.0
    """Gradients are clipped to this norm, by TRL."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the episodes."""
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """Scale of the advantages. `none`: reward - group mean; `group`, `batch`: divided by the standard deviation of the group or batch."""
    loss: ClassVar[Literal["dapo"]] = "dapo"
    """Loss that weighs the tokens of all episodes alike. A mean per episode (`grpo`) would make long wrong answers cheap."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the reference; 0 disables the term and its measurement."""
    lora: LoraSection = LoraSection()
    checkpoint_steps: int = Field(default=40, ge=1)
    """Updates between checkpoints."""
    split: ClassVar[str] = "train"
    """Split of the training questions. The other splits select the weights and decide on promotion."""
    limit: int = Field(default=0, ge=0)
    """Number of questions of the split `train` to train on; 0 takes all."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    cpu_threads: int = Field(default=0, ge=0)
    """CPU threads of a training process; 0 uses all cores. Sampling from a tiny model always uses one thread."""
    num_processes: int = Field(default=1, ge=1)
    """Number of processes that `accelerate launch` starts."""
    vllm: VllmConfig = VllmConfig()
    monitor: MonitorConfig = MonitorConfig()

    @model_validator(mode="after")
    def _one_process_carries_weights(self) -> Self:
        if self.vllm.mode == "server" and self.method == "full" and self.num_processes > 1:
            remedy = "with train.vllm.mode server and several processes set train.method to lora, or train.vllm.mode to colocate"
            raise ValueError(f"one process would sample while another carries the weights over: {remedy}")
        return self

    @model_validator(mode="after")
    def _scaled_by_the_group(self) -> Self:
        if self.algorithm != "grpo" and self.scale_rewards != "none":
            raise ValueError(f"scale_rewards requires algorithm grpo, not {self.algorithm}: set it to none, or algorithm to grpo")
        return self


class BesideConfig(ConfigSection):
    """Another corpus whose training questions the searcher's start demonstrates in turn with its own examples, so that a model does not
    forget them. Its other settings are those of `corpus`."""

    pages: str | None = None
    """Source of its pages, as `corpus.pages`; None demonstrates no other corpus."""
    questions: str | None = None
    """Source of its questions, as `corpus.questions`."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.pages is None) != (self.questions is None):
            raise ValueError("give both pages and questions; they may be the same file")
        return self


class SftConfig(ConfigSection):
    """Supervised training: of tiny-searcher from scratch (`slmsearch bootstrap`), and of the SFT control in a pipeline run."""

    start: Literal["none", "gold", "own"] = "none"
    """Supervised training before RL in a run of the searcher. `none`: no such training. `gold`: on demonstrations that read the gold
    sections of training questions. `own`: on the model's own right episodes, and gold demonstrations for questions without one; for a model
    that plays well in its own way and needs corrections."""
    beside: BesideConfig = BesideConfig()
    recipe: Literal["noisy", "expert"] = "noisy"
    """Demonstrator: `expert` follows every question to its end; `noisy` rarely makes the second hop and rarely admits not knowing."""
    steps: int = Field(default=8000, ge=1)
    """Number of optimiser updates."""
    context_weight: float = Field(default=0.3, ge=0)
    """Loss weight of questions and tool results; the model's own tokens have weight 1. Predicting them teaches small models to copy."""
    batch_size: int = Field(default=0, ge=0)
    """Episodes per update; 0 fills `tokens_per_batch` with episodes of similar length."""
    tokens_per_batch: int = Field(default=4096, ge=256)
    """Tokens per forward pass, padding included; a longer episode is processed alone. With `batch_size`, a prefix that several episodes of
    an update share is counted, and computed, once."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Peak learning rate, reached after the warm-up."""
    warmup_frac: ClassVar[float] = 0.03
    """Share of the steps in which the learning rate rises."""
    episodes_per_world: ClassVar[int] = 500
    """Demonstrations from one random world before the next is generated."""
    pages_per_world: ClassVar[int] = 240
    """Pages per world: enough for two hops, and few enough to generate quickly."""
    seed: int = 0
    """Seed of the demonstrations and of training."""
    lora: bool = False
    """Train an adapter (`train.lora`; `policy.adapter` goes on learning) and merge it, instead of all weights (`slmsearch sft`)."""
    own_questions: ClassVar[int] = 512
    """Questions that the model plays for `slmsearch sft --from own` and `sft.start: own` unless `train.limit` is set."""
    own_tries: ClassVar[int] = 8
    """Episodes per question."""
    own_kept: ClassVar[int] = 2
    """Maximum number of right episodes kept per question: more of an easy one would crowd out the hard ones."""

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """Leave `beside` out of `ConfigSection.key_parts`: the environment names that corpus by its content."""
        return super().key_parts({*exclude, "beside"})


class ControlConfig(ConfigSection):
    """SFT control: the same checkpoint, taught further (only by gold if `sft.start` is `own`), to show what RL adds."""

    enabled: bool = True
    """Train and evaluate the control in a pipeline run."""
    steps: int = Field(default=0, ge=0)
    """Number of updates. 0 takes as many as fit in the time GRPO took, measured by a few updates here; both times are printed."""


class LearnConfig(ConfigSection):
    """Settings of `slmsearch learn`, and of the questions that it and `slmsearch questions` make."""

    budget_s: float = Field(default=0.0, ge=0)
    """Planned time of the whole command, in seconds; no hard limit. The steps of `sft` and `train` and the number of evaluated questions
    are fitted to the time that an update takes on this machine. 0 uses the settings of those sections."""
    adapter: str | None = None
    """Name or path of a LoRA adapter of `policy.model` that the first training on some pages begins with; later ones begin with the
    champion. An adapter of another model is not used, nor is it beside `policy.adapter`."""
    questions: Literal["gaps", "written", "both"] = "written"
    """Kinds of questions. `gaps`: sentences with a gap. `written`: those of a language model, and gaps if there is no model or none of its
    questions is kept. `both`: at most half of a limit is written, the others have gaps."""
    writer: str | None = None
    """Name or path of a model that learnt to ask (preset `writer`). None: the model of `judge` writes, unless `judge.kind` is `exact`."""
    reader: str | None = None
    """Name or path of a model that answers from a shown text (`searcher.reads: shown`). A written question is kept only if this model,
    given its section, answers as intended. None takes the model of `writer`; questions of the judge's model are then not read."""
