"""Secrets stay where they are put: whatever a setting is given by, and whether it fits or not, no command writes it anywhere."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli.main import cli
from flows.runtime.settings import load_config, loggable, recordable, secret_settings

MARKER = "PLANTEDSECRET"
Invoke = Callable[..., tuple[int, str]]
KEYS = (
    "judge.api_key",
    "nightly.webhook",
    "planner.worker.api_key",
    "policy.api_key",
    "retrieval.chroma_token",
    "retrieval.embedder.api_key",
    "sandbox.token",
)
ADDRESSES = (
    "judge.base_url", "planner.worker.base_url", "policy.base_url", "retrieval.chroma_url",
    "retrieval.embedder.base_url", "sandbox.base_url", "tracking.uri",
)  # fmt: skip
WAYS = ("file", "flag", "variable")


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Set one setting in one way and run a command; return its exit code and all that it printed."""

    def run(name: str, value: object, way: str, *command: str) -> tuple[int, str]:
        more: list[str] = []
        text = value if isinstance(value, str) else json.dumps(value)
        if way == "file":
            nested: object = value
            for part in reversed(name.split(".")):
                nested = {part: nested}
            file = tmp_path / "settings.yaml"
            file.write_text(json.dumps(nested))
            more = ["--config", str(file)]
        elif way == "flag":
            more = [f"--{name}={text}"]
        else:
            monkeypatch.setenv("SLMSEARCH_" + name.upper().replace(".", "__"), text)
        with pytest.raises(SystemExit) as ended:
            cli([*command, *more], prog_name="slmsearch")
        assert ended.value.code is None or isinstance(ended.value.code, int)
        return ended.value.code or 0, "".join(capfd.readouterr())

    return run


def written(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def test_these_are_all_settings_that_are_secret_by_their_type() -> None:
    assert secret_settings() == set(KEYS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*KEYS, *ADDRESSES])
def test_a_setting_is_printed_and_recorded_without_its_secret(invoke: Invoke, isolated_environment: Path, name: str, way: str) -> None:
    value = MARKER if name in KEYS else f"http://user:{MARKER}@127.0.0.1:9/v1"
    code, printed = invoke(name, value, way, "config")
    assert code == 0, printed
    assert MARKER not in printed
    assert MARKER not in written(isolated_environment)
    config = load_config(overrides=[f"--{name}={value}"], environment={})
    assert MARKER not in json.dumps([loggable(config), recordable(config)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("value", [[MARKER], {"key": MARKER}], ids=["list", "mapping"])
def test_a_secret_of_the_wrong_type_is_not_repeated(invoke: Invoke, isolated_environment: Path, name: str, way: str, value: object) -> None:
    code, printed = invoke(name, value, way, "config")
    assert MARKER not in printed
    if way == "file":
        assert code == 2 and name in printed, "the setting is named"
    assert MARKER not in written(isolated_environment)


REFUSED = {
    "retrieval.chroma_url": f"ftp://user:{MARKER}@host",
    "evaluate.policy": f"openai:m@http://user:{MARKER}@127.0.0.1:9/v1",
    "evaluate.baselines": [f"openai:m@http://user:{MARKER}@127.0.0.1:9/v1"],
}


@pytest.mark.parametrize(
    ("name", "value", "way"),
    [*((name, value, way) for name, value in REFUSED.items() for way in WAYS), ("evaluate.policy", {"webhook": [MARKER]}, "file")],
)
def test_what_is_refused_is_named_without_its_secret(
    invoke: Invoke, isolated_environment: Path, name: str, value: object, way: str
) -> None:
    code, printed = invoke(name, value, way, "evaluate")
    assert code == 2, printed
    assert MARKER not in printed
    assert MARKER not in written(isolated_environment), "it is refused before a run of Prefect or MLflow holds it"


def test_a_broken_file_is_not_quoted(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(f'judge:\n  api_key: "{MARKER}\n')
    code, printed = invoke("train.steps", "1", "flag", "config", "--config", str(file))
    assert code == 2 and "broken.yaml" in printed
    assert MARKER not in printed
