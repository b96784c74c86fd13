"""Checks before a flow starts its first stage."""

from pathlib import Path

from flows.runtime.fetching import require_policy
from slmsearch.config import EvaluateConfig, RunConfig, TrainConfig
from slmsearch.corpus.sources import is_elsewhere
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ConfigError, CorpusError
from slmsearch.evaluate.metrics import metric_values
from slmsearch.evaluate.policies import parse_policy
from slmsearch.judge.qualify import require_qualified
from tasks.owners import require_reachable


def preflight(config: RunConfig, trains: bool = False) -> None:
    """Check the inputs and services that later stages need; if the run trains, also its model, its baselines and its judge.

    Raises:
        CorpusError: the data are not at the configured path.
        ConfigError: no mean over questions has the name of `decision.metric`, or training and evaluation would use the same questions.
        ServiceError: the configured MLflow server does not answer.
        ModelError: a directory is missing, or a model known by name cannot be fetched.
        JudgeError: the judge's server does not answer, or does not have the model.
        PreflightError: the judge has not passed its qualification.
    """
    for name, path in environment_of(config).data(config).sources().items():
        if path and not is_elsewhere(path) and not Path(path).exists():
            folder = "a folder of documents, " if name == "corpus.pages" else ""
            raise CorpusError(f"{name}: {path} does not exist; give a .jsonl or .parquet file, {folder}or hub:owner/name")
    metric_values((), config.decision.metric)
    if config.tracking.uri:
        require_reachable(config.tracking.uri)
    if not trains:
        return
    check_splits(config.evaluate, config.train)
    require_qualified(config.judge, config.paths.data_dir)
    require_policy(config.policy, config.paths)
    controls = environment_of(config).controls(config)
    for name in controls.evaluated():
        spec = parse_policy(name, config.policy, controls.baselines, config.paths.data_dir)
        if spec.policy:
            require_policy(spec.policy, config.paths, "evaluate.baselines")


def check_splits(evaluate: EvaluateConfig, train: TrainConfig) -> None:
    """Check that the questions an adapter learns from do not decide its promotion.

    Raises:
        ConfigError: they would.
    """
    if evaluate.split == train.split:
        raise ConfigError("evaluate.split is train: the adapter would be promoted by the questions it learnt from; set another one")
