"""llama.cpp: GGUF weights on a CPU or any GPU, on Linux and macOS.

Two programs serve it: `llama-server`, llama.cpp's own, and the server of llama-cpp-python (extra `llamacpp`), which works on one
request at a time.
"""

import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from slmsearch.errors import ConfigError
from slmsearch.serve.engine import Engine, Say, find_program, missing
from slmsearch.serve.failures import Remedy
from slmsearch.serve.gguf import convert_adapter
from slmsearch.serve.hub import find_gguf
from slmsearch.serve.names import KNOWN, is_library_name
from slmsearch.serve.request import Role, ServeRequest

DEFAULT_CTX_SIZE: dict[Role, int] = {"judge": 2048, "policy": 4096}
"""Tokens of a request where none are given; the model's own maximum, 32 thousand and more, would take gigabytes."""
DEFAULT_PARALLEL = 4
_PYTHON_SERVER = [sys.executable, "-m", "llama_cpp.server"]


class LlamaCpp(Engine):
    """The servers of llama.cpp."""

    name: ClassVar[str] = "llamacpp"
    title: ClassVar[str] = "llama.cpp"
    install: ClassVar[str] = "brew install llama.cpp (macOS, Linux), or, with a C++ compiler, pip install -e '.[llamacpp]'"
    memory_advice: ClassVar[str] = (
        "lower --ctx-size or --parallel, take fewer layers on the GPU (--gpu-memory 0: none), or a smaller --model"
    )
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(re.compile(r"unknown (model architecture|pre-tokenizer)"), "this llama.cpp is too old for the model: update it"),
        Remedy(
            re.compile(r"invalid magic|failed to load model|error loading model|[Ff]ailed to load (model|from file)"),
            "the file is damaged or no GGUF: fetch it again",
        ),
        Remedy(re.compile(r"invalid argument|unrecognized arguments"), "correct the arguments after --"),
    )

    @property
    def health_path(self) -> str:  # type: ignore[override]
        """See `Engine.health_path`: llama-cpp-python has none of its own, and lists its models once they are loaded."""
        return "/v1/models"

    def check(self, request: ServeRequest) -> None:
        """See `Engine.check`."""
        if (Path(request.model) / "config.json").is_file():
            raise ConfigError(
                f"llama.cpp serves GGUF, and {request.model} is a model of transformers: convert it with llama.cpp's convert_hf_to_gguf.py"
                " and give the file with --model, or take --engine transformers"
            )
        if request.gpu_memory not in (None, 0.0):
            raise ConfigError(
                "llama.cpp counts layers, not shares of memory: leave --gpu-memory out (as many as fit), say 0 (none), or"
                " -- --n-gpu-layers 20"
            )
        if len(request.adapters) > 1:
            raise ConfigError("llama.cpp adds all its LoRA adapters up: give one --lora-adapter, or take --engine vllm to choose by name")

    def find(self, request: ServeRequest) -> list[str]:
        """See `Engine.find`: `llama-server` where there is one."""
        if program := find_program("llama-server"):
            return [program]
        if all(find_spec(name) for name in ("llama_cpp", "starlette_context", "sse_starlette")):
            return list(_PYTHON_SERVER)
        raise missing(self)

    def prepare(self, request: ServeRequest, folder: Path, say: Say) -> ServeRequest:
        """Fetch the weights; convert adapters of PEFT."""
        if request.parallel and request.parallel > 1 and self.find(request) == _PYTHON_SERVER:
            say("llama-cpp-python works on one request at a time, the others wait; --parallel is for llama-server")
        path = find_gguf(_weights(request.model), say)
        adapters = []
        for name, adapter in request.adapters:
            is_peft = (Path(adapter) / "adapter_config.json").is_file()
            if not is_peft and not Path(adapter).is_file():
                raise ConfigError(f"adapter {name!r}: neither a GGUF nor a LoRA directory at {adapter}")
            adapters.append((name, str(convert_adapter(Path(adapter), folder / "gguf")) if is_peft else adapter))
        return replace(request, model=str(path), adapters=tuple(adapters))

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        """See `Engine.command`."""
        make = _python_arguments if program == _PYTHON_SERVER else _native_arguments
        return [*program, *make(request, self.client_name(request)), *request.extra]


def _weights(model: str) -> str:
    if model in KNOWN:
        return KNOWN[model].gguf
    if is_library_name(model):
        raise ConfigError(
            f"{model!r} is a name of Ollama's library: give --model FILE.gguf or a repository, such as {KNOWN['qwen2.5:7b'].gguf}"
        )
    return model


def _native_arguments(request: ServeRequest, name: str) -> list[str]:
    parallel = request.parallel or DEFAULT_PARALLEL
    size = (request.ctx_size or DEFAULT_CTX_SIZE[request.role]) * parallel  # it divides the whole among its slots
    arguments = ["--model", request.model, "--alias", name, "--host", request.host, "--port", str(request.port)]
    arguments += ["--parallel", str(parallel), "--ctx-size", str(size)]
    if request.gpu_memory == 0.0:
        arguments += ["--n-gpu-layers", "0"]
    for _, path in request.adapters:
        arguments += ["--lora", path]
    return arguments


def _python_arguments(request: ServeRequest, name: str) -> list[str]:
    arguments = ["--model", request.model, "--model_alias", name, "--host", request.host, "--port", str(request.port)]
    arguments += [
        "--n_ctx",
        str(request.ctx_size or DEFAULT_CTX_SIZE[request.role]),
        "--n_gpu_layers",
        "0" if request.gpu_memory == 0.0 else "-1",
    ]
    # Left as they are, a new request would break off the one before, and every token of a prompt would get its logits.
    arguments += ["--interrupt_requests", "false", "--logits_all", "false"]
    for _, path in request.adapters:
        arguments += ["--lora_path", path]
    return arguments
