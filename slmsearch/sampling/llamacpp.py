"""llama.cpp as an engine: it plays a GGUF in a child process, by token ids.

The child runs llama.cpp's own server (package `xllamacpp`, extra `llamacpp`), on loopback. What a turn is depends a
little on the turns that are written beside it, because llama.cpp multiplies batches of different sizes in different ways.
"""

import fcntl
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slmsearch.episodes.chat_renderer import require_context
from slmsearch.episodes.sampler import Message, SampledTurn, Sampling
from slmsearch.errors import ModelError, ServiceError
from slmsearch.foreign import cause_of
from slmsearch.processes.call import Child
from slmsearch.sampling.engine_sampler import Completion, CompletionRequest, EngineSampler

SLOTS = 8
"""Turns that are written at once; each has a cache of its own."""
CONTEXT = 4096
"""Largest number of tokens of an episode with its prompt; fewer if the model has learnt fewer. An episode that fills it ends there."""
TIMEOUT_S = 600.0
"""Time limit for one turn, in seconds."""
WHOLE = {"samplers": ["temperature"], "mirostat": 0}
"""Sampling from the model's own distribution, whatever the file asks for."""


def require_llamacpp() -> None:
    """Check that llama.cpp is installed.

    Raises:
        ModelError: it is not; the message holds the command that installs it.
    """
    if find_spec("xllamacpp") is None:
        raise ModelError("a GGUF is played by llama.cpp, which is not installed: pip install -e '.[llamacpp]'")


def is_loaded(path: Path) -> bool:
    """Return True if a `LlamaCppEngine` of some process plays a GGUF."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # a lock, or a file system on which nobody can tell
        return True
    return False


class LlamaCppEngine:
    """A GGUF that llama.cpp has loaded in a child process; it ends with this object."""

    def __init__(self, path: str, cpu: bool = False) -> None:
        """Start the child and load the file.

        Args:
            path: GGUF file.
            cpu: use no GPU even where there is one.

        Raises:
            ModelError: llama.cpp is not installed, or does not read the file.
            ServiceError: the child has died, for want of memory above all.
        """
        require_llamacpp()
        self._child = Child()
        weakref.finalize(self, self._child.stop)
        self._place = (str(Path(path).absolute()), cpu)
        _, self.context = self._child.call(open_server, *self._place)
        self._file = Path(path).open("rb")  # noqa: SIM115 it stays open with the lock, for `is_loaded`
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_SH)

    @property
    def address(self) -> str:
        """Return the address of its server, on loopback; a child that has died is started again."""
        return self._child.call(open_server, *self._place)[0]

    @property
    def pid(self) -> int | None:
        """Return the process id of the child while it runs."""
        return self._child.pid

    def complete(self, requests: Sequence[CompletionRequest], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`. It tells no log-probabilities: llama.cpp has none of the tokens of a stop text.

        Raises:
            ServiceError: the child has died meanwhile, or llama.cpp refuses a turn; the next call begins anew.
        """
        bodies = [
            {
                "prompt": list(request.history),
                "n_predict": request.max_tokens,
                "temperature": temperature,
                "seed": request.seed,
                "stop": list(request.stop),
                "return_tokens": True,
                **WHOLE,
            }
            for request in requests
        ]
        return [Completion(tuple(ids), ()) for ids in self._child.call(write_turns, *self._place, bodies)]


class LlamaCppSampler(EngineSampler):
    """A sampler of turns whose episodes end where they fill llama.cpp's context."""

    def __init__(self, engine: LlamaCppEngine, tokenizer: Any, tool_role: str) -> None:
        """See `EngineSampler`."""
        super().__init__(engine, tokenizer, tool_role)
        self._context = engine.context

    def open(self, prompts: Sequence[Sequence[Message]], sampling: Sampling) -> list[tuple[int, ...]]:
        """See `Sampler.open`."""
        ids = super().open(prompts, sampling)
        longest = max(map(len, ids), default=0)
        require_context(self._context, longest + 1, "the longest prompt with a first token", "shorten the system prompt")
        return ids

    def sample(self, rows: Sequence[int], results: Sequence[str | None], room: Sequence[int]) -> list[SampledTurn]:
        """See `Sampler.sample`."""
        within = [min(left, self._context - len(self._histories[row])) for row, left in zip(rows, room, strict=True)]
        return super().sample(rows, results, within)


_running: list[Any] = []
"""The child's server; it runs as long as the process."""
_servers: list[tuple[str, int]] = []
"""Its address and context."""


def open_server(path: str, cpu: bool) -> tuple[str, int]:
    """Return the address of the server of this process, and the tokens of its context; start it if it does not run.

    Raises:
        ModelError: llama.cpp does not read the file.
    """
    if _servers:
        return _servers[0]
    import xllamacpp
    from gguf import GGUFReader

    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.n_parallel, settings.verbosity, settings.warmup = SLOTS, 0, False
    settings.endpoint_slots = False  # it shows the prompts to every user of the machine
    try:
        fields = GGUFReader(path).fields
        learnt = fields[f"{fields['general.architecture'].contents()}.context_length"].contents()
        context = min(CONTEXT, int(learnt))
        settings.n_ctx, settings.cache_ram_mib = SLOTS * context, 0  # slots that are taken over are computed again, and fill no memory
        if cpu:
            settings.n_gpu_layers = 0
        _running.append(xllamacpp.Server(settings))
    except Exception as error:  # of a binary file any, and llama.cpp raises its own
        raise ModelError(f"llama.cpp cannot load {path}: {cause_of(error)}") from error
    _servers.append((str(_running[0].listening_address), context))
    return _servers[0]


def write_turns(path: str, cpu: bool, bodies: Sequence[Mapping[str, object]]) -> list[list[int]]:
    """Let the server of this process write turns; return the ids of each, with those of the end or the stop text.

    Raises:
        ServiceError: it refuses one.
    """
    import httpx

    with httpx.Client(base_url=open_server(path, cpu)[0], timeout=TIMEOUT_S, trust_env=False) as client, ThreadPoolExecutor(SLOTS) as pool:

        def write(body: Mapping[str, object]) -> list[int]:
            try:
                reply = client.post("/completion", json=body)
            except httpx.HTTPError as error:
                raise ServiceError(f"llama.cpp did not write a turn: {cause_of(error)}") from error
            if reply.status_code != 200:
                raise ServiceError(f"llama.cpp refused a turn: {cause_of(reply.text)}")
            return list(reply.json()["tokens"])

        return list(pool.map(write, bodies))
