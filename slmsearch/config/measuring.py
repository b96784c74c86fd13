"""Settings of evaluation, promotion and tracking."""

from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from slmsearch.config.section import Address, ConfigSection


class EvaluateConfig(ConfigSection):
    """Settings of an evaluation."""

    policy: str | None = None
    """Policy of the flow `evaluate`: `champion`, or a name as in `baselines`; None: the champion, if none the configured policy."""
    split: Literal["train", "validation", "test", "all"] = "test"
    """Split of the evaluated questions."""
    limit: int = Field(default=0, ge=0)
    """Number of questions (a seeded sample); 0 takes all."""
    seed: ClassVar[int] = 0
    """Seed of the sample and of the random baseline. It is fixed because only results on the same questions are comparable."""
    views: tuple[Literal["whole", "withdrawn", "renamed", "replaced"], ...] = Field(default=("whole",), min_length=1)
    """Corpora on which a policy with a model is played: the corpus as it is (`whole`), and twins of its questions (`withdrawn`, `renamed`,
    `replaced`). Twins measure abstention and whether answers follow from the text (`slmsearch/environments/searcher/twins.py`)."""
    samples: int = Field(default=1, ge=1)
    """Episodes per question sampled at temperature 1, beside the greedy one; 1 samples none. With more a supervised training also plays 32
    held-out questions in that way, at each quarter of its updates."""
    shots: int = Field(default=0, ge=0)
    """Worked examples in every prompt of a policy with a model: whole demonstrated episodes of training questions that are not evaluated,
    one of them with two hops if the data have it."""
    batch_size: int = Field(default=64, ge=1)
    """Episodes played at the same time."""
    shards: int = Field(default=1, ge=1, le=1000)
    """Number of parts of a plain evaluation (no twins, one episode a question) with a model of its own, and of the gold demonstrations of a
    start (`sft.start: gold`); each part is a flow run on a worker of the pool. 1 plays all in one process. The result is the same. Needs a
    Prefect server and workers that share `paths.data_dir`."""
    baselines: tuple[str, ...] = ("random", "retrieve-then-answer", "tiny-searcher-clean")
    """Policies to compare with: `random`, `retrieve-then-answer`, a path or Hub id of a model, or `openai:<model>@<base_url>`.
    `tiny-searcher-clean` is what supervised training on perfect demonstrations reaches in the time of checkpoint and GRPO together."""


class ForecastConfig(ConfigSection):
    """Settings of the forecast before a training (`slmsearch forecast`)."""

    questions: int = Field(default=0, ge=0)
    """Held-out questions that the start plays; 0 takes as many as a twelfth of the training's time holds, and none if that is too few."""
    samples: int = Field(default=16, ge=2)
    """Episodes per question, sampled at temperature 1, beside the greedy one."""
    if_worth_it: bool = False
    """Train only if the forecast says that it is worth its time."""


class DecisionConfig(ConfigSection):
    """Settings of the promotion rule."""

    metric: str = "answer/typed_match"
    """Metric that decides, a mean over questions such as `answer/correct`, `answer/f1` or `reward/mean` (`docs/metrics.md`)."""
    min_questions: int = Field(default=200, ge=1)
    """Minimum number of paired questions; with fewer the decision is `inconclusive`."""
    alpha: ClassVar[float] = 0.05
    """Significance level of intervals and tests. It is fixed: a looser level for one comparison would promote noise."""
    max_failed_frac: ClassVar[float] = 0.05
    """Maximum share of pairs that may be left out because an episode failed on either side; above it the decision is `inconclusive`."""
    min_gain: float = 0.0
    """Minimum gain: the interval's lower end must be above it to promote."""
    worst_slice_loss: ClassVar[float] = 0.05
    """Maximum loss on a slice; a significantly larger loss vetoes promotion."""
    min_slice: ClassVar[int] = 30
    """Minimum number of questions in a slice that may veto."""
    resamples: ClassVar[int] = 2000
    """Bootstrap resamples, clustered by page. Slices use more if there are too many slices for any to veto otherwise."""
    seed: ClassVar[int] = 0
    """Seed of the resamples."""


class NightlyConfig(ConfigSection):
    """Settings of the nightly evaluation and of its regression rule (`slmsearch/evaluate/nightly.py` describes the test)."""

    alpha: ClassVar[float] = 0.01
    """Probability of a false alarm per night, over all comparisons and slices: one in three months."""
    min_fall: ClassVar[float] = 0.01
    """Smallest fall that counts as a regression."""
    green_nights: ClassVar[int] = 5
    """Number of latest green nights to compare with, question by question: `slmsearch bench nightly` measured the rule with five."""
    fresh_pages: int = Field(default=400, ge=0)
    """Pages of the night's fresh world, with 2.5 questions played for each; 0 plays none. A planner plays 2.5 fresh problems for each."""
    webhook: SecretStr | None = None
    """Address to which alarms are posted as JSON with a `text`; never recorded. A worker reads it from SLMSEARCH_NIGHTLY__WEBHOOK."""


class TrackingConfig(ConfigSection):
    """Settings of MLflow."""

    uri: Address | None = None
    """Tracking address; None uses SQLite in `paths.mlruns_dir`."""
    experiment: str = "slmsearch"
    """Name of the MLflow experiment."""
    registered_model: str = "slmsearch-searcher"
    """Name to register adapters under, its alias `champion` the promoted version; with this default planners are `slmsearch-planner`."""
    approval_s: float = Field(default=0.0, ge=0.0)
    """Time that a promotion waits for a person's approval on the flow run's page, in seconds; 0: none is asked for."""
