"""Every knob of a run, once, with its unit and the meaning of None and 0.

Sections are frozen; `RunConfig` holds them all and is what flows take as their parameter. Nothing here reads a file or the
environment: `flows/settings.py` does.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of every section: frozen, no unknown keys, docstrings of fields as their descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PathsConfig(Section):
    """Where things lie; relative paths are resolved against the project root by `flows/settings.py`."""

    data_dir: str = "data"
    """Corpora, models, index versions, evaluations and training directories."""
    mlruns_dir: str = "mlruns"
    """MLflow's SQLite store, its artifacts and `latest.json`."""


class WorldConfig(Section):
    """The fictional encyclopedia."""

    pages: int = Field(default=1600, ge=40)
    """Number of pages."""
    seed: int = 11
    """Seeds names, facts, wording and questions."""
    questions_per_page: float = Field(default=4.0, gt=0)
    """Questions written per page, over all splits."""


class CorpusConfig(Section):
    """Pages and questions."""

    pages: str | None = None
    """A `.jsonl` or `.parquet` file, a folder of Markdown, or `hub:owner/name`; None generates the world below."""
    questions: str | None = None
    """A `.jsonl` or `.parquet` file or `hub:owner/name`; None with `pages` given means no questions."""
    world: WorldConfig = WorldConfig()
    revision: str | None = None
    """Commit of Hub data sets; None takes the newest."""
    split_seed: int = 0
    """Seeds the 80/10/10 split by page."""
    limit_pages: int = Field(default=0, ge=0)
    """Keep only the first pages and the questions on them; 0 keeps all. `DEV=1` sets 10."""
    max_question_chars: int = Field(default=600, ge=1)
    """Longer questions are reported by validation."""
    max_page_chars: int = Field(default=400_000, ge=1)
    """Longer pages are reported by validation."""


class EmbedderConfig(Section):
    """The model that turns text into vectors; part of the index key."""

    kind: Literal["sentence-transformers", "openai"] = "sentence-transformers"
    """A local model, or an OpenAI-compatible `/v1/embeddings` endpoint."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub id or path; for `openai` the served model's name."""
    revision: str | None = None
    """Commit on the Hub; None takes what the cache holds, or the newest."""
    base_url: str | None = None
    """Endpoint for `openai`."""
    api_key: SecretStr | None = None
    """Key for `openai`; never recorded."""
    batch_size: int = Field(default=64, ge=1)
    """Texts encoded together while building."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where a local model runs; no part of the index key."""


class RetrievalConfig(Section):
    """The index and what a search returns."""

    embedder: EmbedderConfig = EmbedderConfig()
    top_k: int = Field(default=3, ge=1, le=50)
    """Pages a search returns."""
    max_passage_chars: int = Field(default=1000, ge=50)
    """A longer section is embedded in several passages."""
    hnsw_ef_construction: int = Field(default=200, ge=1)
    hnsw_max_neighbors: int = Field(default=16, ge=2)


class SearcherConfig(Section):
    """Limits of an episode and the form of its dialogue."""

    max_turns: int = Field(default=8, ge=1)
    """Assistant messages an episode may have, the answer included."""
    max_turn_tokens: int = Field(default=48, ge=1)
    """Tokens one assistant message may have."""
    max_episode_tokens: int = Field(default=448, ge=16)
    """Tokens after the prompt, tool results included."""
    max_seconds: float = Field(default=0.0, ge=0)
    """Wall time of a batch of episodes; 0 sets no limit."""
    max_section_chars: int = Field(default=1500, ge=100)
    """A longer section is read in pages of this size: `section_id#2` is the second."""
    system_prompt: str | None = None
    """Text of the system message; None takes the built-in one for instruct models, "" sends none."""
    tool_role: Literal["tool", "user"] = "tool"
    """Role under which tool results enter the chat template."""


class PolicyConfig(Section):
    """The model that is trained or evaluated."""

    model: str = "data/models/tiny-searcher"
    """Path or Hub id of a causal language model."""
    revision: str | None = None
    """Commit on the Hub."""
    adapter: str | None = None
    """Path of a LoRA adapter to play with; None plays the bare model."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    load_in_4bit: bool = False
    """Load the weights as 4-bit NF4 (bitsandbytes, extra `gpu`); an adapter trained on them is QLoRA."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    base_url: str | None = None
    """OpenAI-compatible endpoint that serves `model`; None loads it here."""
    api_key: SecretStr | None = None
    """Key for the endpoint; never recorded."""


class RewardConfig(Section):
    """Weights of the named parts; the reward is their sum, in [-1, 1] with these defaults."""

    kind: Literal["task", "format_only", "random"] = "task"
    """What is rewarded. The last two are controls: any well-formed answer, or nothing but chance."""
    correctness: Literal["verdict", "f1"] = "verdict"
    """How right an answer is: the judge's yes or no, or its token F1 with the best alias."""
    correct: float = 1.0
    """Paid for a right answer."""
    format: float = 0.0
    """Paid when the episode ended with an answer, right or wrong."""
    call_cost: float = Field(default=0.02, ge=0)
    """Taken from a right answer per tool call, as a fraction of `correct`; wrong answers are not charged, or
    the cheapest way to be wrong would be to search for nothing."""
    token_cost: float = Field(default=0.0, ge=0)
    """Taken from a right answer per 100 tokens the policy wrote, as a fraction of `correct`."""
    evidence_found: float = 0.0
    """Paid for the share of gold pages that searches showed."""
    evidence_read: float = 0.0
    """Paid for the share of gold sections that were read."""
    malformed: float = -0.1
    """Paid when the episode ended malformed."""
    abstained: float = 0.0
    """Paid for "I don't know" where there is an answer; keep it between wrong (0) and right."""


class JudgeConfig(Section):
    """Who decides whether an answer is right."""

    kind: Literal["exact", "ollama", "openai"] = "exact"
    """`exact`: SQuAD-normalised match with any alias; otherwise a language model is asked where exact match fails."""
    model: str = "qwen2.5:7b"
    base_url: str | None = None
    """Endpoint; None takes the kind's usual local one."""
    api_key: SecretStr | None = None
    timeout_s: float = Field(default=60.0, gt=0)
    concurrency: int = Field(default=8, ge=1)
    keep_loaded: bool = False
    """Ollama: keep the judge on the device while the policy samples and learns; False unloads it after each batch of verdicts."""


class LoraSection(Section):
    """The adapter."""

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Keep 0 for RL: sampler and trainer must agree."""
    target_modules: str = "all-linear"


class VllmConfig(Section):
    """vLLM as the sampler of training (extra `gpu`); TRL carries the weights over before every step."""

    mode: Literal["off", "colocate", "server"] = "off"
    """`colocate`: in the training process, asleep while it learns. `server`: `vllm serve` on a device of its own."""
    base_url: str = "http://localhost:8000"
    """Address of the server."""
    gpu_memory_frac: float = Field(default=0.5, gt=0, lt=1)
    """Share of the device that a colocated engine takes while it samples."""


class SentinelConfig(Section):
    """Watches a training run for collapse."""

    enabled: bool = True
    """False: no held-out reward is measured, and what the last step left is the adapter."""
    held_out: int = Field(default=128, ge=1)
    """Questions of the validation split by which weights are scored, at the start, at every checkpoint and at the end."""
    window: int = Field(default=8, ge=1)
    """Steps whose mean is judged."""
    warmup: int = Field(default=8, ge=1)
    """Steps before the window that a rule needs for comparison."""
    memory: int = Field(default=30, ge=1)
    """Steps before the window that count as what is normal."""
    reward_drop: float = Field(default=0.25, gt=0)
    """Fall of the mean reward below its best window that counts as collapse."""
    lr_factor: float = Field(default=0.3, gt=0, lt=1)
    """The learning rate is multiplied by this on a return."""
    max_trips: int = Field(default=3, ge=1)
    """Training stops at this many."""


class TrainConfig(Section):
    """Reinforcement learning through TRL."""

    method: Literal["lora", "full"] = "lora"
    """What learns: an adapter on frozen weights (QLoRA where `policy.load_in_4bit`), or all weights."""
    algorithm: Literal["grpo", "rloo", "reinforce"] = "grpo"
    """What a reward is compared with: the group's mean, the mean of the group's other episodes, or `baseline`."""
    baseline: float = 0.5
    """The constant that `reinforce` subtracts from every reward."""
    preflight: Literal["require", "record"] = "require"
    """What a failed check before training does: it ends the run, or is only recorded."""
    probe_questions: int = Field(default=16, ge=1)
    """Groups that the pre-flight plays."""
    void_turns: Literal["grade", "drop"] = "grade"
    """What becomes of an episode that ended malformed: it is graded as it is, or leaves its group and is only counted."""
    seed: int = 0
    steps: int = Field(default=150, ge=0)
    """Optimiser updates; 0 derives them from `epochs`."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training questions; used only when `steps` is 0."""
    questions_per_step: int = Field(default=8, ge=1)
    """Different questions per update, all devices and accumulation together."""
    group_size: int = Field(default=8, ge=2)
    """Episodes per question."""
    accumulation: int = Field(default=1, ge=1)
    """Micro-batches per update."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """At the start; about ten times that of full fine-tuning, and larger still for a tiny model."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "linear"
    """How it goes to 0 over all steps, or that it does not."""
    mask_truncated: bool = False
    """Leave episodes that a token limit cut off out of the update, so that a large model that is cut off for its long thoughts does not
    unlearn its format. A tiny one may flee into them, as nothing speaks against it: masked and at a constant rate, 6 % of the demo's
    episodes ended so after 200 steps; graded and at a falling rate, 1 %."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    temperature: float = Field(default=1.0, gt=0)
    scale_rewards: Literal["none", "group", "batch"] = "none"
    """`none`: advantage = reward - group mean."""
    loss: Literal["dapo", "grpo", "dr_grpo"] = "dapo"
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the reference; 0 switches it and its measurement off."""
    lora: LoraSection = LoraSection()
    checkpoint_steps: int = Field(default=40, ge=1)
    """Updates between checkpoints."""
    keep_checkpoints: int = Field(default=2, ge=1)
    max_failed_frac: Fraction = 0.5
    """Share of failed episodes in a step above which training stops with the cause."""
    split: Literal["train", "validation", "test"] = "train"
    limit: int = Field(default=0, ge=0)
    """Train on this many questions of the split; 0 takes all."""
    gradient_checkpointing: bool = False
    cpu_threads: int = Field(default=1, ge=0)
    """Threads a training process may use on the CPU; 0 takes all cores. A tiny model is no faster with two, and many times slower
    where something else wants the second core."""
    num_processes: int = Field(default=1, ge=1)
    """Processes `accelerate launch` starts."""
    accelerate_config: str | None = None
    """A file of `accelerate config`, such as those in `deployments/configs/accelerate`; None writes one for `num_processes` here."""
    vllm: VllmConfig = VllmConfig()
    sentinel: SentinelConfig = SentinelConfig()

    @model_validator(mode="after")
    def _scaled_by_the_group(self) -> Self:
        if self.algorithm != "grpo" and self.scale_rewards != "none":
            raise ValueError(f"scale_rewards is GRPO's: set it to none, or algorithm {self.algorithm} to grpo")
        return self


class SftConfig(Section):
    """Supervised training: of tiny-searcher from scratch (`slmsearch bootstrap`), and of the SFT control in a pipeline run."""

    recipe: Literal["hasty", "careful"] = "hasty"
    """Who wrote the demonstrations: `careful` follows every question to its end, `hasty` rarely makes the second hop and
    rarely admits not knowing."""
    steps: int = Field(default=4800, ge=1)
    context_weight: float = Field(default=0.3, ge=0)
    """Weight of the loss on questions and tool results, beside 1 on what the reader wrote: predicting them, too, teaches a small
    model to copy sooner."""
    tokens_per_batch: int = Field(default=4096, ge=256)
    learning_rate: float = Field(default=3e-3, gt=0)
    warmup_frac: Fraction = 0.03
    episodes_per_world: int = Field(default=500, ge=10)
    """Demonstrations from one random world before the next is made."""
    pages_per_world: int = Field(default=240, ge=40)
    seed: int = 0
    lora: bool = False
    """`slmsearch sft`: train an adapter (`train.lora`) and merge it, instead of training all weights; for large models."""
    own_questions: int = Field(default=512, ge=1)
    """`slmsearch sft --from own`: questions the model plays."""
    own_tries: int = Field(default=8, ge=1)
    """Episodes it plays of each."""
    own_kept: int = Field(default=2, ge=1)
    """Right episodes kept of each, at most."""


class ControlConfig(Section):
    """SFT continued from the same checkpoint on the same demonstrations, to show what RL adds."""

    enabled: bool = True
    steps: int = Field(default=1200, ge=1)
    """Chosen so that it takes at least as long as GRPO does; both times are printed."""
    learning_rate: float = Field(default=1e-3, gt=0)


class EvaluateConfig(Section):
    """What is measured, on what."""

    policy: str | None = None
    """What the flow `evaluate` evaluates: `champion`, or a name as `baselines` takes it; None takes the champion, or the configured
    policy where nothing was promoted yet."""
    split: Literal["train", "validation", "test", "all"] = "test"
    limit: int = Field(default=0, ge=0)
    """Questions taken (a seeded sample); 0 takes all."""
    seed: int = 0
    batch_size: int = Field(default=64, ge=1)
    """Episodes played together."""
    baselines: tuple[str, ...] = ("random", "retrieve-then-answer", "data/models/tiny-searcher-clean")
    """`random`, `retrieve-then-answer`, a path or Hub id of a model, or `openai:<model>@<base_url>`. The last by default: what supervised
    training alone reaches with perfect demonstrations, for as long as checkpoint and GRPO take together."""
    traced_episodes: int = Field(default=24, ge=0)
    """Episodes recorded as traces: a stratified sample."""


class DecisionConfig(Section):
    """The written rule of promotion."""

    metric: str = "answer/exact_match"
    min_questions: int = Field(default=200, ge=1)
    """Fewer paired questions: `inconclusive`."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Level of intervals and tests."""
    max_failed_frac: Fraction = 0.05
    """Larger share of pairs left out because an episode failed on either side: `inconclusive`."""
    min_gain: float = 0.0
    """The interval's lower end must lie above this to promote."""
    worst_slice_loss: Fraction = 0.05
    """A slice that is significantly worse by more than this vetoes promotion."""
    min_slice: int = Field(default=30, ge=1)
    """Slices with fewer questions have no veto."""
    resamples: int = Field(default=2000, ge=100)
    """Bootstrap resamples, clustered by page."""
    seed: int = 0


class TrackingConfig(Section):
    """MLflow."""

    uri: str | None = None
    """None: SQLite in `paths.mlruns_dir`."""
    experiment: str = "slmsearch"
    registered_model: str = "slmsearch-searcher"
    """Name under which adapters are registered; its alias `champion` is the promoted one."""


class RunConfig(Section):
    """A whole run."""

    paths: PathsConfig = PathsConfig()
    corpus: CorpusConfig = CorpusConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    searcher: SearcherConfig = SearcherConfig()
    policy: PolicyConfig = PolicyConfig()
    reward: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    train: TrainConfig = TrainConfig()
    sft: SftConfig = SftConfig()
    control: ControlConfig = ControlConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    decision: DecisionConfig = DecisionConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _learns_what_can_learn(self) -> Self:
        if self.train.method == "full" and (self.policy.load_in_4bit or self.policy.adapter):
            raise ValueError("train.method full trains plain weights: unset policy.load_in_4bit and policy.adapter, or set it to lora")
        return self
