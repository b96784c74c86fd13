"""llama.cpp: GGUF weights on a CPU or any GPU, on Linux and macOS.

Two programs serve it: `llama-server`, and the same server from the package `xllamacpp` (extra `llamacpp`), which reads files only and
takes fewer arguments.
"""

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError, ModelError, ServiceError
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.hub import KNOWN
from slmsearch.serving.engines.request import ServeRequest

DEFAULT_CTX_SIZE = 4096
"""Default tokens of a request, enough for a judge's thoughts; the model's own maximum, 32 thousand and more, would take gigabytes."""
DEFAULT_PARALLEL = 4
_REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+(:[\w.-]+)?(?<!\.gguf)")
"""Pattern of a Hub name as `llama-server -hf` takes it: a quantisation may follow."""
_PACKAGED = [sys.executable, "-m", "slmsearch.serving.engines.llama_server"]


class LlamaCpp(ServerEngine):
    """The servers of llama.cpp."""

    name: ClassVar[str] = "llamacpp"
    title: ClassVar[str] = "llama.cpp"
    program: ClassVar[str] = "llama-server"
    install: ClassVar[str] = "pip install -e '.[llamacpp]', or brew install llama.cpp (macOS, Linux)"
    memory_advice: ClassVar[str] = (
        "lower --ctx-size or --parallel, take fewer layers on the GPU (--gpu-memory 0: none), or a smaller --model"
    )
    remedies: ClassVar[Mapping[str, str]] = {
        r"unknown (model architecture|pre-tokenizer)": "this llama.cpp is too old for the model: update it",
        r"invalid argument|unrecognized arguments": "correct the arguments after --",
        r"invalid magic|[Ff]ailed to load (model|from file)|error loading model": "the file is damaged or no GGUF: fetch it again",
    }

    def check(self, request: ServeRequest) -> None:
        if (Path(request.model) / "config.json").is_file():
            raise ConfigError(
                f"llama.cpp serves GGUF, and {request.model} is a model of transformers: make one with `slmsearch export gguf`"
                " and give the file with --model, or take --engine transformers"
            )
        model = _gguf_name(request.model)
        if not Path(model).is_file() and not _REPOSITORY.fullmatch(model):
            example = KNOWN["qwen2.5:3b"].gguf
            raise ModelError(f"no GGUF at {model!r}: give --model FILE.gguf, or a repository of the Hub such as {example}")
        if request.gpu_memory not in (None, 0.0):
            raise ConfigError(
                "llama.cpp counts layers, not shares of memory: leave --gpu-memory out (as many as fit), say 0 (none), or"
                " -- --n-gpu-layers 20"
            )
        if len(request.adapters) > 1:
            raise ConfigError("llama.cpp adds all its LoRA adapters up: give one --lora-adapter, or take --engine vllm to choose by name")
        for name, path in request.adapters:
            if not Path(path).is_file():
                raise ModelError(f"adapter {name!r}: no GGUF at {path}; llama.cpp's convert_lora_to_gguf.py makes one of a LoRA directory")

    def find(self, request: ServeRequest) -> list[str]:
        try:
            return super().find(request)
        except ServiceError:
            if find_spec("xllamacpp"):
                return list(_PACKAGED)
            raise

    def prepare(self, request: ServeRequest, say: Say) -> None:
        if self.find(request) == _PACKAGED and not Path(request.model).is_file():
            repository = _gguf_name(request.model).partition(":")[0]
            raise ServiceError(
                f"xllamacpp serves files: fetch one with `hf download {repository}` and give it with --model, or take llama-server"
            )

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        model = _gguf_name(request.model)
        place = ["-hf" if _REPOSITORY.fullmatch(model) else "--model", model, "--host", request.host, "--port", str(request.port)]
        return [*program, *place, *_arguments(request, self.client_name(request)), *request.extra]


def _gguf_name(model: str) -> str:
    return KNOWN[model].gguf if model in KNOWN else model


def _arguments(request: ServeRequest, name: str) -> list[str]:
    parallel = request.parallel or DEFAULT_PARALLEL
    size = (request.ctx_size or DEFAULT_CTX_SIZE) * parallel  # it divides the whole among its slots
    arguments = ["--alias", name, "--parallel", str(parallel), "--ctx-size", str(size)]
    if request.gpu_memory == 0.0:
        arguments += ["--n-gpu-layers", "0"]
    return arguments + [word for _, path in request.adapters for word in ("--lora", path)]
