"""The flows that train: `train-and-eval` validates, indexes, evaluates, trains, evaluates again, compares, and promotes or holds.

`train` stops after the training, and compares and promotes nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from prefect import flow, get_run_logger

from flows.stages.forecasting import forecast_training, require_forecast
from flows.stages.pipeline import DEFAULTS, Pipeline, open_pipeline
from flows.stages.promotion import promote_or_hold
from flows.stages.stages import (
    compare_evaluations,
    evaluate_policy,
    lay_out_training,
    prepare_data,
    start_from_examples,
    train_adapter,
    train_sft_control,
)
from flows.stages.summary import BesideSearch, ControlEvaluated, Outcome, conclude
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ConfigError, ContextError
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec, parse_policy
from slmsearch.models.hashes import trained_policy
from slmsearch.training.job import make_job
from tasks.corpus_data import Data
from tasks.evaluate import Evaluated
from tasks.train import Trained

FEW_FRAC, FEW = 0.4, 200
"""Share of the questions, and their maximum number, for untrained policies, which differ most and write the longest episodes; at least
`decision.min_questions`, since promotion compares with them.
"""
SHOTS = 2
"""Worked examples of the few-shot baseline."""


@flow(name="train-and-eval", persist_result=True, result_serializer="json")
def train_and_eval(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Train a model with GRPO; report, with statistics, whether it improved and whether it is promoted.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("train-and-eval", config, trains=True) as run:
        return train_in(run, prepare_data(run))


@flow(name="train-planner", persist_result=True, result_serializer="json")
def train_planner(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Train a planner for a frozen worker: `train-and-eval` with the planner as its environment.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("train-planner", config.model_copy(update={"environment": "planner"}), trains=True) as run:
        return train_in(run, prepare_data(run))


@flow(name="train", persist_result=True, result_serializer="json")
def train(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Train an adapter with GRPO, or resume a killed run, and register it.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("train", config, trains=True) as run:
        data = prepare_data(run)
        require_forecast(run, data)
        run = start_from_examples(run, data)
        forecast_training(run, data)
        return {**train_adapter(run, data), **run.ids}


@flow(name="forecast", persist_result=True, result_serializer="json")
def forecast(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Make the supervised start, if one is configured, and forecast what GRPO would bring to it.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("forecast", config, trains=True) as run:
        data = prepare_data(run)
        expected = forecast_training(start_from_examples(run, data), data, required=True)
        return {**(expected or {}), **run.ids}


Decide = Callable[[Pipeline, Evaluated], Pipeline]


def as_set(run: Pipeline, before: Evaluated) -> Pipeline:
    """Return the settings unchanged."""
    return run


def train_in(run: Pipeline, data: Data, begin: PolicyConfig | None = None, decide: Decide = as_set) -> dict[str, object]:
    """Train in an open run; return the summary.

    Args:
        run: the run.
        data: what it trains on and is measured by, to the end of the run.
        begin: policy that the supervised start begins with; None takes the configured one.
        decide: function that sets settings after the evaluation of the start.
    """
    environment, base = environment_of(run.config), run
    controls = environment.controls(run.config)
    require_forecast(run, data)
    reference = controls.reference
    data_dir = run.config.paths.data_dir
    beside = [parse_policy(spec, run.config.policy, controls.baselines, data_dir) for spec in controls.evaluated()]
    baselines = evaluated_all(run, data, beside)
    run = start_from_examples(replace(run, config=run.config.changed({"policy": begin or run.config.policy})), data)
    before = evaluate_policy(run, data, PolicySpec(UNTRAINED, run.config.policy), "evaluate-before")
    run = decide(run, before)
    expected = None if run.config.learn.budget_s else forecast_training(run, data)
    trained = train_adapter(run, data)
    if environment.data.output:
        trained["output"] = lay_out_training(run, data)
    training = run.lineage["train_key"]
    wants_control = controls.has_sft and run.config.control.enabled
    control = evaluated_control(run, data, trained["seconds"], "control", training) if wants_control else None
    after = evaluate_policy(run, data, PolicySpec(TRAINED, trained_policy(run.config.policy, trained["adapter"])), "evaluate-after")
    baselines |= evaluated_all(run, data, [PolicySpec(name, None, after["key"]) for name in controls.derived])
    comparison = compare_evaluations(run, "compare", before, after)
    gain = compare_evaluations(run, f"compare-{reference}", baselines[reference], after) if reference else None
    rl_adds = compare_evaluations(run, "compare-control", control, after) if control else None
    beside_search = play_without_searching(run, base.config.policy, data, trained, after) if controls.has_reader() else None
    fell = comparison["decision"] == "reject" or any(part["vetoes"] for part in comparison["slices"])
    deciding = beside_search.gain if beside_search and not fell else comparison
    decision = promote_or_hold(base if beside_search else run, data, trained, before, after, deciding)
    return conclude(run, Outcome(before, after, baselines, trained, control, comparison, gain, rl_adds, decision, beside_search, expected))


def evaluated_all(run: Pipeline, data: Data, specs: Iterable[PolicySpec]) -> dict[str, Evaluated]:
    """Evaluate the policies shown beside the trained one, on the same questions; return name -> evaluation."""
    return {spec.name: evaluate_policy(run, data, spec, f"evaluate-{spec.name}") for spec in specs}


def evaluated_control(run: Pipeline, data: Data, seconds: float, name: str, training: str) -> ControlEvaluated:
    """Train a model by supervision as long as the training of a key, and evaluate it; the result also holds its training time."""
    control = train_sft_control(run, data, seconds, name, training)
    policy = run.config.policy.model_copy(update={"model": control["model"], "adapter": None, "base_url": None})
    evaluation = evaluate_policy(run, data, PolicySpec(f"sft-{name}", policy), f"evaluate-{name}")
    return {**evaluation, "steps": control["steps"], "training_s": control["seconds"]}


def play_without_searching(run: Pipeline, first: PolicyConfig, data: Data, trained: Trained, after: Evaluated) -> BesideSearch:
    """Evaluate the first policy of a run on real pages untrained, with worked examples, from memory, and as a reader.

    The reader is the start, trained further to answer at once from one search, for as long as GRPO took and at the start's rate: both
    have had the same time. Seeds share it: it takes the time of the first one's GRPO.
    """
    limit, least = run.config.evaluate.limit or FEW, run.config.decision.min_questions
    asked = min(limit, FEW, max(least, int(FEW_FRAC * limit)))
    few = run.config.changed({"policy": first, "evaluate.limit": asked, "evaluate.shots": 0})
    untrained = evaluate_policy(replace(run, config=few), data, PolicySpec("base", first), "evaluate-base")
    few_shot = play_few_shot(replace(run, config=few), first, data)
    remembering = replace(run, config=few.changed({"searcher.reads": "nothing"}))
    closed_book = evaluate_policy(remembering, data, PolicySpec("closed-book", first), "evaluate-closed-book")
    taught = {"searcher.reads": "shown", "sft.learning_rate": 3 * run.config.sft.learning_rate}
    training = make_job(run.config.changed({"train.seed": 0}), data.digest, data.index_key).train_key
    reader = evaluated_control(replace(run, config=run.config.changed(taught)), data, trained["seconds"], "reader", training)
    comparison = compare_evaluations(run, "compare-reader", reader, after)
    gain = compare_evaluations(run, "compare-base", untrained, after, shared=True)
    few_shot_gain = compare_evaluations(run, "compare-few-shot", few_shot, after, shared=True) if few_shot else None
    return BesideSearch(untrained, closed_book, reader, comparison, gain, few_shot, few_shot_gain)


def play_few_shot(run: Pipeline, first: PolicyConfig, data: Data) -> Evaluated | None:
    """Evaluate the untrained policy with worked examples; None, with a warning, if there are too few or the context is too short.

    Its batches are smaller: an example is as long as an episode. Within a limited time it is asked no more than a decision needs.
    """
    evaluate, learn, decision = run.config.evaluate, run.config.learn, run.config.decision
    limit = min(evaluate.limit, decision.min_questions) if learn.budget_s else evaluate.limit
    batch = max(1, evaluate.batch_size // (1 + SHOTS))
    shown = run.config.changed({"evaluate.shots": SHOTS, "evaluate.batch_size": batch, "evaluate.limit": limit})
    try:
        return evaluate_policy(replace(run, config=shown), data, PolicySpec("few-shot", first), "evaluate-few-shot")
    except (ConfigError, ContextError) as error:
        get_run_logger().warning("the untrained policy is not evaluated with %d worked examples: %s", SHOTS, error)
        return None
