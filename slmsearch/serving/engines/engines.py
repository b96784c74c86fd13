"""The engines by name: those for weights of the Hub are defined here, the others in modules of their own."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError, ModelError, ServiceError
from slmsearch.sampling.vllm import LORA_RANKS
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.hub import check_model, fetch_model, hub_name
from slmsearch.serving.engines.llamacpp import LlamaCpp
from slmsearch.serving.engines.ollama import Ollama
from slmsearch.serving.engines.request import Role, ServeRequest


class _HubEngine(ServerEngine):
    """A server that loads models in the Hub's format: a directory, or a repository of the Hub."""

    def check(self, request: ServeRequest) -> None:
        check_model(hub_name(request.model))

    def prepare(self, request: ServeRequest, say: Say) -> None:
        fetch_model(hub_name(request.model), say)

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        address = ["--host", request.host, "--port", str(request.port), "--dtype", request.dtype]
        return [*program, "serve", hub_name(request.model), *address, *self._options(request), *request.extra]

    def _options(self, request: ServeRequest) -> list[str]:
        raise NotImplementedError


class Transformers(_HubEngine):
    """`transformers serve`: comes with the project and runs anywhere, slowly. For a laptop with no other engine."""

    name: ClassVar[str] = "transformers"
    title: ClassVar[str] = "transformers serve"
    program: ClassVar[str] = "transformers"
    install: ClassVar[str] = "pip install 'transformers[serving]'"
    memory_advice: ClassVar[str] = "take a smaller model with --model, or half the weights with --policy.dtype bfloat16"
    remedies: ClassVar[Mapping[str, str]] = {
        r"couldn't connect to|Cannot find the requested files|LocalEntryNotFound|offline mode|Temporary failure in name": (
            "the model is not in the Hub's cache and the Hub cannot be reached: give a path with --model"
        ),
        r"is not a local folder and is not a valid model identifier|Repository Not Found": "no such model on the Hub: correct --model",
        r"Missing dependencies for serving": install,
    }

    def check(self, request: ServeRequest) -> None:
        instead = "serve it with --engine vllm or llamacpp, or evaluate it in process with --policy.adapter"
        self.refuse_adapters_and_share(request, instead, "it takes what the model needs")
        super().check(request)
        if request.parallel not in (None, 1):
            raise ConfigError(
                "transformers serve works on one request at a time: leave --parallel out, or, on a GPU, -- --continuous-batching"
            )
        if request.ctx_size is not None:
            raise ConfigError("transformers serve has no limit of its own on tokens: leave --ctx-size out")

    def client_name(self, request: ServeRequest) -> str:
        return hub_name(request.model)  # it refuses every other name than that of what it loaded

    def _options(self, request: ServeRequest) -> list[str]:
        return ["--device", "cpu" if request.gpu_memory == 0.0 else request.device]


class Vllm(_HubEngine):
    """`vllm serve`: for a GPU, on Linux, with LoRA adapters that clients choose by name."""

    name: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM"
    program: ClassVar[str] = "vllm"
    install: ClassVar[str] = "uv pip install -e '.[gpu]' (pip refuses it, see pyproject.toml)"
    memory_advice: ClassVar[str] = "lower --gpu-memory, --ctx-size or --parallel, free the GPU, or take a smaller model with --model"
    remedies: ClassVar[Mapping[str, str]] = {
        r"No CUDA GPUs are available|Failed to infer device type|no NVIDIA GPU|Found no NVIDIA driver": (
            "vLLM needs a GPU: take --engine llamacpp or transformers on the CPU"
        ),
        r"is not a valid model identifier|Repository Not Found|couldn't connect to|offline mode|LocalEntryNotFound": (
            "the model is neither in the Hub's cache nor can it be fetched: correct --model, or give a path"
        ),
        r"(?i)max_model_len .*greater than|max seq len .*larger": "the model has fewer tokens: lower --ctx-size",
        r"LoRA rank .*greater than max_lora_rank": "raise it: -- --max-lora-rank 64",
    }

    def check(self, request: ServeRequest) -> None:
        if request.gpu_memory == 0.0:
            raise ConfigError("vLLM runs on the GPU here: give --gpu-memory above 0, or take --engine llamacpp")
        super().check(request)
        for name, path in request.adapters:
            if not (Path(path) / "adapter_config.json").is_file():
                raise ModelError(f"adapter {name!r}: no LoRA adapter at {path} (adapter_config.json is missing)")

    def find(self, request: ServeRequest) -> list[str]:
        if sys.platform != "linux":
            raise ServiceError(f"vLLM runs on Linux only, and this is {sys.platform}: take --engine llamacpp or ollama")
        return super().find(request)

    def _options(self, request: ServeRequest) -> list[str]:
        # Sampling is what a client asks for: no penalties and cuts from the model's own generation config.
        options = ["--served-model-name", request.name, "--generation-config", "vllm"]
        limits = {
            "--max-model-len": request.ctx_size,
            "--max-num-seqs": request.parallel,
            "--gpu-memory-utilization": request.gpu_memory,
        }
        for option, value in limits.items():
            if value is not None:
                options += [option, str(value)]
        if request.adapters:
            options += ["--enable-lora", "--max-loras", str(len(request.adapters)), "--max-lora-rank", str(_max_rank(request))]
            options += ["--lora-modules", *(f"{name}={path}" for name, path in request.adapters)]
        return options


def _max_rank(request: ServeRequest) -> int:
    """Return the smallest limit that fits every adapter; vLLM's own, 16, refuses larger ones."""
    ranks = [16]
    for _, path in request.adapters:
        with suppress(OSError, ValueError, KeyError, TypeError):
            ranks.append(int(json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))["r"]))
    return next((limit for limit in LORA_RANKS if limit >= max(ranks)), LORA_RANKS[-1])


ENGINES: dict[str, type[ServerEngine]] = {made.name: made for made in (Ollama, LlamaCpp, Vllm, Transformers)}
DEFAULT_ENGINES: dict[Role, str] = {"judge": "ollama", "policy": "transformers"}


def make_engine(name: str) -> ServerEngine:
    """Return an engine by its name.

    Raises:
        ConfigError: no engine has that name.
    """
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]()
