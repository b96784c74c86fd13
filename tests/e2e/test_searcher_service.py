"""`slmsearch serve searcher` with tiny-searcher on a small world: OpenAI's own client, kills, another champion, and the end.

One service for the whole file, in the order of the tests.
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import psutil
import pytest
from safetensors.numpy import save_file

from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.models.hashes import model_hash
from slmsearch.processes.ports import free_port
from tasks.promotion import promote_by_hand
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, open_tracker
from tests.e2e.conftest import MODEL
from tests.e2e.small_world import PATIENCE_SECONDS, small_world
from tests.e2e.stand import wait_for
from tests.e2e.test_mcp import begin

TOKEN = "s3cret-of-the-service"
NAME = "slmsearch-searcher"
BACK_SECONDS = 10.0
"""Time until the question after a kill is answered. A machine so busy that the first start took longer may take as long again."""


@dataclass
class Started:
    process: "subprocess.Popen[str]"
    config: RunConfig
    base_url: str
    log: Path
    questions: list[Question]
    start_s: float
    start: Callable[..., "subprocess.Popen[str]"]

    @property
    def client(self) -> openai.OpenAI:
        http: Any = httpx.Client(trust_env=False)
        return openai.OpenAI(base_url=self.base_url, api_key=TOKEN, max_retries=0, timeout=PATIENCE_SECONDS, http_client=http)

    def ask(self, number: int = 0, **options: Any) -> Any:
        message: Any = [{"role": "user", "content": self.questions[number].question}]
        return self.client.chat.completions.create(model="searcher", messages=message, **options)

    def metric(self, beginning: str) -> float:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        text = httpx.get(f"{self.base_url[:-3]}/metrics", headers=headers, trust_env=False, timeout=PATIENCE_SECONDS).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(beginning))

    def traces(self) -> list[dict[str, str]]:
        """Return the tags of the episodes that are traced so far."""
        tracker = open_tracker(self.config.paths, self.config.tracking)
        return [info.tags for info in tracker.find_traces(tracker.experiment_id, "tags.source = 'service'")]

    def children(self) -> list[psutil.Process]:
        """Return the two model processes, the older one first; on one core the second is spare."""
        found = sorted(psutil.Process(self.process.pid).children(), key=lambda child: (child.create_time(), child.pid))
        assert len(found) == 2
        return found

    def hold_one(self, pool: ThreadPoolExecutor) -> tuple[list[psutil.Process], "Future[Any]"]:
        """Stop the model processes and ask them a question; return both once the question is in play."""
        children, before = self.children(), self.metric("slmsearch_batch_size_count")
        for child in children:
            child.suspend()
        flying = pool.submit(self.ask)
        wait_for(lambda: self.metric("slmsearch_batch_size_count") > before, PATIENCE_SECONDS, "the question is in play")
        return children, flying


def register(config: RunConfig, number: int, tags: dict[str, str], home: Path) -> None:
    """Register an adapter that changes nothing; each number has other weights."""
    home.mkdir()
    weights = {}
    for layer in range(4):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = np.full((2, 128), number, dtype=np.float32)
        weights[f"{name}.lora_B.weight"] = np.zeros((128, 2), dtype=np.float32)
    save_file(weights, home / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (home / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": str(MODEL)}))
    made = {ADAPTER_HASH: f"h{number}", BASE_MODEL: str(MODEL), "slmsearch.base_hash": model_hash(str(MODEL)), **tags}
    tracker = open_tracker(config.paths, config.tracking)
    with tracker.run("train", f"k{number}") as run_id:
        tracker.register_adapter(run_id, home, NAME, made)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    home, port = tmp_path_factory.mktemp("service"), free_port()
    with small_world(home, service__traced_frac=1) as world:
        tags = {"slmsearch.data_digest": world.indexed.corpus_digest, "slmsearch.index_key": world.indexed.index_key}
        for number in (1, 2):
            register(world.config, number, tags, home / f"adapter-{number}")
        promote_by_hand(world.config.paths, world.config.tracking, "1", "the first")
        log, begun = home / "log", time.monotonic()
        with log.open("w") as file:
            process = world.start("serve", "searcher", "--json", "--port", str(port), token=TOKEN, stdout=subprocess.PIPE, stderr=file)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline() or "{}")
        assert told == {"base_url": f"http://127.0.0.1:{port}/v1", "model": "searcher", "version": f"{NAME}/1"}, log.read_text()
        yield Started(process, world.config, told["base_url"], log, world.questions, time.monotonic() - begun, world.start)
        process.kill()
        process.communicate()


def test_openais_client_asks_both_ways(started: Started) -> None:
    assert [model.id for model in started.client.models.list()] == ["searcher"]
    right = 0
    for number, question in enumerate(started.questions[:8]):
        whole, chunks = started.ask(number), list(started.ask(number, stream=True, stream_options={"include_usage": True}))
        own, text = whole.model_extra["slmsearch"], whole.choices[0].message.content
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
        extended = [chunk.model_extra["slmsearch"] for chunk in chunks if "slmsearch" in chunk.model_extra]
        assert [extra["step"] for extra in extended[:-1]] == own["steps"] and own["steps"][0]["call"] == "search_pages"
        assert {name: value for name, value in extended[-1].items() if name != "seconds"} == {
            name: value for name, value in own.items() if name not in ("steps", "seconds")
        }, "greedy: the same again"
        assert chunks[-1].usage == whole.usage and whole.usage.completion_tokens > 0
        assert own["version"] == f"{NAME}/1"
        right += text == question.answer and any(question.answer in source["text"] for source in own["sources"])
    assert right >= 4
    with pytest.raises(openai.AuthenticationError):
        started.client.copy(api_key="wrong").models.list()


def test_llama_cpp_answers_as_torch_does(started: Started, tmp_path: Path) -> None:
    """Beside it, the same weights rounded to eight bits."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (extra `llamacpp`)")
    command = ("serve", "searcher", "--engine", "llamacpp", "--policy", MODEL, "--json", "--port", str(free_port()))
    with (tmp_path / "log").open("w") as log:
        process = started.start(*map(str, command), token=TOKEN, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline() or "{}")
        assert told, (tmp_path / "log").read_text()
        other = replace(started, process=process, base_url=told["base_url"])
        with ThreadPoolExecutor(8) as pool:
            pairs = list(zip(pool.map(other.ask, range(8)), map(started.ask, range(8)), strict=True))
        texts = [[reply.choices[0].message.content for reply in pair] for pair in pairs]
        assert sum(one == two for one, two in texts) >= 7, texts
        assert all(pair[0].model_extra["slmsearch"]["sources"] for pair in pairs)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert [tags["model_version"] for tags in started.traces()].count(MODEL.name) == 8


def test_questions_at_once_share_batches(started: Started) -> None:
    before = [started.metric(f"slmsearch_batch_size_{name}") for name in ("count", "sum")]
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(started.ask, range(48)))
    batches, played = (started.metric(f"slmsearch_batch_size_{name}") - was for name, was in zip(("count", "sum"), before, strict=True))
    assert all(reply.choices for reply in replies) and played == 48 and batches < 24


@pytest.mark.production
def test_under_load_nothing_fails_and_sharing_pays(started: Started) -> None:
    started.ask()

    def measure(clients: int, count: int) -> tuple[float, list[float]]:
        def timed(number: int) -> float:
            begun = time.monotonic()
            assert started.ask(number % len(started.questions)).choices
            return time.monotonic() - begun

        begun = time.monotonic()
        with ThreadPoolExecutor(clients) as pool:
            seconds = sorted(pool.map(timed, range(count)))
        return count / (time.monotonic() - begun), seconds

    alone, _ = measure(1, 40)
    process = psutil.Process(started.process.pid)
    together, seconds = measure(16, 200)
    before = [one.memory_info().rss for one in (process, *started.children())]
    measure(16, 400)
    grown = [one.memory_info().rss - was for one, was in zip((process, *started.children()), before, strict=True)]
    p50, p95, p99 = (seconds[int(len(seconds) * share)] for share in (0.5, 0.95, 0.99))
    speeds = f"{alone:.1f} questions/s one at a time, {together:.1f} from 16 clients"
    print(f"\n{speeds}; p50 {p50:.2f} p95 {p95:.2f} p99 {p99:.2f} s; grown {grown} bytes")
    assert together > 2 * alone and max(grown) < 64 << 20


def test_killed_model_processes_fail_what_was_in_play_and_come_back(started: Started) -> None:
    with ThreadPoolExecutor(1) as pool:
        children, flying = started.hold_one(pool)
        for child in children:
            child.kill()
        killed = time.monotonic()
        with pytest.raises(openai.InternalServerError) as failed:
            flying.result(PATIENCE_SECONDS)
        assert failed.value.status_code == 503 and failed.value.code == "service_unavailable"
        assert int(failed.value.response.headers["retry-after"]) > 0
        assert started.ask().choices[0].message.content
        assert time.monotonic() - killed < max(BACK_SECONDS, started.start_s)
    assert not {*started.children()} & {*children} and started.metric("slmsearch_model_restarts_total") >= 1


def test_another_champion_takes_over_and_no_question_fails(started: Started) -> None:
    promote_by_hand(started.config.paths, started.config.tracking, "2", "the second")
    versions: list[str] = []
    wait_for(
        lambda: versions.append(started.ask().model_extra["slmsearch"]["version"]) or versions[-1] == f"{NAME}/2",
        PATIENCE_SECONDS,
        "the second plays",
    )
    assert set(versions[:-1]) == {f"{NAME}/1"}
    wait_for(lambda: len(psutil.Process(started.process.pid).children()) == 2, PATIENCE_SECONDS, "the first has ended")
    assert started.metric(f'slmsearch_model_info{{index_key="{started.ask().model_extra["slmsearch"]["index_key"]}"') == 1
    wait_for(lambda: f"{NAME}/2" in {tags["model_version"] for tags in started.traces()}, PATIENCE_SECONDS, "its episodes are traced")


def test_sigterm_ends_it_when_everything_is_answered(started: Started) -> None:
    with ThreadPoolExecutor(1) as pool, begin(f"{started.base_url}/chat/completions", TOKEN):
        children, flying = started.hold_one(pool)
        started.process.send_signal(signal.SIGTERM)
        ready = f"{started.base_url[:-3]}/ready"
        wait_for(
            lambda: httpx.get(ready, trust_env=False, timeout=PATIENCE_SECONDS).json() == {"status": "stopping"},
            PATIENCE_SECONDS,
            "it stops",
        )
        with pytest.raises(openai.InternalServerError, match="takes no more questions"):
            started.ask()
        for child in children:
            child.resume()
        assert flying.result(PATIENCE_SECONDS).choices[0].message.content
    assert started.process.wait(PATIENCE_SECONDS) == 0
    assert not any(child.is_running() for child in children)
    log = started.log.read_text()
    assert TOKEN not in log and "Traceback" not in log and "Cancel" not in log, log


def test_the_episodes_are_traces_of_their_version(started: Started) -> None:
    found = [tags for tags in started.traces() if tags["model_version"] != MODEL.name]
    assert {tags["model_version"] for tags in found} == {f"{NAME}/1", f"{NAME}/2"}
    assert len(found) >= 60 and {tags["stop_reason"] for tags in found} >= {"answered"}
