"""Playing and judging an episode, of the searcher and of the planner with its worker."""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr

from slmsearch.config.section import Address, ConfigSection


class FrozenDict(dict[str, bool | int | float | str]):
    """A mapping that is a key itself, as every section is; it is not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


Variables = Annotated[dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], bool | int | float | str], AfterValidator(FrozenDict)]
"""Names and values of a template's variables."""


class SearcherConfig(ConfigSection):
    """Limits of an episode and the form of its messages."""

    max_turns: int = Field(default=8, ge=1)
    """Assistant messages an episode may have, the answer included."""
    max_turn_tokens: int = Field(default=48, ge=1)
    """Tokens one assistant message may have."""
    max_episode_tokens: int = Field(default=448, ge=16)
    """Tokens after the prompt, tool results included."""
    max_section_chars: ClassVar[int] = 1500
    """A longer section, or list of a page's sections, is shown in pages of this size: `section_id#2` is the second. Some 400
    tokens of English: more would fill a small model's episode."""
    reads: Literal["tools", "shown", "nothing"] = "tools"
    """Where the model has its knowledge from. `tools`: it searches. `shown`: its prompt holds the sections that a search for the question
    finds, and it answers at once (a reader). `nothing`: it answers at once from what it remembers (closed book)."""
    section_hints: bool = False
    """A search also shows each page's best section, `page_id: title (section_id)`: a turn less for a model that uses it."""
    missing_names: bool = True
    """A search also says which names of the query a page that it found lacks, `page_id: title (without NAME)`, judged by its title and best
    section. A name is a word that begins with a capital."""
    system_prompt: str | None = None
    """Text of the system message; None takes the built-in one for instruct models, "" sends none."""
    tool_role: Literal["tool", "user"] = "tool"
    """Role under which tool results enter the chat template."""
    programs: bool = False
    """The model may also write a Python program in `<code>`, which runs in the sandbox; raise `max_turn_tokens` with it."""


class LimitsConfig(ConfigSection):
    """What one program may take; a program that wants more is stopped, which it sees as its result."""

    wall_s: float = Field(default=5.0, gt=0, le=600)
    """Seconds until it is stopped; the time that tools take is not counted, up to a minute for both."""
    memory_mb: int = Field(default=256, ge=64)
    """Address space of the interpreter in MiB; its memory cgroup, where there is one, has the same limit."""


class ProgramLimits(LimitsConfig):
    """All limits of a program: the settings, and those that fit every program that asks tools and prints a result."""

    cpu_s: int = Field(default=5, ge=1, le=600)
    """Seconds of CPU, those of starting the interpreter included."""
    calls: int = Field(default=32, ge=0)
    """Tool calls."""
    output_chars: int = Field(default=4000, ge=1)
    """Characters of what it printed that come back; the rest is cut off."""
    program_chars: int = Field(default=8000, ge=1)
    """A longer program is not run."""


class SandboxConfig(ConfigSection):
    """Where programs that a model wrote are run (`slmsearch sandbox up`)."""

    engine: Literal["bubblewrap", "docker"] = "bubblewrap"
    """What keeps a program in. There is no third choice: without an engine nothing is run."""
    port: int = Field(default=8700, ge=1, le=65535)
    """Port of the server on this machine."""
    base_url: Address | None = None
    """Address of the server; None: this machine, `port`."""
    token: SecretStr | None = None
    """What the server asks of its clients; None: what the file `sandbox/token` in `paths.data_dir` holds, which the first of them makes."""
    concurrency: ClassVar[int] = 4
    """Programs that run at the same time: a program takes milliseconds, so that more bring little."""
    timeout_s: ClassVar[float] = 60.0
    """Time a client gives the server for one program, waiting for its turn included; the server ends a program whose tools take longer."""
    docker_memory_limit: str = Field(default="256m", pattern=r"^[1-9][0-9]*[kmg]$")
    """Memory of a container."""
    docker_cpu_limit: float = Field(default=1.0, gt=0)
    """CPUs of a container."""
    limits: LimitsConfig = LimitsConfig()


class ServiceConfig(ConfigSection):
    """The searcher as a service (`slmsearch serve searcher`)."""

    queue: int = Field(default=64, ge=1)
    """Questions that may wait; a further one is refused with status 429."""
    deadline_s: float = Field(default=60.0, gt=0)
    """Time a question has, waiting included; then it is answered with status 504."""
    traced_frac: float = Field(default=0.1, ge=0, le=1)
    """Share of the episodes that is recorded as traces in MLflow, with question and answer; 0 records none."""


class PolicyConfig(ConfigSection):
    """The model that is trained or evaluated."""

    model: str = "tiny-searcher"
    """A name that `slmsearch models list` shows, or the path or Hub id of a causal language model; `owner/name@commit` takes another commit
    than what the cache holds, or the newest."""
    adapter: str | None = None
    """Path of a LoRA adapter to play with; None plays the bare model."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    load_in_4bit: bool = False
    """Load the weights as 4-bit NF4 (bitsandbytes, extra `gpu`); an adapter trained on them is QLoRA."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    chat_template_kwargs: Variables = Field(default={}, validate_default=True)
    """Variables of the chat template, wherever it is rendered; `{enable_thinking: false}` for Qwen3 models that otherwise think."""
    base_url: Address | None = None
    """OpenAI-compatible endpoint that serves `model`; None loads it here."""
    api_key: SecretStr | None = None
    """Key for the endpoint; never recorded."""


class RewardConfig(ConfigSection):
    """Weights of the named parts beside 1 for a right answer; the reward is their sum, in [-0.1, 1] with these defaults."""

    kind: Literal["task", "format_only", "random"] = "task"
    """What is rewarded. The last two are controls: any well-formed answer, or nothing but chance."""
    correctness: Literal["verdict", "f1"] = "verdict"
    """How right an answer is: the judge's yes or no, or its token F1 with the best alias."""
    call_cost: float = Field(default=0.02, ge=0)
    """Taken from a right answer per tool call, as a fraction of it; wrong answers are not charged, or
    the cheapest way to be wrong would be to search for nothing."""
    evidence_read: float = 0.0
    """Paid for the share of gold sections that were read."""
    malformed: float = -0.1
    """Paid when the episode ended malformed."""
    abstained: float = 0.0
    """Paid for "I don't know" where there is an answer; keep it between wrong (0) and right."""
    abstained_gated: bool = True
    """Pay it only in a group in which no episode is right: a question that the policy can answer is answered."""

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """See `ConfigSection.key_parts`; the gate counts where there is something to pay."""
        return super().key_parts(exclude if self.abstained else {*exclude, "abstained_gated"})


class JudgeConfig(ConfigSection):
    """Who decides whether an answer is right."""

    kind: Literal["exact", "ollama", "openai"] = "exact"
    """`exact`: typed match with any alias; otherwise a language model is asked where that fails."""
    model: str = "qwen2.5:7b"
    base_url: Address | None = None
    """Endpoint; None takes the kind's usual local one."""
    api_key: SecretStr | None = None
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest wait for one reply, the loading of the model included; five times as long for a model that cannot but think."""
    concurrency: int = Field(default=8, ge=1)
    """Questions put at a time."""
    retries: ClassVar[int] = 5
    """Times a question is put again after an outage; after that its episode has failed. With the waits below that outlasts a restart of the
    server."""
    backoff_s: ClassVar[float] = 1.0
    """Longest wait before the first repetition; doubled for each further one. How much of it is waited is drawn at random."""
    max_backoff_s: ClassVar[float] = 30.0
    """Longest wait before any repetition."""
    loaded: Literal["sampling", "after", "always"] = "sampling"
    """When the judge's model is on the device. `sampling`: while episodes are sampled, so that those that have ended are judged
    meanwhile. `after`: only once all have ended; sampler and judge are never there together. `always`: also while the policy learns
    (Ollama; where the judge has memory of its own)."""
    require_qualified: bool = True
    """Train only with a judge that has passed `slmsearch judge qualify` with this model and prompt."""


class WorkerConfig(ConfigSection):
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


class PlanRewardConfig(ConfigSection):
    """Weights of the named parts of a plan's reward beside 1 for a right answer; their sum is the reward."""

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


class PlanSftConfig(ConfigSection):
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


class PlannerConfig(ConfigSection):
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
