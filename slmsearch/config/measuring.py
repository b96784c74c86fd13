"""Evaluating, deciding, tracking."""

from typing import Literal

from pydantic import Field, SecretStr

from slmsearch.config.sections import Address, Fraction, Section


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
    shards: int = Field(default=1, ge=1, le=1000)
    """Parts into which an evaluation with a model of its own is split, each a flow run on a worker of the pool; 1 plays all of it in one
    process. The result is the same; needs a Prefect server with workers."""
    shard_url: Address | None = None
    """Folder or URL that fsspec knows, such as s3://bucket/slmsearch, through which workers get what a shard is played with and give back
    its rows; None: all of them see the same `paths.data_dir`."""
    baselines: tuple[str, ...] = ("random", "retrieve-then-answer", "data/models/tiny-searcher-clean")
    """`random`, `retrieve-then-answer`, a path or Hub id of a model, or `openai:<model>@<base_url>`. The last by default: what supervised
    training alone reaches with perfect demonstrations, for as long as checkpoint and GRPO take together."""
    traced_episodes: int = Field(default=24, ge=0)
    """Episodes recorded as traces: a stratified sample."""
    night: str | None = None
    """Name of a night; part of the key, so that what was stored on another is played again. The flow `nightly` sets it."""


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
    """Bootstrap resamples, clustered by page; more for slices where there are so many that none could veto otherwise."""
    seed: int = 0


class NightlyConfig(Section):
    """The nightly evaluation, and what counts as a regression (`slmsearch/evaluate/nightly.py` says how it is tested)."""

    alpha: float = Field(default=0.01, gt=0, lt=1)
    """Chance that a night alarms without cause, over all its comparisons and slices."""
    min_fall: Fraction = 0.01
    """A smaller fall is no regression, however certain."""
    green_nights: int = Field(default=5, ge=1)
    """Last green nights that tonight is compared with, question by question."""
    fresh_pages: int = Field(default=400, ge=0)
    """Pages of the night's fresh world; 0 plays none. A planner gets fresh problems."""
    fresh_questions: int = Field(default=1000, ge=1)
    """Questions taken of it, or problems."""
    late_h: float = Field(default=26.0, gt=0)
    """Hours after the end of a night by which the next must have ended; later is an alarm."""
    webhook: SecretStr | None = None
    """Address that alarms are posted to, as JSON with a `text`; never recorded. A worker reads it from SLMSEARCH_NIGHTLY__WEBHOOK."""


class TrackingConfig(Section):
    """MLflow."""

    uri: Address | None = None
    """None: SQLite in `paths.mlruns_dir`."""
    experiment: str = "slmsearch"
    registered_model: str = "slmsearch-searcher"
    """Name under which adapters are registered; its alias `champion` is the promoted one. Planners left at this name are registered as
    `slmsearch-planner`."""
    wandb_project: str | None = None
    """Mirror the curves of training to this project of Weights & Biases (extra `wandb`); None sends nothing anywhere. Also read from
    WANDB_PROJECT."""
    wandb_entity: str | None = None
    """User or team that the project belongs to; None takes the account's own. Also read from WANDB_ENTITY."""
