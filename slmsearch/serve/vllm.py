"""`vllm serve`: for a GPU, on Linux, with LoRA adapters that clients choose by name."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serve.engine import Engine, Say, find_program, missing
from slmsearch.serve.failures import Remedy
from slmsearch.serve.hub import fetch_model
from slmsearch.serve.names import hub_name, require_directory
from slmsearch.serve.request import ServeRequest

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values `--max-lora-rank` takes."""


class Vllm(Engine):
    """The server of vLLM."""

    name: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM"
    install: ClassVar[str] = "uv pip install -e '.[gpu]' (pip refuses it, see pyproject.toml)"
    memory_advice: ClassVar[str] = "lower --gpu-memory, --ctx-size or --parallel, free the GPU, or take a smaller model with --model"
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            re.compile(r"No CUDA GPUs are available|Failed to infer device type|no NVIDIA GPU|Found no NVIDIA driver"),
            "vLLM needs a GPU: take --engine llamacpp or transformers on the CPU",
        ),
        Remedy(
            re.compile(r"is not a valid model identifier|Repository Not Found|couldn't connect to|offline mode|LocalEntryNotFound"),
            "the model is neither in the Hub's cache nor can it be fetched: correct --model, or give a path",
        ),
        Remedy(
            re.compile(r"max_model_len .*greater than|max seq len .*larger", re.IGNORECASE), "the model has fewer tokens: lower --ctx-size"
        ),
        Remedy(re.compile(r"LoRA rank .*greater than max_lora_rank"), "raise it: -- --max-lora-rank 64"),
    )

    def check(self, request: ServeRequest) -> None:
        """See `Engine.check`."""
        if request.gpu_memory == 0.0:
            raise ConfigError("vLLM runs on the GPU here: give --gpu-memory above 0, or take --engine llamacpp")
        require_directory(hub_name(request.model))
        for name, path in request.adapters:
            if not (Path(path) / "adapter_config.json").is_file():
                raise ConfigError(f"adapter {name!r}: no LoRA adapter at {path} (adapter_config.json is missing)")

    def find(self, request: ServeRequest) -> list[str]:
        """See `Engine.find`."""
        if sys.platform != "linux":
            raise ServiceError(f"vLLM runs on Linux only, and this is {sys.platform}: take --engine llamacpp or ollama")
        program = find_program("vllm")
        if program is None:
            raise missing(self)
        return [program]

    def prepare(self, request: ServeRequest, folder: Path, say: Say) -> ServeRequest:
        """Fetch the weights."""
        fetch_model(hub_name(request.model), say)
        return request

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        """See `Engine.command`."""
        command = [*program, "serve", hub_name(request.model), "--host", request.host, "--port", str(request.port)]
        command += ["--served-model-name", request.name, "--dtype", request.dtype]
        # Sampling is what a client asks for: no penalties and cuts from the model's own generation config.
        command += ["--generation-config", "vllm"]
        if request.ctx_size is not None:
            command += ["--max-model-len", str(request.ctx_size)]
        if request.parallel is not None:
            command += ["--max-num-seqs", str(request.parallel)]
        if request.gpu_memory is not None:
            command += ["--gpu-memory-utilization", f"{request.gpu_memory:g}"]
        if request.adapters:
            command += ["--enable-lora", "--max-loras", str(len(request.adapters)), "--max-lora-rank", str(_max_rank(request))]
            command += ["--lora-modules", *(f"{name}={path}" for name, path in request.adapters)]
        return [*command, *request.extra]


def _max_rank(request: ServeRequest) -> int:
    """Return the smallest limit that fits every adapter; vLLM's own, 16, refuses larger ones."""
    ranks = [16]
    for _, path in request.adapters:
        with suppress(OSError, ValueError, KeyError, TypeError):
            ranks.append(int(json.loads((Path(path) / "adapter_config.json").read_text(encoding="utf-8"))["r"]))
    return next((limit for limit in LORA_RANKS if limit >= max(ranks)), LORA_RANKS[-1])
