"""Evaluating, deciding, tracking."""

from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from slmsearch.config.section import Address, ConfigSection


class EvaluateConfig(ConfigSection):
    """What is measured, on what."""

    policy: str | None = None
    """What the flow `evaluate` evaluates: `champion`, or a name as `baselines` takes it; None takes the champion, or the configured
    policy where nothing was promoted yet."""
    split: Literal["train", "validation", "test", "all"] = "test"
    limit: int = Field(default=0, ge=0)
    """Questions taken (a seeded sample); 0 takes all."""
    seed: ClassVar[int] = 0
    """Seeds the sample and the random baseline. One for all: results of other questions are no comparison."""
    views: tuple[Literal["whole", "withdrawn", "renamed", "replaced"], ...] = Field(default=("whole",), min_length=1)
    """How a policy with a model is played: on the corpus as it is (`whole`), and on twins of its questions, which say whether it knows what
    it does not know and whether its answers follow from what it reads (`slmsearch/environments/searcher/twins.py`)."""
    samples: int = Field(default=1, ge=1)
    """Episodes of each question, sampled at temperature 1, beside the greedy one; 1: none."""
    batch_size: int = Field(default=64, ge=1)
    """Episodes played together."""
    shards: int = Field(default=1, ge=1, le=1000)
    """Parts into which an evaluation with a model of its own is split, each a flow run on a worker of the pool; 1 plays all of it in one
    process. The result is the same; needs a Prefect server with workers that share `paths.data_dir`."""
    baselines: tuple[str, ...] = ("random", "retrieve-then-answer", "tiny-searcher-clean")
    """`random`, `retrieve-then-answer`, a path or Hub id of a model, or `openai:<model>@<base_url>`. The last by default: what supervised
    training alone reaches with perfect demonstrations, for as long as checkpoint and GRPO take together."""


class DecisionConfig(ConfigSection):
    """The written rule of promotion."""

    metric: str = "answer/typed_match"
    """Mean over questions that decides, by its name in `docs/metrics.md`."""
    min_questions: int = Field(default=200, ge=1)
    """Fewer paired questions: `inconclusive`."""
    alpha: ClassVar[float] = 0.05
    """Level of intervals and tests: who loosens it for one comparison promotes noise."""
    max_failed_frac: ClassVar[float] = 0.05
    """Larger share of pairs left out because an episode failed on either side: `inconclusive`."""
    min_gain: float = 0.0
    """The interval's lower end must lie above this to promote."""
    worst_slice_loss: ClassVar[float] = 0.05
    """A slice that is significantly worse by more than this vetoes promotion."""
    min_slice: ClassVar[int] = 30
    """Slices with fewer questions have no veto."""
    resamples: ClassVar[int] = 2000
    """Bootstrap resamples, clustered by page; more for slices where there are so many that none could veto otherwise."""
    seed: ClassVar[int] = 0
    """Seeds them."""


class NightlyConfig(ConfigSection):
    """The nightly evaluation, and what counts as a regression (`slmsearch/evaluate/nightly.py` says how it is tested)."""

    alpha: ClassVar[float] = 0.01
    """Chance that a night alarms without cause, over all its comparisons and slices: an alarm in three months."""
    min_fall: ClassVar[float] = 0.01
    """A smaller fall is no regression, however certain."""
    green_nights: ClassVar[int] = 5
    """Last green nights that tonight is compared with, question by question: `slmsearch bench nightly` measured the rule with five."""
    fresh_pages: int = Field(default=400, ge=0)
    """Pages of the night's fresh world, of which 2.5 questions each are played; 0 plays none. A planner gets as many fresh problems."""
    webhook: SecretStr | None = None
    """Address that alarms are posted to, as JSON with a `text`; never recorded. A worker reads it from SLMSEARCH_NIGHTLY__WEBHOOK."""


class TrackingConfig(ConfigSection):
    """MLflow."""

    uri: Address | None = None
    """None: SQLite in `paths.mlruns_dir`."""
    experiment: str = "slmsearch"
    registered_model: str = "slmsearch-searcher"
    """Name under which adapters are registered; its alias `champion` is the promoted one. Planners left at this name are registered as
    `slmsearch-planner`."""
