"""Settings of playing and judging: searcher, planner, worker, judge, sandbox, service."""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from slmsearch.config.section import Address, ConfigSection


class FrozenDict(dict[str, bool | int | float | str]):
    """Mapping that is hashable, as every section is; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


Variables = Annotated[dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], bool | int | float | str], AfterValidator(FrozenDict)]
"""Names and values of a chat template's variables."""


class SearcherConfig(ConfigSection):
    """Limits of an episode and the form of its messages."""

    max_turns: int = Field(default=8, ge=1)
    """Maximum number of assistant messages in an episode, the answer included."""
    max_turn_tokens: int = Field(default=48, ge=1)
    """Maximum number of tokens in one assistant message."""
    max_episode_tokens: int = Field(default=448, ge=16)
    """Maximum number of tokens after the prompt, tool results included."""
    max_section_chars: int = Field(default=1500, ge=100)
    """Size of one part of a section or of a list of a page's sections, and of all text that a search shows, in characters; `section_id#2`
    is the second part. 1500 are some 400 tokens of English. Less makes more and shorter results, which a small model learns faster."""
    reads: Literal["tools", "shown", "nothing"] = "tools"
    """Source of the model's knowledge. `tools`: it searches. `shown`: its prompt holds the sections that a search for the question finds,
    and it answers at once (a reader). `nothing`: it answers at once from memory. Without tools a message without tags is an answer."""
    shows: Literal["titles", "sections", "text"] = "titles"
    """Form of the pages that a search shows. `titles`: `page_id: title`. `sections`: also the best section, `page_id: title (section_id)`;
    this saves a turn for a model that uses it. `text`: the best sections themselves, as many as fit into `max_section_chars` together, and
    the titles of the others; one call then shows what a reader has. The question stands below every result that is neither
    refused nor cut, and a page's first section goes by the id of the page."""
    missing_names: bool = True
    """Show in search results which names of the query a page lacks, as `page_id: title (without NAME)`, judged by its title and best
    section. A name is a word that begins with a capital."""
    system_prompt: str | None = None
    """Text of the system message. None takes the built-in one for instruct models; "" sends none."""
    tool_role: Literal["tool", "user"] = "tool"
    """Role of tool results in the chat template."""
    format: Literal["tags", "native"] = "tags"
    """Form of calls and answers. `tags`: `<tool>` and `<answer>`. `native`: calls as the model's chat template writes them, its tools
    declared there, and any other message is the answer; for models whose template knows tools, played here and not by a server."""
    programs: bool = False
    """Let the model also write Python programs in `<code>`, which run in the sandbox; raise `max_turn_tokens` with it."""

    @model_validator(mode="after")
    def _programs_fit(self) -> Self:
        if self.programs and (self.shows == "text" or self.format == "native"):
            raise ValueError("a program needs format tags, and titles: set shows to titles or sections, or programs to false")
        return self


class LimitsConfig(ConfigSection):
    """Limits of one program; a program that exceeds one is stopped and gets that as its result."""

    wall_s: float = Field(default=5.0, gt=0, le=50)
    """Time limit of a program, in seconds. Time in tools does not count; program and tools may take at most a minute together."""
    memory_mb: int = Field(default=256, ge=64)
    """Address space of the interpreter, in MiB; its memory cgroup, if there is one, has the same limit."""


class ProgramLimits(LimitsConfig):
    """All limits of a program: the settings, and constants that fit every program that calls tools and prints a result."""

    cpu_s: int = Field(default=5, ge=1, le=600)
    """CPU time, in seconds, including the interpreter's start."""
    calls: int = Field(default=32, ge=0)
    """Maximum number of tool calls."""
    output_chars: int = Field(default=4000, ge=1)
    """Maximum number of printed characters returned; the rest is cut off."""
    program_chars: int = Field(default=8000, ge=1)
    """Maximum length of a program, in characters; a longer one is not run."""


class SandboxConfig(ConfigSection):
    """Sandbox that runs programs written by a model (`slmsearch sandbox up`)."""

    engine: Literal["bubblewrap", "docker"] = "bubblewrap"
    """Isolation engine. It cannot be disabled: without an engine no program runs."""
    port: int = Field(default=8700, ge=1, le=65535)
    """Port of the server on this machine."""
    base_url: Address | None = None
    """Address of the server; None uses this machine and `port`."""
    token: SecretStr | None = None
    """Token that clients send to the server. None reads it from `sandbox/token` in `paths.data_dir`, which the first process creates."""
    concurrency: ClassVar[int] = 4
    """Number of programs that run at the same time. A program takes milliseconds, so more would gain little."""
    timeout_s: ClassVar[float] = 60.0
    """Time limit of a client's request for one program, in seconds, queueing included; the server ends programs that take longer."""
    docker_memory_limit: str = Field(default="256m", pattern=r"^[1-9][0-9]*[kmg]$")
    """Memory limit of a container."""
    docker_cpu_limit: float = Field(default=1.0, gt=0)
    """CPU limit of a container."""
    limits: LimitsConfig = LimitsConfig()


class ServiceConfig(ConfigSection):
    """Settings of the searcher as a service (`slmsearch serve searcher`)."""

    queue: int = Field(default=64, ge=1)
    """Maximum number of waiting questions; the service refuses further ones with status 429."""
    deadline_s: float = Field(default=60.0, gt=0)
    """Time limit of a question, in seconds, waiting included; after it the service answers with status 504."""
    traced_frac: float = Field(default=0.1, ge=0, le=1)
    """Share of the episodes recorded as traces in MLflow, with question and answer; 0 records none."""


class PolicyConfig(ConfigSection):
    """Model that is trained or evaluated."""

    model: str = "tiny-searcher"
    """Name from `slmsearch models list`, or path or Hub id of a causal language model. `owner/name@commit` selects a commit; without it the
    cached commit is used, else the newest. The path of a GGUF is played by llama.cpp (extra `llamacpp`), and cannot be trained."""
    adapter: str | None = None
    """Name from `slmsearch models list`, or path, of a LoRA adapter of `model`; None plays the model without one."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Number format of the weights; `auto` takes that of the checkpoint."""
    load_in_4bit: bool = False
    """Load the weights as 4-bit NF4 (bitsandbytes, extra `gpu`); an adapter trained on them is QLoRA."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model; `auto` takes a GPU if there is one."""
    chat_template_kwargs: Variables = Field(default={}, validate_default=True)
    """Variables of the chat template, for every rendering; `{enable_thinking: false}` for Qwen3 models that think by default."""
    base_url: Address | None = None
    """OpenAI-compatible endpoint that serves `model`; None loads the model locally."""
    api_key: SecretStr | None = None
    """API key of the endpoint; never recorded."""


class RewardConfig(ConfigSection):
    """Weights of the named parts of a reward. A right answer is worth 1; the reward is the sum, in [-0.1, 1] with these defaults."""

    kind: Literal["task", "format_only", "random"] = "task"
    """Behaviour that is rewarded. `task`: a right answer. Two controls: `format_only` rewards any well-formed answer, `random` chance."""
    correctness: Literal["verdict", "f1"] = "verdict"
    """Correctness of an answer: the judge's yes or no (`verdict`), or token F1 with the best alias (`f1`). A question whose right answer is
    a passage (more than ten words) is paid by token F1 in both."""
    call_cost: float = Field(default=0.02, ge=0)
    """Cost of each tool call, as a fraction of a right answer. Wrong answers pay nothing: else not to search would be cheapest."""
    evidence_read: float = 0.0
    """Reward for the share of gold sections that were read."""
    malformed: float = -0.1
    """Reward of an episode that ended malformed."""
    abstained: float = 0.0
    """Reward of "I don't know" to an answerable question; keep it between wrong (0) and right."""
    abstained_gated: bool = True
    """Pay `abstained` only if no episode of the group is right: the policy should answer questions that it can answer."""

    def key_parts(self, exclude: Collection[str] = ()) -> dict[str, object]:
        """Extend `ConfigSection.key_parts`; the gate counts only if `abstained` is not 0."""
        return super().key_parts(exclude if self.abstained else {*exclude, "abstained_gated"})


class JudgeConfig(ConfigSection):
    """Judge that decides whether an answer is right."""

    kind: Literal["exact", "ollama", "openai"] = "exact"
    """Method: `exact` is a typed match with any alias. `ollama` and `openai` ask a language model if that match fails."""
    model: str = "qwen2.5:7b"
    """Name of the language model on the server."""
    base_url: Address | None = None
    """Address of the endpoint; None uses the default local address of `kind`."""
    api_key: SecretStr | None = None
    """API key of the endpoint; never recorded."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Timeout of one reply, in seconds, loading of the model included; five times as long for a model that always thinks."""
    concurrency: int = Field(default=8, ge=1)
    """Number of concurrent requests."""
    retries: ClassVar[int] = 5
    """Number of retries after an outage; then the episode fails. With the delays below this outlasts a restart of the server."""
    backoff_s: ClassVar[float] = 1.0
    """Maximum delay before the first retry, in seconds; doubled for each further one. The actual delay is random."""
    max_backoff_s: ClassVar[float] = 30.0
    """Maximum delay before any retry, in seconds."""
    loaded: Literal["sampling", "after", "always"] = "sampling"
    """Time at which the judge's model is on the device. `sampling`: while episodes are sampled, so that finished ones are judged meanwhile.
    `after`: once all have ended; sampler and judge are never loaded together. `always`: also during updates (if its memory is its own)."""
    require_qualified: bool = True
    """Refuse to train with a judge that has not passed `slmsearch judge qualify` with this model and prompt."""


class WorkerConfig(ConfigSection):
    """Frozen worker that carries out plans; always greedy."""

    kind: Literal["arithmetic", "base", "openai", "ollama"] = "arithmetic"
    """Kind of worker. `arithmetic`: reads and computes, without a model. `base`: the policy's model without adapter. Others: a server."""
    max_operations: ClassVar[int] = 2
    """Maximum number of operations per question for `arithmetic`: fewer than most generated problems need, so that planning matters."""
    model: str = "qwen2.5:7b"
    """Name of the model on the server, for `openai` and `ollama`."""
    base_url: Address | None = None
    """Address of the endpoint; None uses the default local address of `kind`."""
    api_key: SecretStr | None = None
    """API key of the endpoint; never recorded."""
    concurrency: ClassVar[int] = 8
    """Number of concurrent requests; a server with fewer slots queues the rest."""
    timeout_s: ClassVar[float] = 60.0
    """Timeout of one reply, in seconds, loading of the model included."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Maximum number of tokens in a model's solution."""


class PlanRewardConfig(ConfigSection):
    """Weights of the named parts of a plan's reward. A right answer is worth 1; the reward is the sum."""

    kind: Literal["task", "format_only", "random"] = "task"
    """Behaviour that is rewarded. `task`: a right answer. Two controls: `format_only` rewards any well-formed plan, `random` chance."""
    tokens: float = Field(default=0.2, ge=0)
    """Weight of 1 - tokens / `max_tokens`, paid only with a right answer. If wrong answers earned it, the shortest plan would pay best."""
    max_tokens: int = Field(default=400, ge=1)
    """Number of tokens, of plan and worker together, at which that part is 0."""
    independence: float = Field(default=0.3, ge=0)
    """Weight of the mean dissimilarity of the subproblems (1 - cosine, `retrieval.embedder`), paid only with a right answer that the worker
    alone does not reach: needless splitting earns nothing."""
    malformed: ClassVar[float] = -0.1
    """Reward of a text without a plan: less than an honest plan that fails."""
    hacked: ClassVar[float] = -0.1
    """Reward of a plan that a reward-hacking filter refuses. It is graded as wrong: no hack earns more than an honest failure."""


class PlanSftConfig(ConfigSection):
    """Supervised training of a planner (`slmsearch planner sft`, and the flow `train-planner` if `enabled`)."""

    enabled: bool = False
    """Begin the flow `train-planner` with supervised training; False starts from the policy's model."""
    source: str = "generated"
    """Source of the plans: `generated` (the generator's gold plans), `own` (the model's own right plans, by rejection sampling), or a
    `.jsonl` or `.parquet` file or `hub:owner/name` with the columns `UserPrompt`, `ExpectedOutput` and optionally `SystemPrompt`."""
    environment_column: ClassVar[str] = "SystemPrompt"
    prompt_column: ClassVar[str] = "UserPrompt"
    completion_column: ClassVar[str] = "ExpectedOutput"
    max_tokens: int = Field(default=448, ge=16)
    """Maximum number of tokens per example; longer ones are left out and counted."""
    epochs: float = Field(default=0.0, ge=0)
    """Passes over a finite set, with `sft.batch_size` examples per update; 0 takes `sft.steps`."""


class PlannerConfig(ConfigSection):
    """Settings of the planner: problems, worker, limits."""

    problems: str | None = None
    """Source of the problems: a `.jsonl` or `.parquet` file or `hub:owner/name` in GSM8K's form (`question`, `answer` with `####`).
    `hub:owner/name/subset@commit` selects a configuration and a commit; default: the newest. None generates problems."""
    seed: int = 21
    """Seed of generated problems."""
    limit: int = Field(default=0, ge=0)
    """Number of problems over all splits: the first of a source, or those to generate, at most 33,600. 0: all, or 6,000 generated."""
    max_plan_tokens: int = Field(default=200, ge=16)
    """Maximum number of tokens in a plan."""
    system_prompt: str | None = None
    """Text of the system message. None takes the built-in one; "" sends none."""
    worker: WorkerConfig = WorkerConfig()
    reward: PlanRewardConfig = PlanRewardConfig()
    sft: PlanSftConfig = PlanSftConfig()
