"""The flow `train-planner`: validate, measure the worker alone, SFT, GRPO, compare, promote or hold."""

from contextlib import nullcontext
from typing import Any

from prefect import flow

from flows.ops.device import device
from flows.stages.pipeline import DEFAULTS, Pipeline, open_pipeline
from flows.stages.preflight import check_models
from flows.stages.problems import as_planner, validated_problems
from flows.stages.promotion import promoted_or_held
from flows.stages.stages import Data, compared, evaluated, trained_adapter
from flows.stages.summary_planner import PlannerOutcome, conclude_planner
from slmsearch.config import RunConfig
from slmsearch.evaluate.policies import PLAN_IS_QUESTION, PLANS_SHUFFLED, TRAINED, UNTRAINED, WORKER_ALONE, PolicySpec
from slmsearch.learn.job import plan_sft_key
from slmsearch.learn.models import trained_policy
from tasks.planner import lay_out_task, plan_sft_task
from tasks.train import training_ahead


@flow(name="train-planner", persist_result=True, result_serializer="json")
def train_planner(config: RunConfig = DEFAULTS) -> dict[str, Any]:
    """Train a planner for a frozen worker, and say, with statistics, whether it got better and whether it is promoted."""
    with open_pipeline("train-planner", as_planner(config), check_models) as run:
        data = Data(validated_problems(run), "")
        ahead = nullcontext() if run.config.planner.sft.enabled else training_ahead(data.digest, "", run.config)
        with ahead:
            alone = evaluated(run, data, PolicySpec(WORKER_ALONE, None), f"evaluate-{WORKER_ALONE}")
            restated = evaluated(run, data, PolicySpec(PLAN_IS_QUESTION, None), f"evaluate-{PLAN_IS_QUESTION}")
            start_from_plans(run, data)
            before = evaluated(run, data, PolicySpec(UNTRAINED, run.config.policy), "evaluate-before")
            trained = trained_adapter(run, data)
        with run.stage("lay-out") as run_id:
            trained["output"] = lay_out_task(data.digest, run_id, run.config)
        after = evaluated(run, data, PolicySpec(TRAINED, trained_policy(run.config.policy, trained["adapter"])), "evaluate-after")
        shuffled = evaluated(run, data, PolicySpec(PLANS_SHUFFLED, None, after["key"]), f"evaluate-{PLANS_SHUFFLED}")
        comparison = compared(run, "compare", before, after)
        gain = compared(run, f"compare-{WORKER_ALONE}", alone, after)
        decision = promoted_or_held(run, data, trained, after, comparison)
        controls = {PLAN_IS_QUESTION: restated, PLANS_SHUFFLED: shuffled}
        return conclude_planner(run, PlannerOutcome(alone, before, after, controls, trained, comparison, gain, decision))


def start_from_plans(run: Pipeline, data: Data) -> None:
    """Train the start on plans, where that is wanted; from here on it is the run's model."""
    if not run.config.planner.sft.enabled:
        return
    key = plan_sft_key(run.config, data.digest)
    with run.stage("train-sft", key) as run_id, device(run.config):
        start = plan_sft_task(key, data.digest, run_id, run.config)
        run.tracker.record_params(run_id, {f"sft.{name}": value for name, value in start.items()})
    run.know(sft_key=key)
    policy = run.config.policy.model_copy(update={"model": start["model"], "adapter": None})
    run.config = run.config.model_copy(update={"policy": policy})
