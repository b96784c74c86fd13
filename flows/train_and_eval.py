"""The flow `train-and-eval`: validate, index, evaluate, train, evaluate again, compare, promote or hold."""

from typing import Any

from prefect import flow

from flows.stages.pipeline import DEFAULTS, Pipeline, open_pipeline
from flows.stages.preflight import check_models
from flows.stages.promotion import promoted_or_held
from flows.stages.stages import Data, compared, current_index, evaluated, sft_control, trained_adapter, validated_corpus
from flows.stages.summary import Outcome, conclude
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec, parse_policy
from slmsearch.learn.models import trained_policy
from tasks.train import training_ahead


@flow(name="train-and-eval", persist_result=True, result_serializer="json")
def train_and_eval(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Train a search agent with GRPO and say, with statistics, whether it got better and whether it is promoted."""
    if config.environment != "searcher":
        raise ConfigError(f"train-and-eval trains a searcher, and environment is {config.environment}: run train-planner")
    with open_pipeline("train-and-eval", config, check_models) as run:
        corpus = validated_corpus(run)
        data = current_index(run, corpus)
        with training_ahead(data.digest, data.index_key, run.config):
            before = evaluated(run, data, PolicySpec(UNTRAINED, run.config.policy), "evaluate-before")
            baselines = evaluated_baselines(run, data)
            trained = trained_adapter(run, data)
        control = evaluated_control(run, data)
        policy = trained_policy(run.config.policy, trained["adapter"])
        after = evaluated(run, data, PolicySpec(TRAINED, policy), "evaluate-after")
        comparison = compared(run, "compare", before, after)
        decision = promoted_or_held(run, data, trained, after, comparison)
        rl_adds = compared(run, "compare-control", control, after) if control else None
        return conclude(run, Outcome(before, after, baselines, trained, control, comparison, rl_adds, decision))


def evaluated_baselines(run: Pipeline, data: Data) -> dict[str, dict[str, Any]]:
    """Evaluate every configured baseline on the same questions; return name -> evaluation."""
    specs = [parse_policy(name, run.config.policy) for name in run.config.evaluate.baselines]
    return {spec.name: evaluated(run, data, spec, f"evaluate-{spec.name}") for spec in specs}


def evaluated_control(run: Pipeline, data: Data) -> dict[str, Any] | None:
    """Train and evaluate the SFT control, if it is wanted; its evaluation also says how long it trained."""
    if not run.config.control.enabled:
        return None
    control = sft_control(run)
    policy = run.config.policy.model_copy(update={"model": control["model"], "adapter": None, "base_url": None})
    evaluation = evaluated(run, data, PolicySpec("sft-control", policy), "evaluate-control")
    return {**evaluation, "steps": control["steps"], "training_s": control["seconds"]}
