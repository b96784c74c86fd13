"""Every knob of a run, once, with its unit and the meaning of None and 0.

Sections are frozen; `RunConfig` holds them all and is what flows take as their parameter. Nothing here reads a file or the
environment: `flows/cli/settings.py` does.
"""

from slmsearch.config.data import CorpusConfig, EmbedderConfig, PathsConfig, RetrievalConfig, WorldConfig
from slmsearch.config.learning import ControlConfig, LoraSection, MonitorConfig, SftConfig, TrainConfig, VllmConfig
from slmsearch.config.measuring import DecisionConfig, EvaluateConfig, NightlyConfig, TrackingConfig
from slmsearch.config.planning import PlannerConfig, PlanRewardConfig, PlanSftConfig, WorkerConfig
from slmsearch.config.playing import (
    JudgeConfig,
    LimitsConfig,
    PolicyConfig,
    ProgramLimits,
    RewardConfig,
    SandboxConfig,
    SearcherConfig,
)
from slmsearch.config.run import RunConfig
from slmsearch.config.sections import Section

__all__ = [
    "ControlConfig",
    "CorpusConfig",
    "DecisionConfig",
    "EmbedderConfig",
    "EvaluateConfig",
    "JudgeConfig",
    "LimitsConfig",
    "LoraSection",
    "MonitorConfig",
    "NightlyConfig",
    "PathsConfig",
    "PlanRewardConfig",
    "PlanSftConfig",
    "PlannerConfig",
    "PolicyConfig",
    "ProgramLimits",
    "RetrievalConfig",
    "RewardConfig",
    "RunConfig",
    "SandboxConfig",
    "SearcherConfig",
    "Section",
    "SftConfig",
    "TrackingConfig",
    "TrainConfig",
    "VllmConfig",
    "WorkerConfig",
    "WorldConfig",
]
