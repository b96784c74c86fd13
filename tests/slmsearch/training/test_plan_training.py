"""The one trainer trains a planner, too: a toy that mostly leaves to the worker what it cannot do learns to split it."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from slmsearch.artifacts.files import file_hash
from slmsearch.config import PlannerConfig, PlanRewardConfig, WorkerConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.planner import planner_environment as planning
from slmsearch.environments.planner.plan import DIRECT, Plan, Subproblem, parse_plan, render_plan
from slmsearch.environments.planner.plan_demonstrations import TINY_PLANNER, demonstrate_plan
from slmsearch.environments.planner.plan_prompt import DIRECT_SOLUTION, Task, make_plan_prompt
from slmsearch.environments.planner.planner_environment import PlannerEnvironment
from slmsearch.environments.planner.problems import generate_problems, gold_plan
from slmsearch.environments.planner.worker import ModelWorker
from slmsearch.environments.registry import environment_of
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.sampler import Sampling
from slmsearch.judge import ExactJudge
from slmsearch.sampling.load_sampler import load_with_base
from slmsearch.training.bootstrap import bootstrap_settings, build_tokenizer
from slmsearch.training.encoding import IGNORED, encode_demonstration, encode_turns
from slmsearch.training.export import lay_out
from slmsearch.training.files import ADAPTER, CHECKPOINTS, PREFLIGHT, STEPS, latest_complete_checkpoint
from slmsearch.training.job import start_key
from slmsearch.training.own_episodes import sample_own
from slmsearch.training.reports import read_reports, truncate_reports
from slmsearch.training.teach import FACTS, train_start
from slmsearch.training.training_run import train_environment
from tests.slmsearch.environments.planner.words import WordIndependence
from tests.slmsearch.evaluate.builders import is_documented

QUESTIONS = [Question(f"q{i}", f"What is {i} plus 3 plus 4?", str(i + 7)) for i in range(2, 9)]


def split(i):
    parts = (
        Subproblem(id="1", question=f"{i} plus 3?", depends_on=()),
        Subproblem(id="2", question="#1 plus 4?", depends_on=("1",)),
    )
    return Plan(should_decompose=True, subproblems=parts, combine="#2")


@pytest.fixture(scope="session")
def planner_dir(one_thread, tmp_path_factory):
    """A Qwen3 model of some 90,000 weights that splits one problem of three."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    plans = [render_plan(split(i)) for i in range(2, 9)]
    tokenizer = build_tokenizer([question.question for question in QUESTIONS] + plans, TINY_PLANNER.pieces, 400)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=128,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    direct = render_plan(DIRECT)
    pairs = zip(QUESTIONS, plans, strict=True)
    seen = [Demonstration(question.question, ((plan, ""),)) for question, gold in pairs for plan in (gold, direct, direct)]
    encoded = [
        encode_turns(
            make_plan_prompt(demonstration.question, PlannerConfig()),
            [({"role": "assistant", "content": text}, result) for text, result in demonstration.turns],
            ChatRenderer(tokenizer),
        )
        for demonstration in seen
    ]
    width = max(len(episode.ids) for episode in encoded)
    ids = torch.tensor([episode.ids + [0] * (width - len(episode.ids)) for episode in encoded])
    labels = torch.tensor([episode.labels + [IGNORED] * (width - len(episode.ids)) for episode in encoded])
    optimiser = torch.optim.Adam(model.parameters(), 0.005)
    for _ in range(250):
        optimiser.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimiser.step()
    path = tmp_path_factory.mktemp("planner")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


class OneOperation(WorkerConfig):
    max_operations: ClassVar[int] = 1


@pytest.fixture
def make_plan_job(make_job, planner_dir, monkeypatch):
    """Make a planner's job; keywords are settings of `TrainConfig`, `worker` of the worker."""

    monkeypatch.setattr(planning, "make_independence", lambda _: WordIndependence())

    def make(name="run", worker=None, **train):
        job = make_job(name, **train)
        planner = job.config.planner
        settings = OneOperation(**{"max_new_tokens": 8, **(worker or {})})
        reward = PlanRewardConfig(max_tokens=200)
        planner = planner.model_copy(update={"worker": settings, "max_plan_tokens": 60, "reward": reward})
        policy = job.config.policy.model_copy(update={"model": str(planner_dir)})
        return replace(job, config=job.config.model_copy(update={"environment": "planner", "planner": planner, "policy": policy}))

    return make


@pytest.fixture
def model_path():
    return "unused"


def train(job, checkpoint=None):
    train_environment(PlannerEnvironment(job.config).open(ExactJudge()), QUESTIONS, job, checkpoint, QUESTIONS[:3])


def curve(job):
    reports = read_reports(job.directory / STEPS)
    return [{name: value for name, value in report.metrics.items() if not name.startswith("time/")} for report in reports]


def test_a_planner_learns_to_split_and_leaves_what_a_run_leaves(make_plan_job):
    job = make_plan_job(steps=12, group_size=8, questions_per_step=4, learning_rate=2e-3)
    train(job)
    measured = curve(job)
    assert measured[0]["plan/decomposed_frac"] < 0.5
    assert sum(step["answer/correct"] for step in measured[-4:]) / 4 > 0.65
    assert {"plan/gain", "plan/tokens", "plan/independence", "reward/independence", "policy/kl_sampler"} <= set(measured[-1])
    assert "episode/searches" not in measured[-1]
    assert all(is_documented(name) for step in measured for name in step)
    assert max(abs(step["policy/kl_sampler"]) for step in measured) < 1e-5
    samples = [sample for report in read_reports(job.directory / STEPS) for sample in report.samples]
    assert {sample.kind.value for sample in samples} >= {"best", "worst"} and len(samples) <= 3 * 12
    assert any(turn.call and turn.result for sample in samples for turn in sample.episode.turns), "what the worker was asked"
    checks = {check["name"]: check["passed"] for check in json.loads((job.directory / PREFLIGHT).read_text())}
    assert all(checks.values()) and {"plan", "worker", "planning", "mask", "judge"} <= set(checks)

    out = lay_out(job, job.directory.parent / "out")
    names = {path.name for path in out.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json", "training_config.json"} <= names
    assert any(name.startswith("checkpoint-") for name in names)
    assert json.loads((out / "training_config.json").read_text())["config"]["environment"] == "planner"


def test_a_resumed_planner_ends_with_the_bytes_of_an_uninterrupted_one(make_plan_job):
    whole, broken = make_plan_job("whole", steps=5), make_plan_job("broken", steps=5)
    train(whole)

    class Killed(BaseException):
        pass

    environment = PlannerEnvironment(broken.config).open(ExactJudge())
    solve = environment.worker.solve

    def dying(tasks):
        if len(read_reports(broken.directory / STEPS)) == 3:
            raise Killed
        return solve(tasks)

    environment.worker.solve = dying
    with pytest.raises(Killed):
        train_environment(environment, QUESTIONS, broken, None, QUESTIONS[:3])
    checkpoint = latest_complete_checkpoint(broken.directory / CHECKPOINTS)
    truncate_reports(broken.directory / STEPS, 2)
    train(broken, checkpoint)
    assert curve(broken) == curve(whole)
    hashes = [file_hash(job.directory / ADAPTER / "adapter_model.safetensors") for job in (whole, broken)]
    assert hashes[0] == hashes[1]


def test_the_base_is_the_worker_and_learns_nothing(make_plan_job):
    job = make_plan_job(worker={"kind": "base"}, steps=3, learning_rate=0.02, preflight="record", monitor={"held_out": 0})
    chance = job.config.planner.model_copy(update={"reward": PlanRewardConfig(kind="random")})  # so that the adapter moves
    job = replace(job, config=job.config.model_copy(update={"planner": chance}))
    asked = []

    class Listening(ModelWorker):
        def solve(self, tasks):
            solved = super().solve(tasks)
            asked.extend(zip([task.question for task in tasks], [(s.answer, s.tokens) for s in solved], strict=True))
            return solved

    environment = PlannerEnvironment(job.config).open(ExactJudge())
    environment.base_user = environment.worker = Listening("base", None, 8)
    train_environment(environment, QUESTIONS, job, None, QUESTIONS[:3])
    answers = {}
    for question, solution in asked:
        assert answers.setdefault(question, solution) == solution, "the worker's answers moved with training"
    assert len(answers) > 3

    policy = job.config.policy.model_copy(update={"adapter": str(job.directory / ADAPTER)})
    sampler, open_base = load_with_base(policy)
    frozen = ModelWorker("base", open_base, 8)
    problem = QUESTIONS[0]
    assert frozen.solve([Task(DIRECT_SOLUTION, problem.question)])[0].tokens == answers[problem.question][1]
    plain, _ = load_with_base(job.config.policy)
    prompt, sampling = [[{"role": "user", "content": problem.question}]], Sampling(0.0, 0, 60)
    lines = []
    for shared in (sampler, plain):
        shared.open(prompt, sampling)
        lines.append(shared.sample([0], [None], [60])[0].sampled_logprobs)
        shared.close()
    assert lines[0] != lines[1], "the adapter is on where the policy writes"


def test_own_right_plans_and_a_set_of_plans_teach(make_plan_job, planner_dir, tmp_path):
    job = make_plan_job()
    config = job.config.model_copy(update={"sft": job.config.sft.model_copy(update={"steps": 2, "tokens_per_batch": 256})})
    sampler, _ = load_with_base(config.policy)
    own, _ = sample_own(QUESTIONS, PlannerEnvironment(config).open(ExactJudge()), sampler)
    assert own and all(parse_plan(episode.turns[0].text).plan.should_decompose for episode in own)

    rows = [{"SystemPrompt": "Plan.", "UserPrompt": q.question, "ExpectedOutput": render_plan(split(2))} for q in QUESTIONS]
    (tmp_path / "plans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plans = config.planner.sft.model_copy(update={"source": str(tmp_path / "plans.jsonl"), "epochs": 1.0})
    four = config.sft.model_copy(update={"batch_size": 4})
    config = config.model_copy(update={"sft": four, "planner": config.planner.model_copy(update={"sft": plans})})
    shown, _ = PlannerEnvironment.teaching(config).examples(plans.source)
    encoded = [encode_demonstration(demonstration, sampler.renderer, environment_of(config)) for demonstration in shown]
    assert shown[0].prompt[0] == {"role": "system", "content": "Plan."}
    written = [label for label in encoded[0].labels if label != IGNORED]
    assert written == [*sampler.renderer.content_ids(render_plan(split(2))), sampler.renderer.end_id]
    facts = train_start(config, [plans.source], tmp_path / "start", once=True)
    assert facts["episodes"] == 7 and facts["steps"] == 2  # 7 examples by 4
    assert (tmp_path / "start" / FACTS).is_file()
    assert train_start(config, [plans.source], tmp_path / "start", once=True)["seconds"] == facts["seconds"], "looked up"
    assert start_key(config, "a") is None
    wanted = config.planner.model_copy(update={"sft": plans.model_copy(update={"enabled": True})})
    config = config.model_copy(update={"planner": wanted})
    assert start_key(config, "a") == start_key(config, "b") is not None


def test_demonstrations_say_what_the_recipes_promise():
    from random import Random

    problems = list(generate_problems(4, 300))
    for recipe in ("expert", "noisy"):
        chance = Random(0)
        plans = [(problem, parse_plan(demonstrate_plan(problem, recipe, chance)).plan) for problem in problems]
        assert all(plan is not None for _, plan in plans)
        assert all(plan == DIRECT for problem, plan in plans if problem.operations <= 2)
        hard = [plan == gold_plan(problem) for problem, plan in plans if problem.operations > 3]
        assert sum(hard) / len(hard) == 1.0 if recipe == "expert" else 0.1 < sum(hard) / len(hard) < 0.3


def test_settings_of_the_start_are_its_own_unless_chosen(make_plan_job):
    config = make_plan_job().config
    assert bootstrap_settings(config.sft, TINY_PLANNER).steps == 4500 != config.sft.steps
    assert bootstrap_settings(config.sft.model_copy(update={"steps": 7}), TINY_PLANNER).steps == 7
