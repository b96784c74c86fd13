"""Ollama: one server for many models, which it fetches from its own library and loads on request."""

import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import httpx

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.http_client import bounded
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.request import Role, ServeRequest

if TYPE_CHECKING:
    from ollama import Client

PORT = 11434
_STEP_PERCENT = 5
"""Progress between two reports of a pull, in percent."""
_KEEP_ALIVE = "5s"
"""Time that the model stays after a test load, which frees the device again: `judge.loaded` decides what stays."""
_REFUSALS = {
    "requires more system memory|out of memory|cudamalloc|unable to allocate": "cannot load {model}: {words}; out of memory: {advice}",
    "no such host|dial tcp|i/o timeout|network is unreachable|connection refused": (
        "cannot pull {model}: {words}; its library cannot be reached: connect, or make the model from a GGUF with `ollama create`"
    ),
    "file does not exist|not found|manifest": (
        "has no model {model!r} and its library neither: {words}; correct --model (https://ollama.com/library)"
    ),
    "": "cannot serve {model}: {words}; see its log",
}
"""Regular expression for an error of Ollama -> its meaning; the first that fits counts."""


class Ollama(ServerEngine):
    """The server of Ollama."""

    name: ClassVar[str] = "ollama"
    title: ClassVar[str] = "Ollama"
    program: ClassVar[str] = "ollama"
    kind: ClassVar[Literal["ollama", "openai"]] = "ollama"
    ports: ClassVar[Mapping[Role, int]] = {"judge": PORT, "policy": PORT}
    install: ClassVar[str] = "curl -fsSL https://ollama.com/install.sh | sh (Linux), brew install ollama (macOS)"
    memory_advice: ClassVar[str] = "take a smaller model with --model (qwen2.5:3b needs about 3 GB), or lower --ctx-size or --parallel"
    health_path: ClassVar[str] = "/api/version"
    remedies: ClassVar[Mapping[str, str]] = {
        "permission denied|no space left on device": "give OLLAMA_MODELS a folder with room that may be written to"
    }

    def check(self, request: ServeRequest) -> None:
        instead = "take --engine vllm or llamacpp, or make a model of it with `ollama create`"
        self.refuse_adapters_and_share(request, instead, "for a reserve, set OLLAMA_GPU_OVERHEAD in bytes")
        if request.model.startswith((".", "/")) or "\\" in request.model:
            raise ConfigError(
                f"Ollama serves models of its library, not the path {request.model}: give a name with --model, such as qwen2.5:7b"
            )

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        return [*program, "serve", *request.extra]

    def environment(self, request: ServeRequest) -> dict[str, str]:
        # Ollama takes its settings only so.
        host = f"[{request.host}]" if ":" in request.host else request.host
        variables = {"OLLAMA_HOST": f"{host}:{request.port}"}
        if request.parallel is not None:
            variables["OLLAMA_NUM_PARALLEL"] = str(request.parallel)
        if request.ctx_size is not None:
            variables["OLLAMA_CONTEXT_LENGTH"] = str(request.ctx_size)
        if request.gpu_memory == 0.0:
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        return variables

    def base_url(self, request: ServeRequest) -> str:
        # A judge is asked in Ollama's own protocol, a policy in OpenAI's.
        return request.origin if request.role == "judge" else super().base_url(request)

    def recognise(self, request: ServeRequest) -> bool:
        return self.is_healthy(request)  # which models it has is the business of `settle`

    def settle(self, request: ServeRequest, say: Say, stop: threading.Event) -> None:
        import ollama

        client = ollama.Client(host=request.origin, trust_env=False, **bounded())
        try:
            if not _has(client, request.model):
                _pull(client, request.model, say, stop)
            if not stop.is_set():
                client.generate(request.model, keep_alive=_KEEP_ALIVE)
        except (ollama.ResponseError, ollama.RequestError, ConnectionError) as error:
            words = cause_of(error)
            meaning = next(text for pattern, text in _REFUSALS.items() if re.search(pattern, words, re.IGNORECASE))
            raise ServiceError("Ollama " + meaning.format(model=request.model, words=words, advice=self.memory_advice)) from error
        except (httpx.HTTPError, ValueError) as error:  # a connection broke, or a body is not what the client expects
            raise ServiceError(f"Ollama at {request.origin} broke off ({type(error).__name__}: {error}); see its log") from error


def _pull(client: "Client", model: str, say: Say, stop: threading.Event) -> None:
    say(f"pulling {model} into Ollama's library")
    shown: dict[str | None, int] = {}
    status: str | None = None
    for progress in client.pull(model, stream=True):
        if stop.is_set():
            return
        status = progress.status
        if progress.total:
            percent = int(100 * (progress.completed or 0) / progress.total) // _STEP_PERCENT * _STEP_PERCENT
            if percent > shown.get(progress.digest, 0):
                shown[progress.digest] = percent
                say(f"pulling {model}: {percent} % of {progress.total / 1e9:.2f} GB")
    if status != "success":
        raise ServiceError(f"Ollama's pull of {model} ended halfway; what came is kept: run the same command again")


def _has(client: "Client", model: str) -> bool:
    import ollama

    try:
        client.show(model)
    except ollama.ResponseError as error:
        if error.status_code == 404:
            return False
        raise
    return True
