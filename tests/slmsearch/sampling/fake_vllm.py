"""Stand-ins for vLLM and its server: they take the arguments of vLLM 0.30 and of TRL's client, and return their results.

They play a real model with transformers, an adapter over it as PEFT lays it there, so that what comes of them can be compared.
"""

from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import torch
from peft import PeftModel


@dataclass
class SamplingParams:
    """The fields of vLLM's class that are used; any other is an error, as there."""

    temperature: float
    max_tokens: int
    seed: int | None
    logprobs: int
    stop_token_ids: list[int] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    include_stop_str_in_output: bool = False


@dataclass
class LoRARequest:
    """vLLM's class."""

    lora_name: str
    lora_int_id: int
    lora_path: str


def modules():
    """What `import vllm` finds, by name."""
    found = {name: ModuleType(name) for name in ("vllm", "vllm.lora", "vllm.lora.request")}
    for name, module in found.items():
        module.__spec__ = ModuleSpec(name, None)  # installed, as far as one can see
    found["vllm"].SamplingParams, found["vllm.lora.request"].LoRARequest = SamplingParams, LoRARequest
    return found


@torch.no_grad()
def continue_text(model, ids, params):
    """Ids and log-probabilities of a continuation, computed without a cache."""
    chance = torch.Generator().manual_seed(params.seed or 0)
    sampled, logprobs = [], []
    while len(sampled) < params.max_tokens and (not sampled or sampled[-1] not in params.stop_token_ids):
        scores = model(torch.tensor([[*ids, *sampled]])).logits[0, -1].float()
        scores = (scores / params.temperature if params.temperature else scores).log_softmax(-1)
        drawn = torch.multinomial(scores.exp(), 1, generator=chance) if params.temperature else scores.argmax()
        sampled.append(int(drawn))
        logprobs.append(float(scores[sampled[-1]]))
    return sampled, logprobs


class Llm:
    """`vllm.LLM`, as much as is used; one base model for all adapters would be too much for PEFT, so each is laid over a copy."""

    def __init__(self, make_model, **settings):
        self.make_model, self.settings = make_model, settings
        self.model, self.adapters = make_model(), {}
        self.calls, self.requests = [], []
        self.asleep = False

    def generate(self, prompts, sampling_params, use_tqdm, lora_request=None):
        assert not self.asleep and not use_tqdm
        self.calls.append((prompts, sampling_params))
        self.requests.append(lora_request)
        model = self.model
        if lora_request is not None:
            if lora_request.lora_int_id not in self.adapters:  # later the directory need not be there
                self.adapters[lora_request.lora_int_id] = PeftModel.from_pretrained(self.make_model(), lora_request.lora_path).eval()
            model = self.adapters[lora_request.lora_int_id]
        outputs = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            ids, logprobs = continue_text(model, prompt["prompt_token_ids"], params)
            by_token = [{i: SimpleNamespace(logprob=value, rank=1)} for i, value in zip(ids, logprobs, strict=True)]
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=by_token)]))
        return outputs

    def wake_up(self, tags=None):
        self.asleep = False
        self.calls.append(("wake_up", tags))

    def sleep(self, level):
        self.asleep = True
        self.calls.append(("sleep", level))


class Client:
    """TRL's `VLLMClient` with the server behind it, as much as is used."""

    base_url = "http://server"

    def __init__(self, make_model, allows=True):
        self.make_model, self.models, self.allows = make_model, {"base": make_model()}, allows
        self.session, self.asked = self, []

    def post(self, url, json):
        path = url.removeprefix(self.base_url)
        self.asked.append((path, json))
        if not self.allows:
            return SimpleNamespace(status_code=404, text='{"detail":"Not Found"}')
        name = json["lora_name"]
        if path == "/v1/load_lora_adapter":
            assert name not in self.models
            self.models[name] = PeftModel.from_pretrained(self.make_model(), json["lora_path"]).eval()
        else:
            assert path == "/v1/unload_lora_adapter"
            del self.models[name]
        return SimpleNamespace(status_code=200, text="Success")  # no JSON, as there

    def generate(self, prompts, temperature=1.0, max_tokens=16, logprobs=0, generation_kwargs=None):
        model = self.models[generation_kwargs.get("model", "base")]
        params = SamplingParams(temperature, max_tokens, None, logprobs, generation_kwargs["stop_token_ids"])
        found = [continue_text(model, ids, params) for ids in prompts]
        return {"completion_ids": [ids for ids, _ in found], "logprobs": [[[value] for value in values] for _, values in found]}
