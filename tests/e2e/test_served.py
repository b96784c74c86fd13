"""The served policy for real: `transformers serve` with tiny-searcher, beside the same model in this process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.servers import free_port
from flows.settings import find_project_root
from slmsearch.bench.agreement import GenerateEngine, compare_episodes
from slmsearch.config import PolicyConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.world import generate_world
from slmsearch.generate.engine_writer import EngineWriter
from slmsearch.generate.load import load_model
from slmsearch.generate.openai_writer import OpenAIWriter
from slmsearch.generate.torch_writer import TorchWriter
from slmsearch.generate.writer import Sampling
from slmsearch.learn.demonstrations import TitleIndex
from slmsearch.searcher.episode import StopReason
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import Toolbox

MODEL = find_project_root() / "data" / "models" / "tiny-searcher"
START_SECONDS = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running server."""
    port, log = free_port(), tmp_path_factory.mktemp("serve") / "serve.log"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(MODEL), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--device", "cpu", "--dtype", "float32"], stdout=file, stderr=file, env={**os.environ})
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_greedy_episodes_are_the_same_cached_uncached_and_served(server: str) -> None:
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), list(world.questions)[:8]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500), SearcherConfig()
    model, tokenizer = load_model(PolicyConfig(model=str(MODEL), device="cpu"))
    writers = {
        "cached": TorchWriter(model.eval(), tokenizer),
        "uncached": EngineWriter(GenerateEngine(model), tokenizer),
        "served": OpenAIWriter(str(MODEL), server),
    }
    played = {name: play_episodes(questions, writer, toolbox, searcher, Sampling(max_new_tokens=48)) for name, writer in writers.items()}
    assert any(len(episode.turns) > 3 and episode.stop_reason is StopReason.ANSWERED for episode in played["served"])
    for name in ("uncached", "served"):
        found = compare_episodes(name, questions, played["cached"], played[name])
        assert found.partings == [], found
    assert compare_episodes("uncached", questions, played["cached"], played["uncached"]).logprob_gap < 1e-4


def test_a_difference_is_reported_with_its_place(server: str) -> None:
    """The careful reader's model plays other episodes than the hasty one's."""
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), [q for q in world.questions if q.hops == 2][:2]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500), SearcherConfig()
    other, tokenizer = load_model(PolicyConfig(model=f"{MODEL}-clean", device="cpu"))
    ours = play_episodes(questions, TorchWriter(other.eval(), tokenizer), toolbox, searcher, Sampling(max_new_tokens=48))
    theirs = play_episodes(questions, OpenAIWriter(str(MODEL), server), toolbox, searcher, Sampling(max_new_tokens=48))
    found = compare_episodes("served", questions, ours, theirs)
    assert found.same < 2
    assert found.partings[0].ours != found.partings[0].theirs
