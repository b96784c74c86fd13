"""Evaluating planners: policies and controls as samplers, and the worker that goes with them."""

import random
from collections.abc import Sequence
from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import ConfigError
from slmsearch.evaluate.environments import PlannerEnvironment, make_planner
from slmsearch.evaluate.policies import PLAN_IS_QUESTION, PLANS_SHUFFLED, WORKER_ALONE, PolicySpec
from slmsearch.evaluate.run import Progress, evaluate_environment
from slmsearch.evaluate.store import Evaluation, load_evaluation
from slmsearch.generate.sampler import Sampler
from slmsearch.generate.scripted import ScriptedSampler
from slmsearch.planner.model_worker import ModelWorker
from slmsearch.planner.plan import DIRECT, MAX_QUESTION_CHARS, Plan, Subproblem, render_plan


def evaluate_plans(
    questions: Sequence[Question],
    spec: PolicySpec,
    config: RunConfig,
    evals_dir: Path,
    progress: Progress | None = None,
    total: int | None = None,
) -> Evaluation:
    """Evaluate a planner or a control on problems.

    Args:
        questions: problems, in the order of the rows.
        spec: what is evaluated.
        config: run.
        evals_dir: where the evaluation lies whose plans are shuffled.
        progress: told after each batch.
        total: problems of the whole evaluation, where these are a shard of it.

    Raises:
        ModelError, EvaluationError: as for `evaluate_policy`.
    """
    environment = make_planner(config)
    sampler = _make_sampler(spec, environment, config)
    if sampler is None:
        sampler = make_control(spec, questions, config, evals_dir)
    return evaluate_environment(questions, environment, sampler, spec, config, progress, total)


def _make_sampler(spec: PolicySpec, environment: PlannerEnvironment, config: RunConfig) -> Sampler | None:
    """Load the policy, if there is one, and let the worker share the policy's weights."""
    policy = spec.policy
    if isinstance(environment.worker, ModelWorker):
        from slmsearch.generate.load import load_with_base

        if policy is not None and policy.base_url:
            raise ConfigError("planner.worker.kind base needs the policy's model here: choose another worker for a served policy")
        # A control writes without a model, but its worker is still the configured one's base.
        shared = policy or config.policy.model_copy(update={"adapter": None})
        sampler, open_base = load_with_base(shared, config.searcher.tool_role)
        environment.worker.sample_with(open_base)
        return sampler if policy is not None else None
    if policy is None:
        return None
    from slmsearch.generate.load import make_sampler

    return make_sampler(policy, config.searcher.tool_role)


def make_control(spec: PolicySpec, questions: Sequence[Question], config: RunConfig, evals_dir: Path) -> Sampler:
    """Make a control of the planner.

    Raises:
        ConfigError: the planner has no baseline of that name.
    """
    if spec.name == WORKER_ALONE:
        return ScriptedSampler(lambda problem, results: render_plan(DIRECT))
    if spec.name == PLAN_IS_QUESTION:
        return ScriptedSampler(lambda problem, results: render_plan(restate(problem)))
    if spec.name == PLANS_SHUFFLED:
        plans = shuffled_plans(questions, evals_dir, spec.plans_of, config.evaluate.seed)
        return ScriptedSampler(lambda problem, results: plans[problem])
    raise ConfigError(f"the planner has no baseline {spec.name!r}; use {WORKER_ALONE} or {PLAN_IS_QUESTION}")


def restate(problem: str) -> Plan:
    """Make the plan that is the problem."""
    part = Subproblem(id="1", question=problem[:MAX_QUESTION_CHARS], depends_on=())
    return Plan(should_decompose=True, subproblems=(part,), combine="#1")


def shuffled_plans(questions: Sequence[Question], evals_dir: Path, key: str, seed: int) -> dict[str, str]:
    """Give every problem the plan that an evaluation wrote for another one, at random but never its own."""
    stored = load_evaluation(evals_dir, key)
    written = {episode.question_id: episode.turns[0].text if episode.turns else "" for episode in stored.episodes}
    order = [question.id for question in questions]
    random.Random(f"shuffled plans {seed}").shuffle(order)
    after = dict(zip(order, order[1:] + order[:1], strict=True))
    return {question.question: written.get(after[question.id], "") for question in questions}
