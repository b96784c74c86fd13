"""The planner and its worker."""

from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from slmsearch.config.sections import Address, Section


class WorkerConfig(Section):
    """The frozen worker that carries plans out; always greedy."""

    kind: Literal["arithmetic", "base", "openai", "ollama"] = "arithmetic"
    """`arithmetic`: reads and computes, without a model. `base`: the policy's own model with the adapter off. Otherwise a server."""
    max_operations: ClassVar[int] = 2
    """`arithmetic`: operations it can do in one question: fewer than most generated problems take, so that there is something to plan."""
    model: str = "qwen2.5:7b"
    """`openai`, `ollama`: name the server knows."""
    base_url: Address | None = None
    """Endpoint; None takes the kind's usual local one."""
    api_key: SecretStr | None = None
    """Key for the endpoint; never recorded."""
    concurrency: ClassVar[int] = 8
    """Requests under way at once; a server that serves fewer lets the others wait."""
    timeout_s: ClassVar[float] = 60.0
    """Longest wait for one reply, the loading of the model included."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Tokens of one solution of a model."""


class PlanRewardConfig(Section):
    """Weights of the named parts of a plan's reward beside 1 for a right answer; their sum is the reward."""

    FORMER: ClassVar = {"correct": 1.0, "needs_gain": True, "gain": False}

    kind: Literal["task", "format_only", "random"] = "task"
    """What is rewarded. The last two are controls: any well-formed plan, or nothing but chance."""
    tokens: float = Field(default=0.2, ge=0)
    """Times 1 - tokens / `max_tokens`, paid with a right answer only: charged to wrong ones, too, the shortest plan would pay best."""
    max_tokens: int = Field(default=400, ge=1)
    """Tokens of plan and worker together at which nothing is left of that part."""
    independence: float = Field(default=0.3, ge=0)
    """Times the mean dissimilarity of the subproblems (1 - cosine, `retrieval.embedder`), paid with a right answer that the worker
    alone does not give: splitting what needs no splitting earns nothing."""
    malformed: ClassVar[float] = -0.1
    """Paid for a text without a plan: less than an honest plan earns that fails."""
    hacked: ClassVar[float] = -0.1
    """Paid for a plan that a reward-hacking filter refuses; it is graded as a wrong one: no hack earns more than an honest failure."""


class PlanSftConfig(Section):
    """Supervised training of a planner (`slmsearch planner sft`, and the flow where `enabled`)."""

    enabled: bool = False
    """The flow `train-planner` begins with it; False takes the policy's model as the start."""
    source: str = "generated"
    """Plans: `generated` (gold plans of the generator), `own` (right ones of the model's own, by rejection sampling), or a `.jsonl`,
    `.parquet` file or `hub:owner/name` with the columns `UserPrompt`, `ExpectedOutput` and, if there is one, `SystemPrompt`."""
    environment_column: ClassVar[str] = "SystemPrompt"
    prompt_column: ClassVar[str] = "UserPrompt"
    completion_column: ClassVar[str] = "ExpectedOutput"
    max_tokens: int = Field(default=448, ge=16)
    """Longer examples are left out and counted."""
    epochs: float = Field(default=0.0, ge=0)
    """Passes over a set that ends, `sft.batch_size` examples per update; 0 takes `sft.steps`."""


class PlannerConfig(Section):
    """The planner: its problems, its worker, its limits."""

    problems: str | None = None
    """A `.jsonl` or `.parquet` file or `hub:owner/name` in GSM8K's form (`question`, `answer` with `####`); None generates some.
    `hub:owner/name/subset@commit` names a configuration of the set, and another commit than the newest."""
    seed: int = 21
    """Seeds them."""
    limit: int = Field(default=0, ge=0)
    """Take only the first problems of a source, or generate so many, over all splits; 0 takes all, or generates 6,000."""
    max_plan_tokens: int = Field(default=200, ge=16)
    """Tokens a plan may have."""
    system_prompt: str | None = None
    """Text of the system message; None takes the built-in one, "" sends none."""
    worker: WorkerConfig = WorkerConfig()
    reward: PlanRewardConfig = PlanRewardConfig()
    sft: PlanSftConfig = PlanSftConfig()
