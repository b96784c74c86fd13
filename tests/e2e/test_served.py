"""The served policy for real: tiny-searcher by `transformers serve`, beside the same model in this process."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest
import torch

from slmsearch.config import PolicyConfig, SearcherConfig, WorldConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.world import generate_world
from slmsearch.environments.searcher.demonstrations import TitleIndex
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.episode import Episode, StopReason, Turn
from slmsearch.episodes.sampler import Sampling
from slmsearch.models.load import load_model
from slmsearch.processes.ports import free_port
from slmsearch.sampling.engine_sampler import Completion, CompletionRequest, EngineSampler
from slmsearch.sampling.openai_sampler import OpenAISampler
from slmsearch.sampling.torch_sampler import TorchSampler
from tests.e2e.conftest import MODEL


class GenerateEngine:
    """transformers' own `generate`, one request at a time and every turn from nothing, as an engine."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @torch.no_grad()
    def complete(self, requests: Sequence[CompletionRequest], temperature: float, end_id: int) -> list[Completion]:
        assert not temperature
        return [self._complete(request, end_id) for request in requests]

    def _complete(self, request: CompletionRequest, end_id: int) -> Completion:
        ids = torch.tensor([request.history])
        output = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=request.max_tokens,
            eos_token_id=end_id,
            pad_token_id=end_id,
            return_dict_in_generate=True,
            output_logits=True,
        )
        sampled = output.sequences[0, ids.shape[1] :].tolist()
        logprobs = [float(scores[0].float().log_softmax(-1)[i]) for scores, i in zip(output.logits, sampled, strict=True)]
        return Completion(tuple(sampled), tuple(logprobs))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that `slmsearch serve` has started in the background."""
    options = ["--paths.data_dir", str(tmp_path_factory.mktemp("data")), "--json"]
    started = serve("policy", "--engine", "transformers", "--policy.device", "cpu", "--port", str(free_port()), "--detach", *options)
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
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500, missing_names=True), SearcherConfig()
    model, tokenizer = load_model(PolicyConfig(model=str(MODEL), device="cpu"))
    samplers = {
        "cached": TorchSampler(model.eval(), tokenizer),
        "uncached": EngineSampler(GenerateEngine(model), tokenizer),
        "served": OpenAISampler(str(MODEL), server),
    }
    played = {name: play_episodes(questions, sampler, toolbox, searcher, Sampling(max_new_tokens=48)) for name, sampler in samplers.items()}
    assert any(len(episode.turns) > 3 and episode.stop_reason is StopReason.ANSWERED for episode in played["served"])
    cached, uncached = turns(played["cached"]), turns(played["uncached"])
    assert [turn.text for turn in uncached] == [turn.text for turn in turns(played["served"])] == [turn.text for turn in cached]
    assert [turn.sampled_ids for turn in uncached] == [turn.sampled_ids for turn in cached]
    assert all(
        not turn.sampled_ids or turn.sampled_ids == own.sampled_ids for turn, own in zip(turns(played["served"]), cached, strict=True)
    )
    logprobs = ([value for turn in found for value in turn.sampled_logprobs] for found in (cached, uncached))
    assert max(abs(a - b) for a, b in zip(*logprobs, strict=True)) < 1e-4


def turns(episodes: Sequence[Episode]) -> list[Turn]:
    return [turn for episode in episodes for turn in episode.turns]


def test_another_model_plays_other_episodes(server: str) -> None:
    """The expert reader's model plays other episodes than the hasty one's."""
    world = generate_world(WorldConfig(pages=40, seed=77, questions_per_page=1))
    library, questions = Library(world.pages), [q for q in world.questions if q.hops == 2][:2]
    toolbox, searcher = Toolbox(library, TitleIndex(library), 3, 1500, missing_names=True), SearcherConfig()
    other, tokenizer = load_model(PolicyConfig(model=f"{MODEL}-clean", device="cpu"))
    ours = play_episodes(questions, TorchSampler(other.eval(), tokenizer), toolbox, searcher, Sampling(max_new_tokens=48))
    theirs = play_episodes(questions, OpenAISampler(str(MODEL), server), toolbox, searcher, Sampling(max_new_tokens=48))
    assert [turn.text for turn in turns(ours)] != [turn.text for turn in turns(theirs)]
