# ruff: noqa: E402 - what is imported below needs the extra
"""The environment of `verifiers` in this process, with a scripted policy behind a small chat-completions server on loopback."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

vf = pytest.importorskip("verifiers.v1", reason="the extra `verifiers` is not installed (it needs a Python before 3.14)")

import slmsearch
from slmsearch.config import CorpusConfig, EvaluateConfig, JudgeConfig, PathsConfig, PolicyConfig, RewardConfig, RunConfig, SearcherConfig
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError
from slmsearch.evaluate.policies import parse_policy
from slmsearch.extensions.verifiers import taskset
from slmsearch.judge import Verdict
from tests.slmsearch.evaluate.corpus import PAGES, FlakyIndex, WordIndex, evaluate_searcher, make_toolbox
from tests.slmsearch.evaluate.corpus import QUESTIONS as ALL_QUESTIONS

# With one gold page each, so that none is left out because its pages lie in two splits.
QUESTIONS = [replace(question, page_ids=question.page_ids[:1], section_ids=question.section_ids[:1]) for question in ALL_QUESTIONS]

Reply = tuple[str, str]
"""Text and finish reason."""


def script(question: str, results: list[str]) -> Reply:
    """Play the five questions of the corpus: right, cut off, wrong after an unserved call, malformed, abstaining."""
    if "Talvoren" in question:
        steps = ['<tool>search_pages("Mira Talvoren")</tool>', '<tool>read_section("mira:life")</tool>', "<answer>1823</answer>"]
    elif "inhabitants" in question:
        return '<tool>search_pages("Norwi', "length"
    elif "Who was the mayor" in question:
        steps = ['<tool>view_sections("nowhere")</tool>', "<answer>Pell</answer>"]
    elif "mayor of Norwick born" in question:
        steps = ['<tool>search_pages("Norwick")</tool>', "I think it was 1799."]
    else:
        steps = ['<tool>search_pages("Stone Works")</tool>', "<answer>unknown</answer>"]
    return steps[min(len(results), len(steps) - 1)], "stop"


class Policy:
    """Answers chat completions with what a script says and keeps the requests; `refused` holds questions it answers with status 400."""

    def __init__(self) -> None:
        self.script: Callable[[str, list[str]], Reply] = script
        self.requests: list[dict[str, Any]] = []
        self.refused: set[str] = set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.requests.append(request)
                status, body = fake.answer(request)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        (question,) = [m["content"] for m in request["messages"] if m["role"] == "user"]
        if question in self.refused:
            return 400, {"error": {"message": "out of order"}}
        text, finish = self.script(question, [m["content"] for m in request["messages"] if m["role"] == "tool"])
        choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}]
        usage = {"prompt_tokens": 9, "completion_tokens": len(text.split()), "total_tokens": 9 + len(text.split())}
        return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def policy() -> Iterator[Policy]:
    made = Policy()
    yield made
    made.close()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[WordIndex]]:
    """The index in use, as the one element of a list; the corpus needs no embedder with it."""
    used = [WordIndex()]
    monkeypatch.setattr(
        taskset.indexed_corpus, "open_indexed_corpus", lambda run: IndexedCorpus("corpus", "index", make_toolbox(used[0]), {})
    )
    monkeypatch.setattr("verifiers.v1.runtimes.subprocess.CACHE_DIR", tmp_path / "cache")
    taskset._open_indexed_corpus.cache_clear()
    taskset._open_judge.cache_clear()
    yield used
    taskset._open_indexed_corpus.cache_clear()
    taskset._open_judge.cache_clear()


@pytest.fixture
def run(tmp_path: Path, index: list[WordIndex]) -> RunConfig:
    """Settings for the five questions."""
    pages, questions = tmp_path / "pages.jsonl", tmp_path / "questions.jsonl"
    pages.write_text("".join(json.dumps(asdict(page)) + "\n" for page in PAGES))
    questions.write_text("".join(json.dumps(asdict(question)) + "\n" for question in QUESTIONS))
    corpus = CorpusConfig(pages=str(pages), questions=str(questions))
    return RunConfig(paths=PathsConfig(data_dir=str(tmp_path / "data")), corpus=corpus, evaluate=EvaluateConfig(split="all"))


def make_env(run: RunConfig, **rest: Any) -> Any:
    """Load the environment as the command line does."""
    settings = {"taskset": {"id": "slmsearch", "task": {"run": run.model_dump(mode="json")}}, **rest}
    return vf.load_environment(vf.resolve_env_config(settings))


def play(env: Any, policy: Policy, rollouts: int = 1, **sampling: Any) -> dict[str, Any]:
    """Play all tasks; returns the last trace of each by question."""
    client = vf.EvalClientConfig(base_url=policy.url, api_key_var="NO_SUCH_KEY")
    ctx = vf.ModelContext(model="m", client=client, sampling=vf.SamplingConfig(**sampling))

    async def everything() -> list[Any]:
        async with env.serving():
            return await asyncio.gather(*(env.run_slot(slot, ctx) for task in env.taskset for slot in env.slots(task, rollouts)))

    episodes = asyncio.run(everything())
    return {trace.task.data.question_id: trace for episode in episodes for trace in episode.traces}


def test_the_package_is_found_by_its_name() -> None:
    assert vf.environment_class("slmsearch") is slmsearch.SearcherEnv
    assert vf.task_type("slmsearch") is taskset.SearcherTask
    assert vf.default_harness_id("slmsearch") == "slmsearch"
    assert vf.env_config_type("slmsearch")().agent.runtime.type == "subprocess"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = slmsearch.Nonsense  # type: ignore[attr-defined]


def test_importing_the_library_does_not_import_verifiers() -> None:
    code = "import slmsearch, slmsearch.evaluate.run, sys; sys.exit('verifiers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_question_has_the_scores_of_our_own_evaluation(run: RunConfig, policy: Policy, index: list[WordIndex]) -> None:
    traces = play(make_env(run), policy)
    theirs = policy.requests
    policy.requests = []
    ours = evaluate_searcher(
        QUESTIONS,
        make_toolbox(),
        parse_policy(f"openai:m@{policy.url}", PolicyConfig(), SearcherEnvironment.controls.baselines, "data"),
        run,
    )
    assert {row.stop_reason for row in ours.rows} == {"answered", "max_tokens", "malformed"}
    for row, question in zip(ours.rows, QUESTIONS, strict=True):
        trace = traces[question.id]
        assert (trace.ok, trace.errors, trace.reward) == (True, [], row.reward)
        assert {name: reward.value for name, reward in trace.rewards.items()} == row.reward_parts
        assert {**asdict(trace.state.row), "seconds": 0} == {**asdict(row), "seconds": 0}
        for name in ("typed_match", "exact_match", "f1", "correct"):
            assert trace.metrics[f"answer/{name}"] == getattr(row, name)
        assert trace.metrics[f"stop/{row.stop_reason}"] == 1.0
    assert traces["q2"].is_truncated
    assert [traces[f"q{n}"].stop_condition for n in range(1, 6)] == ["answered", "max_output_tokens", "answered", "malformed", "answered"]
    key = lambda request: json.dumps(request, sort_keys=True)  # noqa: E731
    assert sorted(map(key, theirs)) == sorted(map(key, policy.requests))


def test_a_broken_service_is_an_error_and_no_reward(run: RunConfig, policy: Policy, index: list[WordIndex]) -> None:
    policy.refused = {QUESTIONS[0].question}
    index[0] = FlakyIndex("Stone")
    traces = play(make_env(run), policy)
    assert [trace.ok for trace in map(traces.get, ("q1", "q2", "q3", "q4", "q5"))] == [False, True, True, True, False]
    assert (traces["q1"].last_error.type, traces["q5"].last_error.type) == ("ProviderError", "HarnessError")
    assert "out of order" in traces["q1"].last_error.message
    assert "index: the index is gone" in traces["q5"].last_error.message
    assert traces["q1"].rewards == traces["q5"].rewards == {}
    assert traces["q5"].stop_condition == "harness_error"


def test_an_unreachable_judge_is_an_error_and_no_reward(run: RunConfig, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def judge(self, items: Any) -> list[Verdict]:
            return [Verdict(None, "judge", "judge: nobody there") for _ in items]

    monkeypatch.setattr(taskset, "make_judge", lambda config, data_dir: Silent())
    trace = play(make_env(run), policy)["q1"]
    assert not trace.ok
    assert trace.last_error.type == "TaskError"
    assert "judge: nobody there" in trace.last_error.message
    assert set(trace.rewards.values()) <= {None}
    assert trace.reward == 0.0  # what verifiers makes of no reward; `ok` says that it is none


def test_limits_of_verifiers_end_an_episode_that_is_graded(run: RunConfig, policy: Policy) -> None:
    traces = play(make_env(run, agent={"max_turns": 1}), policy)
    assert (traces["q1"].stop_condition, traces["q1"].ok) == ("max_turns", True)
    assert (traces["q1"].metrics["stop/max_turns"], traces["q1"].metrics["episode/turns"]) == (1.0, 1.0)
    assert (traces["q1"].reward, traces["q1"].metrics["search/first_hit_frac"]) == (0.0, 1.0)
    assert traces["q2"].stop_condition == "max_turns"  # cut off, of which it would have been told in the next


def test_our_limits_and_prompt_reach_the_policy(run: RunConfig, policy: Policy) -> None:
    searcher = SearcherConfig(max_turns=2, max_turn_tokens=31, system_prompt="Be brief.")
    traces = play(make_env(run.model_copy(update={"searcher": searcher})), policy)
    first = policy.requests[0]
    assert (first["max_tokens"], first["temperature"], first["seed"], first["model"]) == (31, 0.0, 0, "m")
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert first["messages"][0]["content"] == "Be brief."
    assert (traces["q1"].stop_condition, traces["q1"].num_turns) == ("max_turns", 2)
    policy.requests.clear()
    play(make_env(run.model_copy(update={"searcher": SearcherConfig(system_prompt="")})), policy)
    assert all(m["role"] != "system" for request in policy.requests for m in request["messages"])


def test_a_prompt_given_to_verifiers_wins(run: RunConfig, policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Another prompt.")
    settings = {"id": "slmsearch", "task": {"run": run.model_dump(mode="json")}, "system_prompt": tmp_path / "prompt.txt"}
    play(make_env(run, taskset=settings), policy)
    assert {request["messages"][0]["content"] for request in policy.requests} == {"Another prompt."}


def test_sampled_episodes_of_a_group_have_different_seeds(run: RunConfig, policy: Policy) -> None:
    play(make_env(run), policy, rollouts=3, temperature=0.7)
    seeds = [request["seed"] for request in policy.requests if request["messages"][-1]["content"] == QUESTIONS[0].question]
    assert len(set(seeds)) == 3
    assert {request["temperature"] for request in policy.requests} == {0.7}


def test_the_split_and_the_sample_are_ours(run: RunConfig) -> None:
    every = {task.key: task for task in make_env(run).taskset}
    assert set(every) == {question.id for question in QUESTIONS}
    assert [every[question.id].data.to_question() for question in QUESTIONS] == QUESTIONS
    limited = run.model_copy(update={"evaluate": EvaluateConfig(split="all", limit=2)})
    assert len(list(make_env(limited).taskset)) == 2
    settings = {"id": "slmsearch", "split": "train", "task": {"run": run.model_dump(mode="json")}}
    assert {task.key for task in make_env(run, taskset=settings).taskset} < set(every)


def test_a_saved_trace_is_graded_again(run: RunConfig, policy: Policy) -> None:
    """What `vf-replay` does: the task from its wire data, the trace from its record, nothing else."""
    env = make_env(run)
    for trace in play(env, policy).values():
        saved = json.loads(json.dumps(trace.to_record()))
        again = vf.Trace[vf.WireTaskData, taskset.SearcherState, vf.AgentConfig].model_validate(saved)
        again.rewards, again.metrics = {}, {}
        task = taskset.SearcherTask(taskset.SearcherTaskData.model_validate(again.task.data.model_dump()), env.config.taskset.task)
        asyncio.run(task.score(again))
        assert (again.rewards, again.metrics) == (trace.rewards, trace.metrics)


def test_what_another_harness_played_is_not_graded(run: RunConfig, policy: Policy) -> None:
    env = make_env(run)
    trace = play(env, policy)["q1"]
    del trace.info[taskset.EPISODE]
    trace.state.row = None
    with pytest.raises(vf.TaskError, match="not played by the harness"):
        asyncio.run(next(iter(env.taskset)).score(trace))


def test_the_harness_refuses_tasks_that_are_not_ours(run: RunConfig, policy: Policy) -> None:
    config = vf.AgentConfig(
        harness={"id": "slmsearch"}, runtime=vf.SubprocessConfig(), model="m", client=vf.EvalClientConfig(base_url=policy.url)
    )
    trace = asyncio.run(vf.Agent(config).run(vf.Task(vf.TaskData(prompt="2 + 2?"))))
    assert "plays only tasks of the taskset" in trace.last_error.message
    assert policy.requests == []


def test_the_random_control_is_drawn_for_each_trace(run: RunConfig, policy: Policy) -> None:
    traces = play(make_env(run.model_copy(update={"reward": RewardConfig(kind="random")})), policy)
    rewards = {trace.reward for trace in traces.values()}
    assert len(rewards) == 5
    assert all(0 <= reward < 1 for reward in rewards)


def test_a_key_that_verifiers_masks_for_its_servers_is_refused(run: RunConfig) -> None:
    keyed = run.model_copy(update={"judge": JudgeConfig(kind="openai", api_key=SecretStr("secret"))})
    taskset.check_secrets(keyed.judge, keyed.retrieval.embedder)
    with pytest.raises(ConfigError, match=r"judge\.api_key arrived masked.*vf-eval"):
        list(make_env(keyed).taskset)  # its settings went through JSON, as they do on their way to a server
