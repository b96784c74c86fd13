"""The escape suite: programs that try to break out, each through a live server, each beside its control.

Each program is run

    tried     with all layers up, through the server's HTTP interface, as a model's would be; afterwards the server must be
              healthy and a harmless program run
    control   without all the layers that stop it, where it must succeed, or the trial proves nothing

Controls are run in instances of their own, without some isolation layers and without any limit of the server's own. No serving code
reaches this module, and the server has no way to remove a layer.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap, BubblewrapInstance
from slmsearch.extensions.sandbox.cgroups import Group
from slmsearch.extensions.sandbox.checks import SCRIPTED_CORPUS, ScriptedTools
from slmsearch.extensions.sandbox.client import SandboxClient
from slmsearch.extensions.sandbox.engine import Instance, SandboxEngine, open_process, wait_for
from slmsearch.extensions.sandbox.escape import EVIDENCE, SETTLE_SECONDS, Escape, Fixture, load_escapes, why_no_control
from slmsearch.extensions.sandbox.execution import Conversation, Execution, order_program
from slmsearch.extensions.sandbox.pool import START_SECONDS
from slmsearch.extensions.sandbox.server import Service, live_server
from slmsearch.extensions.sandbox.sessions import SessionCorpus

LIMITS = ProgramLimits(wall_s=20.0, cpu_s=1, memory_mb=64, calls=8, output_chars=4000)
"""Limits of the server and of all programs, but that each has a time limit of its own."""
THREADS = 3
HARMLESS = "print(search_pages('bridge')[0][0])"
ENVIRONMENT_NAME = "SLMSEARCH_SUITE_SECRET"
LONG_SECONDS = 1_000_000.0
"""Time limit that no program reaches if it ends by itself."""


@dataclass(frozen=True, slots=True)
class EscapeTrial:
    """Result of one escape."""

    name: str
    walls: tuple[str, ...]
    bounded: bool
    escaped: bool
    healthy: bool
    """True if the server reported health afterwards, and ran a harmless program."""
    control: bool | None
    """True if it succeeded without its layers; None: not run."""
    control_note: str
    said: str
    """Result of the program with all layers."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """Results of all escapes."""

    trials: tuple[EscapeTrial, ...]
    engine: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether no program escaped, every control that ran succeeded, and the server stayed healthy."""
        return all(not trial.escaped and trial.control is not False and trial.healthy for trial in self.trials)

    def to_json(self) -> dict[str, object]:
        """Return the counts; no layer is run alone, so all `layers` are empty."""
        trials = self.trials
        return {
            "engine": self.engine,
            "notes": list(self.notes),
            "tried": len(trials),
            "escaped": sum(trial.escaped for trial in trials),
            "controls": sum(trial.control is True for trial in trials),
            "controls_failed": [trial.name for trial in trials if trial.control is False],
            "controls_not_run": {trial.name: trial.control_note for trial in trials if trial.control is None},
            "bounded": [trial.name for trial in trials if trial.bounded],
            "layers": 0,
            "layers_failed": [],
            "healthy": all(trial.healthy for trial in trials),
            "seconds": self.seconds,
            "trials": [{**asdict(trial), "layers": {}} for trial in trials],
        }

    def render(self) -> str:
        """Render the counts."""
        counts = self.to_json()
        healthy = "yes" if counts["healthy"] else "NO"
        lines = [
            f"tried {counts['tried']}, escaped {counts['escaped']}, controls that succeeded {counts['controls']}",
            f"server healthy after each: {healthy} ({self.seconds:.0f} s, {self.engine})",
        ]
        return "\n".join([*lines, *self.notes])


def render_trial(trial: EscapeTrial) -> str:
    """Render one line."""
    control = {True: "succeeds", False: "FAILS", None: f"not run: {trial.control_note}"}[trial.control]
    verdict = "ESCAPED" if trial.escaped else "held"
    return f"{verdict:<7} {trial.name:<26} without {', '.join(trial.walls)}: {control}{'' if trial.healthy else '; UNHEALTHY'}"


def run_suite(
    state_dir: Path,
    escapes: Sequence[Escape] | None = None,
    engine: SandboxEngine | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> SuiteResult:
    """Run escapes.

    Args:
        state_dir: directory of the instances' file system.
        escapes: None takes all.
        engine: the server's; None takes bubblewrap. Controls are run by bubblewrap.
        say: receives a line about each trial.

    Raises:
        SandboxError: there is no engine.
    """
    started = time.monotonic()
    engine = engine or Bubblewrap(LIMITS, state_dir)
    with _open_harness(state_dir, engine) as harness, ThreadPoolExecutor(THREADS) as threads:

        def run(escape: Escape) -> EscapeTrial:
            trial = harness.try_escape(escape)
            say(render_trial(trial))
            return trial

        trials = tuple(threads.map(run, load_escapes() if escapes is None else escapes))
    return SuiteResult(trials, engine.name, engine.notes, time.monotonic() - started)


@dataclass
class Harness:
    """A live server with scripted tools, and the secrets that must not leak from it."""

    address: str
    service: Service
    state_dir: Path
    victim_token: str
    """Token of another user's session."""
    secrets: tuple[str, ...]
    _alone: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._client = SandboxClient(SandboxConfig(base_url=self.address, limits=LIMITS), SCRIPTED_CORPUS)

    def try_escape(self, escape: Escape) -> EscapeTrial:
        """Run one escape and its control."""
        with self._alone, self._fixture(escape, secrets.token_urlsafe(32)) as fixture:
            execution = self._client.execute(fixture.render(escape.program), fixture.limits)
            instance = self.service.pool.latest
            fixture.lingers = instance is not None and not wait_for(lambda: not instance.is_alive(), SETTLE_SECONDS)
            fixture.root = getattr(self.service.pool.engine, "root", None)
            escaped = EVIDENCE[escape.evidence](fixture, execution)
            healthy = self._is_healthy()
        note = why_no_control(escape)
        control = None if note else self._run_control(escape)
        said = (execution.error or execution.stdout.strip() or "(nothing)")[:200]
        return EscapeTrial(escape.name, escape.layers, escape.bounded, escaped, healthy, control, note, said)

    def _run_control(self, escape: Escape) -> bool:
        """Run an escape in an instance of its own, without the layers that stop it; return whether it succeeded."""
        without = frozenset(escape.layers)
        with self._fixture(escape, self.victim_token) as fixture:
            fixture.writable = writable_path(fixture.scratch, without)
            place = fixture.folder / "state" if escape.own_root else self.state_dir
            engine = Weakened(fixture.limits, place, without, fixture.scratch, escape.own_root)
            fixture.root = engine.root
            try:
                instance = engine.start()
                try:
                    instance.wait_until_ready(START_SECONDS)
                    program = fixture.render(escape.program)
                    execution = execute_unbounded(instance, program, fixture.limits, "rlimits" not in without)
                    fixture.lingers = escape.evidence == "lingers" and not wait_for(lambda: not instance.is_alive(), SETTLE_SECONDS)
                finally:
                    instance.terminate()
                return EVIDENCE[escape.evidence](fixture, execution)
            finally:
                engine.close()

    def _fixture(self, escape: Escape, token: str) -> Fixture:
        limits = LIMITS.model_copy(update={"wall_s": escape.wall_s})
        return Fixture(limits, self.address.rpartition(":")[2], token, self.secrets)

    def _is_healthy(self) -> bool:
        answer = httpx.get(f"{self.address}/health", trust_env=False, timeout=30.0)
        return answer.is_success and answer.json()["status"] == "ok" and self._client.execute(HARMLESS).stdout == "bridge\n"


class SecretTools(ScriptedTools):
    """The tools of another user's session: everything they serve is a secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def serve_one(self, call: ToolCall) -> ToolResult:
        """See `ScriptedTools.serve_one`."""
        return ToolResult(self._secret, served=True)


@contextmanager
def _open_harness(state_dir: Path, engine: SandboxEngine) -> Iterator[Harness]:
    """Start a server with another user's session in it, and a secret in its environment and in an open file."""
    secret, victim = secrets.token_hex(12), SessionCorpus(secrets.token_hex(16), "0" * 20, 3)
    os.environ[ENVIRONMENT_NAME] = secret
    with tempfile.TemporaryFile() as file:
        file.write(secret.encode())
        file.flush()
        # Inheritable, as a careless library leaves one; nothing else in this process starts others while the suite runs.
        os.set_inheritable(file.fileno(), True)
        try:
            tools = {victim: SecretTools(victim.corpus)}
            service = Service(SandboxConfig(limits=LIMITS), engine, lambda indexed: tools.get(indexed) or ScriptedTools(), warm=3)
            with live_server(service) as address:
                token = service.sessions.open(victim).token
                yield Harness(address, service, state_dir, token, (secret, victim.corpus))
        finally:
            del os.environ[ENVIRONMENT_NAME]


class Weakened(Bubblewrap):
    """bubblewrap without some of its layers."""

    def __init__(self, limits: ProgramLimits, state_dir: Path, without: Set[str], scratch: Path, own_root: bool = False) -> None:
        """Remove layers.

        Args:
            limits: see `Bubblewrap`.
            state_dir: directory of the instances' file system.
            without: keys of `engine.LAYERS`.
            scratch: directory that can be written to without `read_only`.
            own_root: without `read_only` the instances' file system can be written to; needs a `state_dir` of its own.
        """
        super().__init__(limits, state_dir)
        self._without, self._scratch, self._own_root = without, scratch, own_root
        self._inside = str(self.root) if "root" in without else ""
        if "cgroup" in without and self._groups is not None:
            self._groups.close()
            self._groups = None

    def start(self) -> BubblewrapInstance:
        """See `SandboxEngine.start`."""
        instance = super().start()
        instance.channel.max_message_bytes = instance.channel.max_total_bytes = sys.maxsize
        return instance

    def _open(self, command: list[str], fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        environment = None if "environment" in self._without else dict[str, str]()
        if "descriptors" not in self._without:
            return open_process(command, environment, "/", fds)
        for fd in fds:
            os.set_inheritable(fd, True)
        return open_process(command, environment, "/", close_fds=False)

    def _prelude(self, number: int, group: Group | None) -> list[str]:
        command = super()._prelude(number, group)
        setpriv = command.index(self._setpriv) if self._setpriv in command and "identity" in self._without else len(command)
        return command[:setpriv]

    def _layer_options(self, filter_fd: int) -> dict[str, list[str]]:
        without = self._without | ({"nesting"} if "identity" in self._without else set())
        options = {layer: words for layer, words in super()._layer_options(filter_fd).items() if layer not in without}
        if "root" in without:
            options["root"] = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
        elif self._own_root and "read_only" in without:
            options["root"] = ["--bind", str(self.root), "/"]
        if "read_only" in without:
            options["scratch"] = ["--bind", str(self._scratch), writable_path(self._scratch, without)]
        return options


def writable_path(scratch: Path, without: Set[str]) -> str:
    """Return the path of the writable directory inside a `Weakened` instance."""
    return str(scratch) if "root" in without else "/tmp"


def execute_unbounded(instance: Instance, program: str, limits: ProgramLimits, rlimits: bool) -> Execution:
    """Run a program that ends by itself without clock, count or cut, in an instance that limits no messages; its interpreter lives on.

    The limits are those of its process, where `rlimits` sets them.
    """
    unbounded = limits.model_copy(update={"wall_s": LONG_SECONDS, "calls": sys.maxsize, "output_chars": sys.maxsize})
    order = order_program(program, unbounded)
    return Conversation(instance, ScriptedTools().serve_one, unbounded, 0.0).hold(order if rlimits else {**order, "limits": None})
