"""The escape suite, whole: nothing gets out, and every control does."""

import re
from pathlib import Path
from typing import Any

import pytest

from slmsearch.errors import SandboxError
from slmsearch.extensions.sandbox.engine import LAYERS
from slmsearch.extensions.sandbox.escape import EVIDENCE, Escape, Fixture, load_escapes
from slmsearch.extensions.sandbox.suite import LIMITS as ESCAPE_LIMITS
from slmsearch.extensions.sandbox.suite import EscapeTrial, SuiteResult, render_trial, run_suite

ESCAPES = load_escapes()
SUBJECTS = {
    "files of the host": ("read-host-file", "list-host-folder", "climb-out-of-the-root", "open-by-handle"),
    "environment": ("environment", "environment-of-others"),
    "other processes": ("memory-of-others", "kill-a-process", "command-lines-of-others"),
    "network": ("tcp", "udp", "unix-socket", "abstract-socket"),
    "fork bomb": ("fork-bomb", "thread-bomb"),
    "memory bomb": ("memory-bomb", "mapped-memory-bomb"),
    "disk": ("fill-the-disk", "many-empty-files"),
    "endless": ("endless-loop", "endless-sleep", "endless-output"),
    "signals": ("deaf-to-signals", "signal-the-server"),
    "ptrace": ("ptrace",),
    "/proc and /sys": ("through-proc-self-root", "read-sys", "place-in-the-hierarchy"),
    "symlinks": ("follow-a-symlink",),
    "ctypes": ("bpf", "io-uring", "keyring", "machine-code"),
    "deep recursion": ("deep-recursion",),
    "the runner": ("signal-the-supervisor", "go-on-after-the-answer", "flood-the-channel", "never-read-an-answer"),
    "another session": ("tools-of-another-session",),
    "what stays behind": ("survive-as-a-daemon", "change-the-interpreter", "core-dump"),
}


@pytest.fixture(scope="module")
def suite(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    return run_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def result(suite: SuiteResult) -> dict[str, Any]:
    return suite.to_json()


@pytest.fixture(scope="module")
def trials(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trial["name"]: trial for trial in result["trials"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", [escape.name for escape in ESCAPES])
def test_an_escape_fails_and_succeeds_without_its_walls(name: str, trials: dict[str, dict[str, Any]]) -> None:
    trial = trials[name]
    assert not trial["escaped"], trial
    assert trial["healthy"], trial
    if trial["control"] is None:
        pytest.skip(f"held; its control was not run: {trial['control_note']}")
    assert trial["control"], f"without its layers it must succeed, or it proves nothing: {trial}"


@pytest.mark.slow
def test_the_suite_counts_what_it_did(suite: SuiteResult, result: dict[str, Any]) -> None:
    assert result["tried"] == len(ESCAPES) >= 40
    assert result["escaped"] == 0
    assert result["controls"] + len(result["controls_not_run"]) == result["tried"]
    assert suite.passed


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_tried(subject: str) -> None:
    assert set(SUBJECTS[subject]) <= {escape.name for escape in ESCAPES}


def test_escapes_are_well_formed() -> None:
    names = [escape.name for escape in ESCAPES]
    assert len(names) == len(set(names))
    assert {layer for escape in ESCAPES for layer in escape.layers} == LAYERS.keys(), (
        "a layer that stops nothing is not needed, or not tested"
    )
    assert {escape.evidence for escape in ESCAPES} == set(EVIDENCE)
    for escape in ESCAPES:
        compile(re.sub(r"\$\w+", "x", escape.program), escape.name, "exec")


def test_a_program_does_not_know_what_it_is_to_find(tmp_path: Path) -> None:
    for escape in ESCAPES:
        if escape.evidence == "secret":
            with Fixture(ESCAPE_LIMITS, "1", "t") as fixture:
                assert fixture.secret not in fixture.render(escape.program), escape.name


def test_the_suite_can_fail() -> None:
    trial = EscapeTrial("x", ("root",), False, True, True, True, "", "")
    assert not SuiteResult((trial,)).passed
    assert render_trial(trial).startswith("ESCAPED")
    for broken in (
        EscapeTrial("x", ("root",), False, False, True, False, "", ""),
        EscapeTrial("x", ("root",), False, False, False, True, "", ""),
    ):
        assert not SuiteResult((broken,)).passed
    assert SuiteResult((EscapeTrial("x", ("root",), False, False, True, True, "", ""),)).passed


@pytest.mark.slow
def test_a_program_that_only_says_so_is_seen_through_by_its_control(engine: Any, tmp_path: Path) -> None:
    """A liar is counted as an escape, and one that never succeeds as a failed control."""
    liar = Escape("liar", ("root",), "proof", "print('ESCAPED')")
    idler = Escape("idler", ("root",), "secret", "print('nothing')")
    result = run_suite(tmp_path, [liar, idler]).to_json()
    assert (result["tried"], result["escaped"], result["controls_failed"]) == (2, 1, ["idler"])


def test_unknown_engine_fails_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        run_suite(tmp_path, [])
