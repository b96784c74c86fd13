"""Requests for model servers from settings and options, and descriptions of servers. `slmsearch.serving.engines` does the work."""

import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from slmsearch.config import JudgeConfig, PathsConfig, PolicyConfig
from slmsearch.errors import ConfigError, ServiceError
from slmsearch.foreign import without_credentials
from slmsearch.http_client import answers, list_models
from slmsearch.processes.ports import LOOPBACK
from slmsearch.serving.engines.engine import Say, ServerEngine
from slmsearch.serving.engines.engines import DEFAULT_ENGINES, make_engine
from slmsearch.serving.engines.ollama import PORT as OLLAMA_PORT
from slmsearch.serving.engines.ollama import Ollama
from slmsearch.serving.engines.request import ROLES, Endpoint, Role, ServeRequest, is_loopback, split_address
from slmsearch.serving.engines.state import read_state, running_state
from slmsearch.serving.engines.supervisor import endpoint_of, find_running

OLLAMA_URL = f"http://{LOOPBACK}:{OLLAMA_PORT}"


@dataclass(frozen=True)
class Options:
    """Options of the command line beside the settings. None leaves a choice to the settings or the engine."""

    engine: str | None = None
    host: str | None = None
    port: int | None = None
    parallel: int | None = None
    ctx_size: int | None = None
    gpu_memory: float | None = None
    adapters: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def make_request(judge: JudgeConfig, policy: PolicyConfig, role: Role, options: Options) -> tuple[ServerEngine, ServeRequest]:
    """Combine settings and options into a request.

    Raises:
        ConfigError: they contradict each other or name another machine.
    """
    section: JudgeConfig | PolicyConfig = judge if role == "judge" else policy
    engine = make_engine(options.engine or DEFAULT_ENGINES[role])
    host, port = _place(section.base_url, role, engine, options)
    request = ServeRequest(
        role=role,
        model=str(path.resolve()) if (path := Path(section.model).expanduser()).exists() else section.model,
        name=section.model,
        host=host,
        port=port,
        parallel=options.parallel or (judge.concurrency if role == "judge" and engine.name in ("llamacpp", "vllm") else None),
        ctx_size=options.ctx_size,
        gpu_memory=options.gpu_memory,
        adapters=_adapters(policy, role, options),
        device=policy.device if role == "policy" else "auto",
        dtype=policy.dtype if role == "policy" else "auto",
        extra=options.extra,
    )
    engine.check(request)
    return engine, request


def _place(base_url: str | None, role: Role, engine: ServerEngine, options: Options) -> tuple[str, int]:
    """Choose the address to listen on: the options, else the address of the settings, else the engine's usual port."""
    host, port = LOOPBACK, engine.ports[role]
    if base_url and not (options.host and options.port):
        try:
            host, port = split_address(base_url)
        except ValueError as error:
            raise ConfigError(f"{role}.base_url: {error}; write http://127.0.0.1:8000/v1") from error
        own = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses} | {"0.0.0.0", "::"}
        if options.host is None and not is_loopback(host) and host not in own:
            raise ConfigError(f"{role}.base_url {base_url} is on another machine: start the server there, or unset {role}.base_url")
    host = options.host or (LOOPBACK if host == "localhost" else host)
    return host, options.port or port


def _adapters(policy: PolicyConfig, role: Role, options: Options) -> tuple[tuple[str, str], ...]:
    given = []
    for text in options.adapters:
        name, equals, path = text.partition("=")
        if not (equals and name and path):
            raise ConfigError(f"--lora-adapter {text!r} is malformed: write name=path")
        given.append((name, str(Path(path).expanduser().resolve())))
    if len({name for name, _ in given}) < len(given):
        raise ConfigError("two LoRA adapters have the same name: clients could not tell them apart")
    if not given and role == "policy" and policy.adapter:
        given = [("adapter", policy.adapter)]
    return tuple(given)


def find_endpoint(paths: PathsConfig, engine: ServerEngine, request: ServeRequest, say: Say) -> Endpoint | None:
    """Return the endpoint of a server that runs already, started here or not; None if one must be started.

    Raises:
        ServiceError: the server that runs in this role serves another model.
    """
    state = running_state(paths.serve, request.role)
    if state is None:
        return find_running(engine, request, say, threading.Event())
    same = (state.engine, state.model, state.base_url) == (engine.name, request.model, engine.base_url(request))
    if not same or state.phase != "ready":
        what = f"{state.engine} with {state.model} at {state.base_url} ({state.phase}, process {state.supervisor})"
        raise ServiceError(f"a {request.role} server runs already: {what}; `slmsearch serve {request.role} --stop` stops it")
    return endpoint_of(engine, request, state.server, Path(state.log))


def list_servers(folder: Path, judge: JudgeConfig, policy: PolicyConfig) -> list[dict[str, object]]:
    """Describe the servers of all roles: supervised ones, failed ones, and those that answer at the configured addresses."""
    addresses = {"judge": judge.base_url or OLLAMA_URL, "policy": policy.base_url}
    return [{"role": role, **_describe(folder, role, addresses[role])} for role in ROLES]


def _describe(folder: Path, role: Role, address: str | None) -> dict[str, object]:
    if (state := running_state(folder, role)) is not None:
        host, port = split_address(state.base_url)
        healthy = make_engine(state.engine).is_healthy(ServeRequest(role, state.model, state.name, port, host))
        facts = {name: getattr(state, name) for name in ("engine", "model", "base_url", "log", "started", "supervisor", "server")}
        return {"state": state.phase, "healthy": healthy, **facts}
    left = read_state(folder, role)
    if left is not None and left.phase == "failed":
        return {"state": "failed", "error": left.error, "log": left.log}
    if left is not None:
        return {"state": "killed", "error": f"its supervisor (process {left.supervisor}) was killed", "log": left.log}
    if address and (answers(f"{without_credentials(address).rstrip('/')}{Ollama.health_path}") or list_models(address) is not None):
        return {"state": "foreign", "base_url": without_credentials(address)}
    return {"state": "stopped"}
