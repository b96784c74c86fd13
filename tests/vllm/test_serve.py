"""`slmsearch serve policy --engine vllm`: a model and an adapter behind it, asked by an OpenAI client."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from slmsearch.config import PolicyConfig
from slmsearch.episodes.sampler import Sampling
from slmsearch.models.load import load_model
from slmsearch.processes.ports import free_port
from slmsearch.sampling.openai_sampler import OpenAISampler
from slmsearch.sampling.torch_sampler import TorchSampler
from tests.e2e.conftest import MODEL

QUESTIONS = ("Where is Lower Kelvinen?", "When was Mira born?")


def serve(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "flows", "serve", "policy", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
def test_a_served_policy_writes_what_the_torch_sampler_writes(tmp_path: Path) -> None:
    places = ["--paths.data_dir", str(tmp_path), "--json"]
    own = ["--ctx-size", "512", "--parallel", "4", "--policy.dtype", "float32", "--", "--enforce-eager"]
    told = serve("--engine", "vllm", "--model", str(MODEL), "--port", str(free_port()), "--detach", *places, *own)
    try:
        client = openai.OpenAI(base_url=told["base_url"], api_key="none")
        assert told["model"] in [model.id for model in client.models.list()]
        prompts = [[{"role": "user", "content": question}] for question in QUESTIONS]
        served, here = (
            OpenAISampler(told["model"], told["base_url"]),
            TorchSampler(*load_model(PolicyConfig(model=str(MODEL), device="cpu"))),
        )
        texts = []
        for sampler in (served, here):
            sampler.open(prompts, Sampling(temperature=0.0, max_new_tokens=48))
            texts.append([turn.text for turn in sampler.sample(range(len(prompts)), [None] * len(prompts), [200] * len(prompts))])
        assert texts[0] == texts[1]
        assert texts[0][0] == '<tool>search_pages("Lower Kelvinen")</tool>'
    finally:
        assert serve("--stop", *places)["stopped"]
    assert not psutil.pid_exists(told["pid"])
