"""The escape suite: programs that try to get out, each through a live server, each beside its control.

Each program is run

    tried     with all layers up, through the server's HTTP interface, as a model's would be; afterwards the server must be
              healthy and a harmless program run
    control   with all the layers that stop it down, where it must succeed, or it proves nothing
    layers    with each of those layers up alone, where it must fail: every layer that is named holds by itself

Controls and layers are run in instances of their own, one process each; the server knows no way to take a layer down.
"""

import os
import platform
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from slmsearch.config import ProgramLimits, SandboxConfig
from slmsearch.sandbox.bubblewrap import Bubblewrap
from slmsearch.sandbox.client import SandboxClient
from slmsearch.sandbox.engine import Engine, Instance, Usage
from slmsearch.sandbox.escape import EVIDENCE, Escape, load_escapes, overtime, read_outcome, why_no_control
from slmsearch.sandbox.execution import execute_program
from slmsearch.sandbox.layers import ALL_LAYERS, Layer
from slmsearch.sandbox.pool import START_SECONDS
from slmsearch.sandbox.scripted import SCRIPTED_CORPUS, ScriptedTools
from slmsearch.sandbox.server import Service, describe_execution, live_server
from slmsearch.sandbox.sessions import IndexedCorpus
from slmsearch.sandbox.stage import Stage, wait_for

LIMITS = ProgramLimits(wall_s=20.0, cpu_s=1, memory_mb=64, calls=8, output_chars=4000)
"""Of the server and of all programs, but that each has a time limit of its own."""
THREADS = 3
HARMLESS = "print(search_pages('bridge')[0][0])"
ENVIRONMENT_NAME = "SLMSEARCH_SUITE_SECRET"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one escape."""

    name: str
    walls: tuple[str, ...]
    bounded: bool
    escaped: bool
    healthy: bool
    """The server said so afterwards, and ran a harmless program."""
    control: bool | None
    """It succeeded with its layers down; None: not run."""
    control_note: str
    layers: dict[str, bool]
    """Layer -> it got through although that one was up."""
    said: str
    """What the program came to with all layers up."""


def run_suite(
    state_dir: Path, escapes: Sequence[Escape] | None = None, engine: Engine | None = None, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Run escapes; return `tried`, `escaped`, `controls`, `layers`, `healthy` and one trial each.

    Args:
        state_dir: where the instances' file system is kept.
        escapes: None takes all.
        engine: the server's; None takes bubblewrap. Controls are run by bubblewrap.
        say: told each trial.

    Raises:
        SandboxError: there is no engine.
    """
    started = time.monotonic()
    chosen = load_escapes() if escapes is None else list(escapes)
    with _open_fixture(state_dir, engine) as fixture_, ThreadPoolExecutor(THREADS) as threads:

        def run(escape: Escape) -> Trial:
            trial = fixture_.try_escape(escape)
            say(render_trial(trial))
            return trial

        trials = list(threads.map(run, chosen))
        facts = {"engine": fixture_.engine.name, "notes": list(fixture_.engine.notes)}
    return {**facts, **summarise(trials), "seconds": time.monotonic() - started, "trials": [asdict(trial) for trial in trials]}


def summarise(trials: Sequence[Trial]) -> dict[str, Any]:
    """Count."""
    return {
        "tried": len(trials),
        "escaped": sum(trial.escaped for trial in trials),
        "controls": sum(trial.control is True for trial in trials),
        "controls_failed": [trial.name for trial in trials if trial.control is False],
        "controls_not_run": {trial.name: trial.control_note for trial in trials if trial.control is None},
        "bounded": [trial.name for trial in trials if trial.bounded],
        "layers": sum(len(trial.layers) for trial in trials),
        "layers_failed": [f"{trial.name} with {layer} alone" for trial in trials for layer, through in trial.layers.items() if through],
        "healthy": all(trial.healthy for trial in trials),
    }


def has_passed(result: dict[str, Any]) -> bool:
    """Say whether nothing escaped, every control that was run succeeded, every layer held, and the server stayed healthy."""
    return not (result["escaped"] or result["controls_failed"] or result["layers_failed"]) and bool(result["healthy"])


def render_trial(trial: Trial) -> str:
    """Render one line."""
    control = {True: "succeeds", False: "FAILS", None: f"not run: {trial.control_note}"}[trial.control]
    through = [layer for layer, passed in trial.layers.items() if passed]
    layers = f"; DOES NOT HOLD ALONE: {', '.join(through)}" if through else ""
    verdict = "ESCAPED" if trial.escaped else "held"
    return f"{verdict:<7} {trial.name:<26} without {', '.join(trial.walls)}: {control}{layers}{'' if trial.healthy else '; UNHEALTHY'}"


def render_result(result: dict[str, Any]) -> str:
    """Render the counts."""
    lines = [
        f"tried {result['tried']}, escaped {result['escaped']}, controls that succeeded {result['controls']}",
        f"layers that were left alone to stop one {result['layers']}, did not {len(result['layers_failed'])}",
        f"server healthy after each: {'yes' if result['healthy'] else 'NO'} ({result['seconds']:.0f} s, {result['engine']})",
    ]
    return "\n".join([*lines, *result["notes"]])


class Fixture:
    """A live server and what the escapes know of it."""

    def __init__(self, address: str, engine: "Watch", state_dir: Path, known: dict[str, str], secrets_: tuple[str, ...]) -> None:
        self.engine = engine
        self._address, self._state_dir, self._known, self._secrets = address, state_dir, known, secrets_
        self._client = SandboxClient(SandboxConfig(base_url=address, limits=LIMITS), SCRIPTED_CORPUS)
        self._alone = threading.Lock()

    def try_escape(self, escape: Escape) -> Trial:
        """Run one escape, its control and its layers."""
        with self._alone, self._stage(escape, ALL_LAYERS) as stage:
            answer = self._client.execute(stage.render(escape.program), stage.limits)
            lingers = not wait_for(self.engine.all_used_are_dead)
            escaped = EVIDENCE[escape.evidence](stage, read_outcome(answer, self.engine.root, lingers))
            healthy = self._is_healthy()
        named, note, layers = frozenset(escape.layers), why_no_control(escape), {}
        control = None if note else self._run_without(escape, ALL_LAYERS - named)
        if control and len(named) > 1:
            standing = [layer for layer in escape.layers if layer in self.engine.layers]  # a machine may have no cgroups
            layers = {layer.value: self._run_without(escape, (ALL_LAYERS - named) | {layer}) for layer in standing}
        said = (answer["error"] or answer["stdout"].strip() or "(nothing)")[:200]
        return Trial(escape.name, escape.layers, escape.bounded, escaped, healthy, control, note, layers, said)

    def _run_without(self, escape: Escape, layers: frozenset[Layer]) -> bool:
        """Run an escape in an instance of its own, behind some of the layers; say whether it succeeded."""
        with self._stage(escape, layers) as stage:
            place = stage.folder / "state" if escape.own_root else self._state_dir
            engine = Bubblewrap(stage.limits, place, layers, stage.scratch, escape.own_root)
            try:
                instance = engine.start()
                try:
                    instance.wait_until_ready(START_SECONDS)
                    execution = execute_program(instance, stage.render(escape.program), ScriptedTools().serve_one, stage.limits, layers)
                    lingers = escape.evidence == "lingers" and not wait_for(lambda: not instance.is_alive())
                finally:
                    instance.terminate()
                return EVIDENCE[escape.evidence](stage, read_outcome(describe_execution(execution), engine.root, lingers))
            finally:
                engine.close()

    def _stage(self, escape: Escape, layers: frozenset[Layer]) -> Stage:
        limits = LIMITS.model_copy(update={"wall_s": escape.wall_s})
        token = self._known["token"] if Layer.TOKEN not in layers else secrets.token_urlsafe(32)
        known = {**self._known, "token": token, **overtime(limits)}
        return Stage(layers, limits, known, self._secrets)

    def _is_healthy(self) -> bool:
        answer = httpx.get(f"{self._address}/health", trust_env=False, timeout=30.0)
        harmless = self._client.execute(HARMLESS)
        return answer.status_code == httpx.codes.OK and answer.json()["status"] == "ok" and harmless["stdout"] == "bridge\n"


class Watch:
    """An engine that remembers which instances were used."""

    def __init__(self, engine: Engine) -> None:
        self.name, self.layers, self.notes = engine.name, engine.layers, engine.notes
        self.root: Path | None = getattr(engine, "root", None)
        self._engine = engine
        self._instances: list[_WatchedInstance] = []

    def start(self) -> Instance:
        """See `Engine.start`."""
        instance = _WatchedInstance(self._engine.start())
        self._instances.append(instance)
        return instance

    def start_reaper(self) -> "subprocess.Popen[bytes]":
        """See `Engine.start_reaper`."""
        return self._engine.start_reaper()

    def close(self) -> None:
        """See `Engine.close`."""
        self._engine.close()

    def all_used_are_dead(self) -> bool:
        """Say whether no instance that had a program lives."""
        self._instances = [instance for instance in self._instances if not instance.used or instance.is_alive()]
        return not any(instance.used for instance in self._instances)


class _WatchedInstance:
    def __init__(self, instance: Instance) -> None:
        self._instance, self.used, self.channel = instance, False, instance.channel

    def wait_until_ready(self, timeout_s: float) -> None:
        self._instance.wait_until_ready(timeout_s)
        self.used = True

    def usage(self) -> Usage:
        return self._instance.usage()

    def is_alive(self) -> bool:
        return self._instance.is_alive()

    def kill(self) -> None:
        self._instance.kill()

    def terminate(self) -> bool:
        return self._instance.terminate()


@contextmanager
def _open_fixture(state_dir: Path, engine: Engine | None) -> Iterator[Fixture]:
    """Start a server with scripted tools, somebody else's session in it, and a secret in its environment and in an open file."""
    suite_secret, victim_corpus = secrets.token_hex(12), IndexedCorpus(secrets.token_hex(16), "0" * 20, 3)
    os.environ[ENVIRONMENT_NAME] = suite_secret
    with tempfile.TemporaryFile() as file:
        file.write(suite_secret.encode())
        file.flush()
        # Inheritable, as a careless library leaves one; nothing else in this process starts others while the suite runs.
        os.set_inheritable(file.fileno(), True)
        try:
            watch = Watch(engine or Bubblewrap(LIMITS, state_dir))
            service = Service(SandboxConfig(limits=LIMITS), watch, lambda indexed: ScriptedTools(), warm=3)
            with live_server(service) as address:
                known = {
                    "server_port": address.rpartition(":")[2],
                    "server_pid": str(os.getpid()),
                    "token": service.sessions.open(victim_corpus).token,
                    "machine": platform.machine(),
                }
                yield Fixture(address, watch, state_dir, known, (suite_secret, victim_corpus.corpus))
        finally:
            del os.environ[ENVIRONMENT_NAME]
