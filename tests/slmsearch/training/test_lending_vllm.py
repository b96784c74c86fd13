"""Training that samples through vLLM: stand-ins for its engine and its server, TRL's own trainer between them."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.generation import vllm_generation

from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ServiceError
from slmsearch.training.files import STEPS
from slmsearch.training.grpo import AdapterClient, vllm_takes
from slmsearch.training.reports import read_reports
from slmsearch.training.trainer_samplers import engine_settings, open_vllm_sampler
from tests.slmsearch.sampling import fake_vllm
from tests.slmsearch.training.through import train_through

PROMPTS = [[{"role": "user", "content": "When was Mira 1 born?"}]]


@pytest.fixture
def make_model(model_dir):
    return lambda: AutoModelForCausalLM.from_pretrained(model_dir).eval()


@pytest.fixture
def tokenizer(model_dir):
    return AutoTokenizer.from_pretrained(model_dir)


@pytest.fixture(autouse=True)
def engines(monkeypatch, make_model):
    """The engines that have been made."""
    made = []

    def make(**settings):
        made.append(fake_vllm.Llm(make_model, **settings))
        return made[-1]

    for name, module in fake_vllm.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", make, raising=False)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # TRL sets them
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    return made


def with_adapter(model, strength):
    """The model under an adapter that says something else."""
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")).eval()
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=strength)
    return adapted


def make_trainer(model, generation, device="cuda"):
    accelerator = SimpleNamespace(unwrap_model=lambda wrapped: wrapped, device=torch.device(device))
    return SimpleNamespace(model=model, vllm_generation=generation, accelerator=accelerator, state=SimpleNamespace(global_step=0))


def continue_with(model, tokenizer, sampler):
    """What a sampler wrote to one prompt, and what the model gives each token of it."""
    (prompt,) = sampler.open(PROMPTS, Sampling(max_new_tokens=8))
    (turn,) = sampler.sample([0], [None], [50])
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *turn.sampled_ids]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return turn, [float(scores[n, i]) for n, i in enumerate(turn.sampled_ids)]


def test_a_colocated_engine_gets_each_adapter_anew_and_is_awake_only_while_it_is_lent(make_model, tokenizer):
    llm = fake_vllm.Llm(make_model)
    model = with_adapter(make_model(), 0.3)
    trainer = make_trainer(model, SimpleNamespace(mode="colocate", llm=llm))
    open_sampler, directories = open_vllm_sampler(tokenizer, "tool"), []
    for strength in (0.3, 0.5):  # restored by the keeper within one step, the weights are others too
        with_adapter_weights = [weight for name, weight in model.named_parameters() if "lora_B" in name]
        for weight in with_adapter_weights:
            weight.data.mul_(strength)
        with open_sampler(trainer) as sampler:
            turn, expected = continue_with(model, tokenizer, sampler)
            directories.append(Path(llm.requests[-1].lora_path))
            assert (directories[-1] / "adapter_model.safetensors").is_file()
        assert turn.sampled_logprobs == pytest.approx(expected, abs=1e-4)
    assert len({(request.lora_int_id, request.lora_name) for request in llm.requests}) == 2 and directories[0] != directories[1]
    assert not any(directory.exists() for directory in directories)
    with pytest.raises(RuntimeError, match="broken"), open_sampler(trainer):
        raise RuntimeError("broken")
    assert [call for call in llm.calls if call[0] in ("wake_up", "sleep")] == [("wake_up", None), ("sleep", 1)] * 3


def test_without_a_gpu_the_engine_never_sleeps(make_model, tokenizer):
    llm = fake_vllm.Llm(make_model)
    with open_vllm_sampler(tokenizer, "tool")(
        make_trainer(make_model(), SimpleNamespace(mode="colocate", llm=llm, sync_weights=int), "cpu")
    ):
        pass
    assert llm.calls == []


def test_weights_without_an_adapter_are_carried_over_each_time(make_model, tokenizer):
    synced, llm = [], fake_vllm.Llm(make_model)
    generation = SimpleNamespace(mode="colocate", llm=llm, sync_weights=lambda: synced.append(llm.asleep))
    for _ in range(2):
        with open_vllm_sampler(tokenizer, "tool")(make_trainer(make_model(), generation)) as sampler:
            sampler.open(PROMPTS, Sampling())
            assert sampler.sample([0], [None], [50]) and llm.requests[-1] is None
    assert synced == [False, False]


def test_a_server_gets_the_adapter_and_drops_it_again(make_model, tokenizer):
    client = fake_vllm.Client(make_model)
    model = with_adapter(make_model(), 0.3)
    trainer, open_sampler = make_trainer(model, SimpleNamespace(mode="server", vllm_client=client)), open_vllm_sampler(tokenizer, "tool")
    for _ in range(2):
        with open_sampler(trainer) as sampler:
            turn, expected = continue_with(model, tokenizer, sampler)
        assert turn.sampled_logprobs == pytest.approx(expected, abs=1e-4)
    assert list(client.models) == ["base"]
    loaded = [body["lora_name"] for path, body in client.asked if path == "/v1/load_lora_adapter"]
    assert len(set(loaded)) == 2


def test_a_server_that_takes_no_adapters_is_refused_with_the_reason(make_model, tokenizer):
    client = fake_vllm.Client(make_model, allows=False)
    trainer = make_trainer(with_adapter(make_model(), 0.3), SimpleNamespace(mode="server", vllm_client=client))
    with (
        pytest.raises(ServiceError, match=r"404.*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve"),
        open_vllm_sampler(tokenizer, "tool")(trainer),
    ):
        pass


def test_a_process_that_trl_gave_no_client_makes_its_own(make_model, tokenizer, monkeypatch):
    """With several processes TRL has a client in the first alone."""
    made = []

    def connect(self, base_url, connection_timeout):
        made.append((base_url, connection_timeout))
        self.__dict__ |= fake_vllm.Client(make_model).__dict__ | {"base_url": fake_vllm.Client.base_url}
        self.session = SimpleNamespace(post=lambda url, json: fake_vllm.Client.post(self, url, json))

    monkeypatch.setattr(AdapterClient, "__init__", connect)
    monkeypatch.setattr(AdapterClient, "generate", fake_vllm.Client.generate)
    generation = SimpleNamespace(mode="server", server_base_url="http://server", server_timeout=240.0)
    trainer, open_sampler = make_trainer(with_adapter(make_model(), 0.3), generation), open_vllm_sampler(tokenizer, "tool")
    for _ in range(2):
        with open_sampler(trainer) as sampler:
            assert continue_with(trainer.model, tokenizer, sampler)[0].sampled_ids
    assert made == [("http://server", 240.0)]


def test_the_engine_is_told_what_trl_does_not_know(make_job, engines):
    config = make_job(lora={"r": 24}).config
    policy = config.policy.model_copy(update={"model": "owner/name@abc", "dtype": "float32"})
    config = config.model_copy(update={"policy": policy})
    settings = engine_settings(None, config.policy, config.train, use_cpu=False)
    assert settings == {
        "enable_lora": True,
        "max_lora_rank": 32,
        "dtype": "float32",
        "revision": "abc",
        "tokenizer_revision": "abc",
        "enable_sleep_mode": True,
    }
    before = vllm_generation.VLLMClient
    with vllm_takes(**settings):
        vllm_generation.LLM(model="m", enable_sleep_mode=False)
        assert vllm_generation.VLLMClient is AdapterClient
    assert vllm_generation.VLLMClient is before
    assert engines[0].settings == {"model": "m", **settings}


def test_training_through_trl_samples_from_the_adapter_of_each_step(make_job, toolbox, questions, engines, tokenizer):
    job = make_job(steps=3, checkpoint_steps=3, preflight="record", vllm={"mode": "colocate"}, learning_rate=3e-2)
    train_through(toolbox, questions, job, held_out=[replace(questions[0], question="When was Mira " + "0" * 40 + " born?")])
    (llm,) = engines
    prompts = [make_prompt(text, job.config.searcher) for text in (questions[0].question, "When was Mira " + "0" * 40 + " born?")]
    short, longest = (len(ChatRenderer(tokenizer).encode_prompt(prompt)) for prompt in prompts)
    assert longest > short and llm.settings["max_model_len"] == longest + job.config.searcher.max_episode_tokens
    assert llm.settings["enable_lora"] and llm.settings["max_lora_rank"] >= 16 and not llm.settings["enable_sleep_mode"]
    assert all(request is not None for request in llm.requests)
    numbers = sorted({request.lora_int_id for request in llm.requests})
    assert len(numbers) >= 5  # the probe, held-out questions, three steps
    moved = [
        llm.adapters[number].base_model.model.model.layers[0].mlp.up_proj.lora_B["default"].weight.abs().sum()
        for number in (numbers[0], numbers[-1])
    ]
    assert moved[0] == 0 and moved[1] > 0
    gaps = [report.metrics["policy/kl_sampler"] for report in read_reports(job.directory / STEPS)]
    assert gaps == pytest.approx([0.0] * 3, abs=1e-5)
