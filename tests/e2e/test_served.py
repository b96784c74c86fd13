"""The served policy for real: tiny-searcher by `transformers serve` and by llama.cpp, beside the same model in this process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from slmsearch.bench.agreement import GenerateEngine, compare_episodes
from slmsearch.config import PolicyConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.world import generate_world
from slmsearch.environments.demonstrations import TitleIndex
from slmsearch.generate.engine_sampler import EngineSampler
from slmsearch.generate.load import load_model
from slmsearch.generate.openai_sampler import OpenAISampler
from slmsearch.generate.sampler import Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.searcher.episode import StopReason
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import Toolbox
from slmsearch.serve.ports import free_port
from tests.e2e.conftest import MODEL


@pytest.fixture(scope="module", params=["transformers", "llamacpp"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that `slmsearch serve` has started in the background."""
    if request.param == "llamacpp":
        for name in ("gguf", "llama_cpp", "starlette_context"):
            pytest.importorskip(name, reason=f"{name} is not installed (extra `llamacpp`)")
    options = ["--paths.data_dir", str(tmp_path_factory.mktemp("data")), "--json"]
    started = serve("policy", "--engine", request.param, "--policy.device", "cpu", "--port", str(free_port()), "--detach", *options)
    yield started["base_url"]
    assert serve("policy", "--stop", *options)["stopped"]
    assert not psutil.pid_exists(started["pid"])


def serve(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "flows", "serve", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_greedy_episodes_are_the_same_cached_uncached_and_served(server: str) -> None:
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), list(world.questions)[:8]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500), SearcherConfig()
    model, tokenizer = load_model(PolicyConfig(model=str(MODEL), device="cpu"))
    samplers = {
        "cached": TorchSampler(model.eval(), tokenizer),
        "uncached": EngineSampler(GenerateEngine(model), tokenizer),
        "served": OpenAISampler(str(MODEL), server),
    }
    played = {name: play_episodes(questions, sampler, toolbox, searcher, Sampling(max_new_tokens=48)) for name, sampler in samplers.items()}
    assert any(len(episode.turns) > 3 and episode.stop_reason is StopReason.ANSWERED for episode in played["served"])
    for name in ("uncached", "served"):
        found = compare_episodes(name, questions, played["cached"], played[name])
        assert found.partings == [], found
    assert compare_episodes("uncached", questions, played["cached"], played["uncached"]).logprob_gap < 1e-4


def test_a_difference_is_reported_with_its_place(server: str) -> None:
    """The expert reader's model plays other episodes than the hasty one's."""
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), [q for q in world.questions if q.hops == 2][:2]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500), SearcherConfig()
    other, tokenizer = load_model(PolicyConfig(model=f"{MODEL}-clean", device="cpu"))
    ours = play_episodes(questions, TorchSampler(other.eval(), tokenizer), toolbox, searcher, Sampling(max_new_tokens=48))
    theirs = play_episodes(questions, OpenAISampler(str(MODEL), server), toolbox, searcher, Sampling(max_new_tokens=48))
    found = compare_episodes("served", questions, ours, theirs)
    assert found.same < 2
    assert found.partings[0].ours != found.partings[0].theirs
