"""Settings of a run, each defined once, with its unit and the meaning of None and 0.

Sections are frozen; `RunConfig` holds them all and is the parameter of flows. `flows/runtime/settings.py` reads files and variables.
"""

from typing import Self

from pydantic import model_validator

from slmsearch.config.data import CorpusConfig, EmbedderConfig, PathsConfig, RetrievalConfig, WorldConfig
from slmsearch.config.learning import (
    BesideConfig,
    ControlConfig,
    LearnConfig,
    LoraSection,
    MonitorConfig,
    SftConfig,
    TrainConfig,
    VllmConfig,
)
from slmsearch.config.measuring import DecisionConfig, EvaluateConfig, ForecastConfig, NightlyConfig, TrackingConfig
from slmsearch.config.playing import (
    JudgeConfig,
    LimitsConfig,
    PlannerConfig,
    PlanRewardConfig,
    PlanSftConfig,
    PolicyConfig,
    ProgramLimits,
    RewardConfig,
    SandboxConfig,
    SearcherConfig,
    ServiceConfig,
    WorkerConfig,
)
from slmsearch.config.section import ConfigSection


class RunConfig(ConfigSection):
    """Settings of one run."""

    environment: str = "searcher"
    """Environment that is trained and evaluated: `searcher`, `planner`, `writer` (of questions), or `module:Class` of your own. The
    searcher uses the sections `corpus`, `searcher` and `reward`, the writer the first two; the planner uses `planner`."""
    paths: PathsConfig = PathsConfig()
    corpus: CorpusConfig = CorpusConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    searcher: SearcherConfig = SearcherConfig()
    sandbox: SandboxConfig = SandboxConfig()
    service: ServiceConfig = ServiceConfig()
    planner: PlannerConfig = PlannerConfig()
    policy: PolicyConfig = PolicyConfig()
    reward: RewardConfig = RewardConfig()
    judge: JudgeConfig = JudgeConfig()
    train: TrainConfig = TrainConfig()
    sft: SftConfig = SftConfig()
    control: ControlConfig = ControlConfig()
    learn: LearnConfig = LearnConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    forecast: ForecastConfig = ForecastConfig()
    decision: DecisionConfig = DecisionConfig()
    nightly: NightlyConfig = NightlyConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _learns_what_can_learn(self) -> Self:
        if self.train.method == "full" and (self.policy.load_in_4bit or self.policy.adapter):
            raise ValueError("train.method full trains plain weights: unset policy.load_in_4bit and policy.adapter, or set it to lora")
        if self.train.method == "full" and self.policy.dtype != "float32":
            cause = f"train.method full would train {self.policy.dtype} weights, which lose most of every small step in rounding"
            raise ValueError(f"{cause}: set policy.dtype to float32, or train.method to lora")
        if self.policy.load_in_4bit and self.train.vllm.mode != "off":
            cause = "vLLM cannot sample with policy.load_in_4bit: since 0.28 it does not read bitsandbytes weights"
            raise ValueError(f"{cause}; unset policy.load_in_4bit, or set train.vllm.mode to off")
        return self
