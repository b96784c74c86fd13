"""Planners are evaluated as searchers are: rows, metrics, keys, controls, storage."""

import json
from copy import copy

import pytest

from slmsearch.config import PathsConfig, PolicyConfig, RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner import planner_environment as planning
from slmsearch.environments.planner.plan import render_plan
from slmsearch.environments.planner.plan_reward import NumberJudge
from slmsearch.environments.planner.planner_environment import PLAN_IS_QUESTION, PLANS_SHUFFLED, WORKER_ALONE, PlannerEnvironment
from slmsearch.environments.planner.problems import generate_problems, gold_plan
from slmsearch.environments.planner.worker import ArithmeticWorker, ConcurrentWorker, Solution
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ConfigError, EvaluationError, SlmSearchError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key, eval_sources, evaluate_policy
from slmsearch.evaluate.store import load_evaluation, write_evaluation
from slmsearch.judge import ExactJudge, Verdict
from tests.slmsearch.environments.planner.words import WordIndependence
from tests.slmsearch.evaluate.builders import is_documented

PROBLEMS = list(generate_problems(9, 60))
QUESTIONS = [Question(f"p{i}", p.text, str(p.answer), hops=p.operations, kind="generated") for i, p in enumerate(PROBLEMS)]
GOLD = {problem.text: render_plan(gold_plan(problem)) for problem in PROBLEMS}


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "make_independence", lambda _: WordIndependence())
    return RunConfig(environment="planner", policy=PolicyConfig(model=str(tmp_path)), paths=PathsConfig(data_dir=str(tmp_path)))


def play(script, config, environment=None):
    spec = PolicySpec("scripted", None)
    return evaluate_policy(QUESTIONS, environment or PlannerEnvironment(config).open(ExactJudge()), spec, sampler=ScriptedSampler(script))


def evaluate_plans(spec, config):
    return evaluate_policy(QUESTIONS, PlannerEnvironment(config).open(ExactJudge()), spec)


@pytest.mark.parametrize(("name", "resource"), [("searcher", "judge"), ("planner", "worker"), ("writer", "toolbox")])
def test_an_environment_that_is_not_open_says_so_in_one_line(name, resource):
    environment = environment_of(RunConfig(environment=name))
    lacking = f"^{type(environment).__name__} has no `{resource}` before it is open: use the environment that `open` returns$"
    with pytest.raises(SlmSearchError, match=lacking):
        evaluate_policy(QUESTIONS[:1], environment, PolicySpec("scripted", None), sampler=ScriptedSampler(lambda *_: ""))
    assert not hasattr(copy(environment), "judge"), "copies can be asked, too"


class Halved(PlannerEnvironment):
    """An environment of one's own whose code has mistakes."""

    @property
    def half(self):
        return self.worker.nothing


def test_a_mistake_in_the_code_of_an_environment_is_told_as_it_is(config):
    environment = Halved(config)
    with pytest.raises(SlmSearchError, match=r"^Halved has no `worker` before it is open"):
        environment.half  # noqa: B018
    opened = environment.open(ExactJudge())
    for name, wrong in (("wroker", "'Halved' object has no attribute 'wroker'"), ("half", "has no attribute 'nothing'")):
        with pytest.raises(AttributeError, match=wrong) as caught:
            getattr(opened, name)
        assert not isinstance(caught.value, SlmSearchError)


def test_gold_plans_solve_everything_and_gain_over_the_worker(config):
    found = play(lambda problem, results: GOLD[problem], config)
    metrics = found.metrics
    assert metrics["answer/correct"] == metrics["answer/exact_match"] == 1.0
    assert metrics["plan/gain"] == pytest.approx(1.0 - metrics["plan/alone_frac"])
    assert 0.2 <= metrics["plan/alone_frac"] <= 0.5
    assert metrics["plan/answerable_frac"] == 1.0
    assert metrics["plan/hacked_frac"] == 0.0
    assert metrics["plan/tokens_per_solved"] == pytest.approx(metrics["plan/tokens"])
    assert all(is_documented(name) for name in metrics)
    assert set(found.slices) == {"kind=generated", *(f"hops={n}" for n in range(1, 7))}


def test_controls_do_not_do_better_than_the_worker(config, tmp_path):
    alone = evaluate_plans(PolicySpec(WORKER_ALONE, None), config)
    assert alone.metrics["plan/gain"] == 0.0
    assert alone.metrics["plan/decomposed_frac"] == 0.0
    restated = evaluate_plans(PolicySpec(PLAN_IS_QUESTION, None), config)
    assert restated.metrics["plan/restated_frac"] == 1.0
    assert restated.metrics["reward/mean"] < 0 < alone.metrics["reward/mean"]
    write_evaluation(tmp_path / "evals", "gold", play(lambda problem, results: GOLD[problem], config), {})
    shuffled = evaluate_plans(PolicySpec(PLANS_SHUFFLED, None, "gold"), config)
    assert shuffled.metrics["answer/correct"] < 0.1
    assert shuffled.metrics["plan/leaked_frac"] > 0.5
    with pytest.raises(ConfigError, match="no baseline"):
        evaluate_plans(PolicySpec("random", None), config)
    with pytest.raises(EvaluationError):
        evaluate_plans(PolicySpec(PLANS_SHUFFLED, None, "missing"), config)


def test_a_planners_evaluation_survives_the_disk(config, tmp_path):
    found = play(lambda problem, results: f"Well: {GOLD[problem]}", config)
    write_evaluation(tmp_path, "key", found, eval_sources(QUESTIONS, "", PolicySpec(WORKER_ALONE, None), config, "digest"))
    stored = load_evaluation(tmp_path, "key")
    assert stored.rows == found.rows
    assert stored.metrics == found.metrics
    assert stored.metrics["faults/prose"] == 1.0
    assert [turn.call.name for turn in stored.episodes[3].turns if turn.call] == ["solve_subproblem"] * PROBLEMS[3].operations


def test_a_broken_worker_fails_episodes_and_grades_none(config):
    def solve(task):
        broken = task.kind == "solve_subproblem" and "plus" in task.question
        return Solution(None, failure="worker: gone") if broken else Solution("1", 1)

    made = PlannerEnvironment(config).open(ExactJudge())
    environment = PlannerEnvironment(config).with_worker(ConcurrentWorker("half", solve, 2), NumberJudge(), made.independence)
    with pytest.raises(EvaluationError, match="worker: gone"):
        play(lambda problem, results: GOLD[problem], config, environment)
    off = ConcurrentWorker("down", lambda task: Solution(None, failure="worker: off"), 2)
    down = PlannerEnvironment(config).with_worker(off, NumberJudge(), made.independence)
    with pytest.raises(EvaluationError, match="worker alone could not be asked"):
        play(lambda problem, results: "no plan", config, down)


def test_an_unanswered_request_to_the_worker_alone_fails_the_episodes_of_its_problem_and_is_sent_again(config):
    sent = []

    def solve(task):
        broken = task.kind == "solve_directly" and task.question == QUESTIONS[7].question and not sent
        sent.extend([task.question] if broken else [])
        return Solution(None, failure="worker: timeout") if broken else ArithmeticWorker(2).solve([task])[0]

    environment = PlannerEnvironment(config).with_worker(ConcurrentWorker("late", solve, 1), NumberJudge(), None)
    found = play(lambda problem, results: GOLD[problem], config, environment)
    assert [row.question_id for row in found.rows if row.failed] == ["p7"] and "timeout" in found.rows[7].failure
    assert found.metrics["answer/correct"] == 1.0
    assert not any(row.failed for row in play(lambda problem, results: GOLD[problem], config, environment).rows)


def test_a_missing_verdict_on_the_worker_alone_is_no_wrong_answer(config):
    class Down:
        def judge(self, items):
            return [Verdict(None, failure="judge: off") for _ in items]

    environment = PlannerEnvironment(config).with_worker(ArithmeticWorker(2), Down(), None)
    for _ in range(2):
        assert environment.solve_alone(QUESTIONS[:1]) == {"p0": Verdict(None, failure="judge: off")}


def test_without_a_weight_independence_is_not_measured(config, monkeypatch):
    monkeypatch.setattr(planning, "make_independence", lambda _: pytest.fail("an embedder is opened"))
    metrics = play(lambda problem, results: GOLD[problem], config.changed({"planner.reward.independence": 0.0})).metrics
    assert metrics["answer/correct"] == 1.0 and metrics["reward/independence"] == 0.0
    assert "plan/independence" not in metrics


def test_keys_follow_what_decides_a_plans_worth(config, monkeypatch):
    spec = PolicySpec(WORKER_ALONE, None)

    def key(**planner):
        changed = config.model_copy(update={"planner": config.planner.model_copy(update=planner)})
        return eval_key(QUESTIONS, "", spec, changed, "digest")

    same = {key(), key(sft=config.planner.sft.model_copy(update={"epochs": 2}))}
    assert len(same) == 1
    worker, reward = config.planner.worker, config.planner.reward
    others = {
        key(worker=worker.model_copy(update={"kind": "base"})),
        key(reward=reward.model_copy(update={"tokens": 0.1})),
        key(max_plan_tokens=99),
        key(system_prompt="Plan."),
        eval_key(QUESTIONS[1:], "", spec, config, "digest"),
        eval_key(QUESTIONS, "", PolicySpec(PLANS_SHUFFLED, None, "a"), config, "digest"),
        eval_key(QUESTIONS, "", PolicySpec(PLANS_SHUFFLED, None, "b"), config, "digest"),
    }
    assert len(others) == 7 and not others & same
    assert key(worker=worker.model_copy(update={"model": "never asked"})) in same
    monkeypatch.setattr(planning, "PLAN_RULES_VERSION", 0)
    assert key() not in same


def test_a_worker_of_the_policys_model_is_part_of_the_keys_of_policies_without_one(config, tmp_path):
    models = [tmp_path / "first", tmp_path / "second"]
    for model in models:
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"name": model.name}))

    def keys(spec, kind):
        changed = [config.changed({"policy.model": str(model), "planner.worker.kind": kind}) for model in models]
        return {eval_key(QUESTIONS, "", spec, one, "digest") for one in changed}

    assert len(keys(PolicySpec(WORKER_ALONE, None), "base")) == 2
    assert len(keys(PolicySpec(WORKER_ALONE, None), "arithmetic")) == 1
    assert len(keys(PolicySpec("model", config.policy.model_copy(update={"model": str(models[0])})), "base")) == 1


def test_numbers_are_compared_as_numbers():
    question = Question("q", "?", "1,200")
    verdicts = NumberJudge().judge([(question, text) for text in ("1200", "1200.0", "120", "about 1200", None, "")])
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False, False, False]
