"""Ollama: one server for many models, which it fetches from its own library and loads when they are asked for."""

import re
import threading
from typing import Any, ClassVar, Literal

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.http_client import answers
from slmsearch.serve.engine import Engine, Say, find_program, missing, refuse_adapters, refuse_share
from slmsearch.serve.failures import Remedy
from slmsearch.serve.request import ServeRequest

PORT = 11434
_STEP_PERCENT = 5
"""A pull is reported this often."""
_KEEP_ALIVE = "5s"
"""The model is loaded once to see that it fits, and leaves the device to others again: `judge.loaded` decides what stays."""
_NO_NETWORK = re.compile(r"no such host|dial tcp|i/o timeout|network is unreachable|connection refused", re.IGNORECASE)
_NO_MODEL = re.compile(r"file does not exist|not found|manifest", re.IGNORECASE)
_NO_MEMORY = re.compile(r"requires more system memory|out of memory|cudaMalloc|unable to allocate", re.IGNORECASE)


class Ollama(Engine):
    """The server of Ollama."""

    name: ClassVar[str] = "ollama"
    title: ClassVar[str] = "Ollama"
    kind: ClassVar[Literal["ollama", "openai"]] = "ollama"
    install: ClassVar[str] = "curl -fsSL https://ollama.com/install.sh | sh (Linux), brew install ollama (macOS)"
    memory_advice: ClassVar[str] = "take a smaller model with --model (qwen2.5:3b needs about 3 GB), or lower --ctx-size or --parallel"
    health_path: ClassVar[str] = "/api/version"
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(re.compile(r"permission denied|no space left on device"), "give OLLAMA_MODELS a folder with room that may be written to"),
    )

    def check(self, request: ServeRequest) -> None:
        """See `Engine.check`."""
        refuse_adapters(self, request, "take --engine vllm or llamacpp, or make a model of it with `ollama create`")
        refuse_share(self, request, "for a reserve, set OLLAMA_GPU_OVERHEAD in bytes")
        if request.model.startswith((".", "/")) or "\\" in request.model:
            raise ConfigError(
                f"Ollama serves models of its library, not the path {request.model}: give a name with --model, such as qwen2.5:7b"
            )

    def find(self, request: ServeRequest) -> list[str]:
        """See `Engine.find`."""
        program = find_program("ollama")
        if program is None:
            raise missing(self)
        return [program]

    def command(self, program: list[str], request: ServeRequest) -> list[str]:
        """See `Engine.command`."""
        return [*program, "serve", *request.extra]

    def environment(self, request: ServeRequest) -> dict[str, str]:
        """See `Engine.environment`; Ollama takes its settings only so."""
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
        """See `Engine.base_url`: a judge is asked in Ollama's own protocol, a policy in OpenAI's."""
        return request.origin if request.role == "judge" else f"{request.origin}/v1"

    def recognise(self, request: ServeRequest) -> bool:
        """See `Engine.recognise`; which models it has is the business of `settle`."""
        return answers(request.origin + self.health_path)

    def settle(self, request: ServeRequest, say: Say, stop: threading.Event) -> None:
        """Pull the model if it is missing, and load it once to see that it fits."""
        import ollama

        from slmsearch.http_client import bounded

        client = ollama.Client(host=request.origin, trust_env=False, **bounded())
        try:
            if not _has(client, request.model):
                self._pull(client, request, say, stop)
            if not stop.is_set():
                client.generate(request.model, keep_alive=_KEEP_ALIVE)
        except (ollama.ResponseError, ollama.RequestError, ConnectionError) as error:
            raise ServiceError(self._explain(request, str(error))) from error
        except Exception as error:
            if not _is_transport_error(error):
                raise
            raise ServiceError(f"Ollama at {request.origin} broke off ({type(error).__name__}: {error}); see its log") from error

    def _pull(self, client: Any, request: ServeRequest, say: Say, stop: threading.Event) -> None:
        say(f"pulling {request.model} into Ollama's library")
        shown: dict[str, int] = {}
        progress: Any = None
        for progress in client.pull(request.model, stream=True):
            if stop.is_set():
                return
            if not progress.total:
                continue
            percent = int(100 * (progress.completed or 0) / progress.total) // _STEP_PERCENT * _STEP_PERCENT
            if percent > shown.get(progress.digest, 0):
                shown[progress.digest] = percent
                say(f"pulling {request.model}: {percent} % of {progress.total / 1e9:.2f} GB")
        if progress is None or progress.status != "success":
            raise ServiceError(f"Ollama's pull of {request.model} ended halfway; what came is kept: run the same command again")

    def _explain(self, request: ServeRequest, words: str) -> str:
        words = " ".join(words.split())[:300]
        if _NO_MEMORY.search(words):
            return f"Ollama cannot load {request.model}: {words}; out of memory: {self.memory_advice}"
        if _NO_NETWORK.search(words):
            remedy = "its library cannot be reached: connect, or make the model from a GGUF with `ollama create`"
            return f"Ollama cannot pull {request.model}: {words}; {remedy}"
        if _NO_MODEL.search(words):
            return f"Ollama has no model {request.model!r} and its library neither: {words}; correct --model (https://ollama.com/library)"
        return f"Ollama cannot serve {request.model}: {words}; see its log"


def _has(client: Any, model: str) -> bool:
    import ollama

    try:
        client.show(model)
    except ollama.ResponseError as error:
        if error.status_code == 404:
            return False
        raise
    return True


def _is_transport_error(error: Exception) -> bool:
    """Say whether a connection broke, or a body was not what the client expects."""
    import httpx
    from pydantic import ValidationError

    return isinstance(error, (httpx.HTTPError, ValidationError, ValueError))
