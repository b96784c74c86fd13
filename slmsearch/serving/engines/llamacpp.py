"""llama.cpp: GGUF weights on a CPU or any GPU, on Linux and macOS.

Two programs serve it: `llama-server`, llama.cpp's own, and the server of llama-cpp-python (extra `llamacpp`), which works on one
request at a time.
"""

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.hub import KNOWN
from slmsearch.serving.engines.request import ServeRequest

DEFAULT_CTX_SIZE = 4096
"""Default tokens of a request, enough for a judge's thoughts; the model's own maximum, 32 thousand and more, would take gigabytes."""
DEFAULT_PARALLEL = 4
_REPOSITORY = re.compile(r"\w[\w.-]*/[\w.-]+(:[\w.-]+)?(?<!\.gguf)")
"""Pattern of a Hub name as `llama-server -hf` takes it: a quantisation may follow."""
_PYTHON_SERVER = [sys.executable, "-m", "llama_cpp.server"]


class LlamaCpp(ServerEngine):
    """The servers of llama.cpp."""

    name: ClassVar[str] = "llamacpp"
    title: ClassVar[str] = "llama.cpp"
    program: ClassVar[str] = "llama-server"
    install: ClassVar[str] = "brew install llama.cpp (macOS, Linux), or, with a C++ compiler, pip install -e '.[llamacpp]'"
    memory_advice: ClassVar[str] = (
        "lower --ctx-size or --parallel, take fewer layers on the GPU (--gpu-memory 0: none), or a smaller --model"
    )
    # llama-cpp-python has no /health, and lists its models once they are loaded.
    health_path: ClassVar[str] = "/v1/models"
    remedies: ClassVar[Mapping[str, str]] = {
        r"unknown (model architecture|pre-tokenizer)": "this llama.cpp is too old for the model: update it",
        r"invalid magic|[Ff]ailed to load (model|from file)|error loading model": "the file is damaged or no GGUF: fetch it again",
        r"invalid argument|unrecognized arguments": "correct the arguments after --",
    }

    def check(self, request: ServeRequest) -> None:
        if (Path(request.model) / "config.json").is_file():
            raise ConfigError(
                f"llama.cpp serves GGUF, and {request.model} is a model of transformers: convert it with llama.cpp's convert_hf_to_gguf.py"
                " and give the file with --model, or take --engine transformers"
            )
        model = _gguf_name(request.model)
        if not Path(model).is_file() and not _REPOSITORY.fullmatch(model):
            example = KNOWN["qwen2.5:3b"].gguf
            raise ConfigError(f"no GGUF at {model!r}: give --model FILE.gguf, or a repository of the Hub such as {example}")
        if request.gpu_memory not in (None, 0.0):
            raise ConfigError(
                "llama.cpp counts layers, not shares of memory: leave --gpu-memory out (as many as fit), say 0 (none), or"
                " -- --n-gpu-layers 20"
            )
        if len(request.adapters) > 1:
            raise ConfigError("llama.cpp adds all its LoRA adapters up: give one --lora-adapter, or take --engine vllm to choose by name")
        for name, path in request.adapters:
            if not Path(path).is_file():
                raise ConfigError(f"adapter {name!r}: no GGUF at {path}; llama.cpp's convert_lora_to_gguf.py makes one of a LoRA directory")

    def find(self, request: ServeRequest) -> list[str]:
        try:
            return super().find(request)
        except ServiceError:
            if all(find_spec(name) for name in ("llama_cpp", "starlette_context", "sse_starlette")):
                return list(_PYTHON_SERVER)
            raise

    def prepare(self, request: ServeRequest, say: Say) -> None:
        if self.find(request) != _PYTHON_SERVER:
            return
        if request.parallel and request.parallel > 1:
            say("llama-cpp-python works on one request at a time, the others wait; --parallel is for llama-server")
        if not Path(request.model).is_file():
            repository = _gguf_name(request.model).partition(":")[0]
            raise ServiceError(
                f"llama-cpp-python serves files: fetch one with `hf download {repository}` and give it with --model, or take llama-server"
            )

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        make = _python_arguments if program == _PYTHON_SERVER else _native_arguments
        model = _gguf_name(request.model)
        place = ["-hf" if _REPOSITORY.fullmatch(model) else "--model", model, "--host", request.host, "--port", str(request.port)]
        return [*program, *place, *make(request, self.client_name(request)), *request.extra]


def _gguf_name(model: str) -> str:
    return KNOWN[model].gguf if model in KNOWN else model


def _native_arguments(request: ServeRequest, name: str) -> list[str]:
    parallel = request.parallel or DEFAULT_PARALLEL
    size = (request.ctx_size or DEFAULT_CTX_SIZE) * parallel  # it divides the whole among its slots
    arguments = ["--alias", name, "--parallel", str(parallel), "--ctx-size", str(size)]
    if request.gpu_memory == 0.0:
        arguments += ["--n-gpu-layers", "0"]
    return arguments + [word for _, path in request.adapters for word in ("--lora", path)]


def _python_arguments(request: ServeRequest, name: str) -> list[str]:
    arguments = ["--model_alias", name, "--n_ctx", str(request.ctx_size or DEFAULT_CTX_SIZE)]
    arguments += ["--n_gpu_layers", "0" if request.gpu_memory == 0.0 else "-1"]
    # Left as they are, a new request would break off the one before, and every token of a prompt would get its logits.
    arguments += ["--interrupt_requests", "false", "--logits_all", "false"]
    return arguments + [word for _, path in request.adapters for word in ("--lora_path", path)]
