"""Problems are generated, read and checked; on the real sample the gold answer is extracted from every worked solution."""

import json
import re
from pathlib import Path

import pytest

from slmsearch.config import PlannerConfig, RunConfig
from slmsearch.corpus.store import load_questions
from slmsearch.environments.planner.numbers import extract_answer, parse_number
from slmsearch.environments.planner.plan import Plan, Subproblem
from slmsearch.environments.planner.planner_environment import PlannerEnvironment
from slmsearch.environments.planner.play import execute_plans
from slmsearch.environments.planner.problem_sources import check_problems, load_problems, parse_problem, problems_parts
from slmsearch.environments.planner.problems import generate_problems
from slmsearch.environments.planner.worker import ArithmeticWorker
from slmsearch.errors import CorpusError
from slmsearch.keys import content_key

GSM8K = Path(__file__).parents[5] / "shared" / "data" / "gsm8k_train_500.jsonl"
real = pytest.mark.skipif(not GSM8K.is_file(), reason=f"the GSM8K sample is not at {GSM8K}")
CALCULATION = re.compile(r"<<([^=<>]+)=([^<>]+)>>")


def rows():
    return [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()]


def gold_style_plan(worked):
    """Write a plan from the calculator marks of a worked solution: one subproblem each, earlier results as references."""
    parts, known = [], {}
    for number, (expression, result) in enumerate(CALCULATION.findall(worked)[:12], start=1):
        used = []

        def refer(match, used=used):
            name = known.get(parse_number(match[0]))
            if name is not None and name not in used:
                used.append(name)
            return f"#{name}" if name is not None else match[0]

        question = re.sub(r"\d[\d,]*(?:\.\d+)?|\.\d+", refer, expression)
        parts.append(Subproblem(id=str(number), question=f"What is {question}?", depends_on=tuple(used)))
        value = parse_number(result)
        if value is not None:
            known[value] = str(number)
    return Plan(should_decompose=True, subproblems=tuple(parts), combine=f"#{len(parts)}")


@real
def test_the_answer_is_extracted_from_all_500_worked_solutions():
    extracted = [(extract_answer(row["answer"]), row["final_answer"]) for row in rows()]
    assert len(extracted) == 500
    # final_answer only checks: it is never read by the code.
    assert [answer for answer, _ in extracted] == [final.replace(",", "") for _, final in extracted]


def build(planner, corpora_dir):
    return PlannerEnvironment.data(RunConfig(planner=planner)).build(corpora_dir)


def key(planner):
    return content_key(**problems_parts(planner))


@real
def test_the_real_sample_loads_validates_and_is_split(tmp_path):
    config = PlannerConfig(problems=str(GSM8K))
    digest = build(config, tmp_path)
    problems = load_questions(tmp_path, digest)
    assert {split: len(found) for split, found in problems.items()} == {"train": 400, "validation": 50, "test": 50}
    report = check_problems("", problems)
    assert report.ok and report.counts == {"problems": 500}
    assert build(config, tmp_path) == digest


@real
def test_gold_style_plans_of_the_real_sample_play_through_the_executor():
    found = [(row["question"], gold_style_plan(row["answer"]), extract_answer(row["answer"])) for row in rows() if "<<" in row["answer"]]
    done = execute_plans([(problem, plan) for problem, plan, _ in found], ArithmeticWorker(20))
    assert not any(execution.failure for execution in done)
    right = sum(parse_number(e.answer) == parse_number(gold) for e, (_, _, gold) in zip(done, found, strict=True))
    assert len(found) >= 490
    # What is missing: rounded marks, answers that the last mark does not hold, several numbers in one mark.
    assert right / len(found) > 0.9


def test_generated_problems_are_the_same_for_a_seed_and_share_nothing_between_splits(tmp_path):
    config = PlannerConfig(limit=600)
    assert load_problems(config) == load_problems(config) != load_problems(config.model_copy(update={"seed": 5}))
    problems = load_questions(tmp_path, build(config, tmp_path))
    signatures = {split: {problem.entities for problem in found} for split, found in problems.items()}
    assert not signatures["train"] & signatures["test"] and not signatures["train"] & signatures["validation"]
    assert {problem.hops for problem in problems["test"]} == {1, 2, 3, 4, 5, 6}
    assert check_problems("", problems).ok


def test_more_problems_than_differ_are_refused_before_any_is_generated(monkeypatch):
    monkeypatch.setattr("slmsearch.environments.planner.problem_sources.generate_problems", lambda *_: pytest.fail("generated"))
    with pytest.raises(CorpusError, match=r"planner\.limit is 33601"):
        load_problems(PlannerConfig(limit=33_601))


def test_rows_that_name_their_split_keep_it(tmp_path):
    path = tmp_path / "problems.jsonl"
    rows = [{"question": f"{i} + 3?", "answer": f"#### {i + 3}", "split": "test" if i % 2 else "train"} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = load_questions(tmp_path, build(PlannerConfig(problems=str(path), limit=30), tmp_path))
    assert {split: len(found) for split, found in problems.items()} == {"train": 15, "validation": 0, "test": 15}
    assert all(int(problem.question.split()[0]) % 2 for problem in problems["test"])
    path.write_text(path.read_text().replace("test", "dev"))
    with pytest.raises(CorpusError, match="has split 'dev'"):
        build(PlannerConfig(problems=str(path)), tmp_path)


def test_a_missing_source_names_its_setting():
    with pytest.raises(CorpusError, match=r"gone\.jsonl does not exist; check planner\.problems$"):
        load_problems(PlannerConfig(problems="gone.jsonl"))
    with pytest.raises(CorpusError, match=r"gone\.jsonl does not exist; check planner\.sft\.source$"):
        PlannerEnvironment.teaching(RunConfig()).examples("gone.jsonl")


def test_a_plan_without_a_system_message_is_taught_with_the_prompt_it_is_played_with(tmp_path):
    rows = [{"UserPrompt": "2 + 2?", "ExpectedOutput": "{}"}, {"UserPrompt": "2 + 3?", "ExpectedOutput": "{}", "SystemPrompt": "Plan."}]
    (tmp_path / "plans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (own, given), _ = PlannerEnvironment.teaching(RunConfig()).examples(str(tmp_path / "plans.jsonl"))
    assert own.prompt == (), "empty: that of the environment"
    assert [message["content"] for message in given.prompt] == ["Plan.", "2 + 3?"]


def test_stories_name_only_numbers_that_a_small_model_can_copy():
    numbers = {int(n) for problem in generate_problems(2, 200) for n in re.findall(r"\d+", problem.text)}
    assert max(numbers) <= 60


def test_keys_follow_what_decides_the_problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text('{"question": "2 + 2?", "answer": "#### 4"}\n')
    config = PlannerConfig(problems=str(path))
    keys = {key(config), key(PlannerConfig()), key(PlannerConfig(seed=1)), key(PlannerConfig(limit=9))}
    path.write_text('{"question": "2 + 3?", "answer": "#### 5"}\n')
    keys.add(key(config))
    assert len(keys) == 5 and None not in keys


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"question": "Q?"}, "`question` and `answer`"),
        ({"question": "Q?", "answer": "4"}, "#### N"),
        ({"question": "Q?", "answer": "#### four"}, "#### N"),
        ({"question": "Q?", "answer": "#### 4", "final_answer": "5"}, "final_answer '5'"),
        ({"question": " ", "answer": "#### 4"}, "`question` and `answer`"),
        ({"question": "Q?", "answer": 7}, "answer (int)"),
        ({"question": "Q?", "answer": "#### 3,5"}, "#### N"),
    ],
)
def test_a_broken_row_is_named(row, says):
    with pytest.raises(CorpusError, match="file:3") as caught:
        parse_problem(row, "file:3")
    assert says in str(caught.value)


def test_checks_find_what_would_spoil_a_run():
    problem = parse_problem({"question": "How many is 2 plus 2?", "answer": "#### 4"}, "here")
    report = check_problems("", {"train": [problem], "test": [problem]})
    assert not report.ok
    assert {finding.expectation for finding in report.findings} == {"in_one_split", "enough"}
