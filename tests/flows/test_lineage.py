"""Lineage after real flows: twenty adapters from random inputs, and a byte changed in each kind of input."""

import importlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.cli.commands.results import render
from flows.cli.main import cli
from flows.ops.reproduce import render_comparison, reproduce_version
from flows.ops.runner import FLOWS
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from tasks.lineage import Lineage, Tracked, read_tracked, resolve, trace
from tasks.tracking import CHAMPION, RunRegistry, open_run_registry, open_tracker
from tests.flows.making import Made, make_one
from tests.flows.plain import without_prefect

ADAPTERS = 20


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[list[Made]]:
    home, rng = tmp_path_factory.mktemp("lineage"), random.Random(5)
    with pytest.MonkeyPatch.context() as patch:
        training = without_prefect(patch)
        made = [make_one(home, empty_store, number, rng, training) for number in range(ADAPTERS)]
        yield made


def keys(lineage: Lineage, kind: str) -> set[str]:
    return {step.name[1] for step in lineage.up if step.name[0] == kind and step.node is not None}


def test_from_each_of_twenty_adapters_every_input_is_recovered(history: list[Made]) -> None:
    tracked = read_tracked(history[0].config.paths, history[0].config.tracking)
    for made in history:
        found = trace(tracked, str(made.adapter))
        assert found.name[0] == "adapter"
        assert keys(found, "corpus") == {made.lineage["data_digest"]}
        assert keys(found, "index") == {made.lineage["index_key"]}
        assert keys(found, "training") == {made.lineage["train_key"]}
        assert keys(found, "model") == {made.lineage["base_hash"]}
        assert made.lineage["source_key"] in keys(found, "source")
        assert "embedder" in {step.name[0] for step in found.up}
        training = next(step.node for step in found.up if step.name[0] == "training")
        assert training is not None and training.facts["train.seed"] == str(made.config.train.seed)
        assert float(training.facts["train.learning_rate"]) == made.config.train.learning_rate
        assert training.facts["packages.torch"]
        source = next(step.node for step in found.up if step.name[0] == "corpus")
        assert source is not None and source.facts["source.pages"].endswith("pages.jsonl")
        assert [step.name[1] for step in found.down if step.name[0] == "version"] == [made.version]
        assert found.gaps == []


def test_every_way_of_naming_leads_to_the_same_chain(history: list[Made]) -> None:
    made = history[0]
    name, _, number = made.version.partition("/")
    open_tracker(made.config.paths, made.config.tracking).client.set_registered_model_alias(name, CHAMPION, number)
    tracked = read_tracked(made.config.paths, made.config.tracking)
    for target in (made.version, f"models:/{name}@{CHAMPION}", f"models:/{name}/{number}", f"{name}@{CHAMPION}"):
        assert resolve(tracked, target) == ("version", made.version)
    assert resolve(tracked, made.lineage["adapter_hash"][:12])[0] == "adapter"
    assert resolve(tracked, made.lineage["index_key"][:9]) == ("index", made.lineage["index_key"])
    run = trace(tracked, made.result["mlflow_run_id"][:10])
    assert run.name == ("run", made.result["mlflow_run_id"])
    assert made.lineage["train_key"] in keys(run, "training")
    assert {"version", "eval"} <= {step.name[0] for step in run.up}


def test_downward_from_an_index_are_all_that_stand_on_it(history: list[Made]) -> None:
    key = history[3].lineage["index_key"]
    below = {step.name for step in trace(read_tracked(history[3].config.paths, history[3].config.tracking), key).down}
    for made in history:
        stands = made.lineage["index_key"] == key
        assert (("version", made.version) in below) == stands
        assert (("training", made.lineage["train_key"]) in below) == stands
        for name, value in made.result.get("lineage", {}).items():
            if name.startswith("eval_key") and not name.endswith("champion"):  # which may stand on another index
                assert (("eval", value) in below) == stands


def test_an_evaluation_after_training_stands_on_the_adapter(history: list[Made]) -> None:
    made = history[0]
    found = trace(read_tracked(made.config.paths, made.config.tracking), made.result["lineage"]["eval_key_after"])
    assert made.lineage["train_key"] in keys(found, "training")
    for target in (str(made.adapter), made.version):
        assert ("eval", found.name[1]) in {step.name for step in trace(read_tracked(made.config.paths, made.config.tracking), target).down}


def test_untouched_everything_is_as_recorded(history: list[Made]) -> None:
    found = trace(read_tracked(history[0].config.paths, history[0].config.tracking), history[0].version, again=True)
    assert found.verified is not None
    assert found.verified.changes == () and found.verified.unchecked == ()
    assert {text.split()[0] for text in found.verified.checked} == {"source", "corpus", "index", "model", "eval", "training", "adapter"}
    assert "all as recorded" in render(found)


def flip(path: Path, rng: random.Random) -> None:
    """Change one byte of a file to a printable one."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data))
    data[place] = rng.choice([value for value in range(33, 127) if value != data[place]])
    path.write_bytes(bytes(data))


def corpus_of(made: Made) -> Path:
    return made.config.paths.corpora / made.lineage["data_digest"]


def index_of(made: Made) -> Path:
    return made.config.paths.index / made.lineage["index_key"]


def eval_of(made: Made) -> Path:
    return made.config.paths.evals / made.lineage["eval_key_before"]


PLACES: dict[str, tuple[Callable[[Made], Path], str]] = {
    "source pages": (lambda m: Path(str(m.config.corpus.pages)), "pages"),
    "source questions": (lambda m: Path(str(m.config.corpus.questions)), "questions"),
    "page row": (lambda m: corpus_of(m) / "pages.jsonl", "pages.jsonl"),
    "question row": (lambda m: corpus_of(m) / "questions.jsonl", "questions.jsonl"),
    "vectors": (lambda m: index_of(m) / "vectors.npy", "vectors.npy"),
    "passages": (lambda m: index_of(m) / "passages.jsonl", "passages.jsonl"),
    "base weights": (lambda m: Path(m.config.policy.model) / "model.safetensors", "model"),
    "base settings": (lambda m: Path(m.config.policy.model) / "config.json", "model"),
    "adapter weights": (lambda m: m.adapter / "adapter_model.safetensors", "adapter/adapter_model.safetensors"),
    "adapter settings": (lambda m: m.adapter / "adapter_config.json", "adapter/adapter_config.json"),
    "evaluation rows": (lambda m: eval_of(m) / "rows.jsonl", "rows.jsonl"),
    "episodes": (lambda m: eval_of(m) / "episodes.jsonl", "episodes.jsonl"),
    "metrics": (lambda m: eval_of(m) / "metrics.json", "metrics.json"),
    "train key": (lambda m: m.adapter.parent / "sources.json", "sources.json"),
    "job": (lambda m: m.adapter.parent / "job.json", "job.json"),
    "seal": (lambda m: index_of(m) / "seal.json", "seal.json"),
}


@pytest.fixture(scope="module")
def records(history: list[Made]) -> Tracked:
    return read_tracked(history[0].config.paths, history[0].config.tracking)


@pytest.fixture
def unchanged_records(records: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read MLflow's part once: nothing but files changes."""
    monkeypatch.setattr(RunRegistry, "runs", lambda _: list(records.runs.values()))
    monkeypatch.setattr(RunRegistry, "versions", lambda _: list(records.versions.values()))


@pytest.mark.parametrize("kind", PLACES)
def test_one_changed_byte_is_named(history: list[Made], kind: str, unchanged_records: None) -> None:
    find, named = PLACES[kind]
    made = history[0]
    path, rng = find(made), random.Random(kind)
    before = path.read_bytes()
    try:
        for _ in range(3):
            path.write_bytes(before)
            flip(path, rng)
            verified = trace(read_tracked(made.config.paths, made.config.tracking), made.version, again=True).verified
            assert verified is not None
            hits = [change for change in verified.changes if named in change.what or change.kind == named]
            assert hits, f"nothing named: {[change.describe() for change in verified.changes]}"
    finally:
        path.write_bytes(before)


def test_a_changed_manifest_is_named(history: list[Made]) -> None:
    made = history[0]
    for path in (made.config.paths.index / made.lineage["index_key"], made.config.paths.corpora / made.lineage["data_digest"]):
        manifest = path / "manifest.json"
        before = manifest.read_text()
        manifest.write_text(before.replace('"pages": 30', '"pages": 31'))
        try:
            verified = trace(read_tracked(made.config.paths, made.config.tracking), made.version, again=True).verified
            assert verified is not None and [change.what for change in verified.changes] == ["manifest.json"]
        finally:
            manifest.write_text(before)


def test_other_vectors_in_chroma_are_named(history: list[Made]) -> None:
    made = history[0]
    place = made.config.paths.index / made.lineage["index_key"] / "chroma"
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    vector = np.load(place.parent / "vectors.npy")[7].tobytes()
    other = vector[:2] + bytes([vector[2] ^ 0x40]) + vector[3:]
    assert any(vector in content for content in before.values())
    for path, content in before.items():
        path.write_bytes(content.replace(vector, other))
    try:
        verified = trace(read_tracked(made.config.paths, made.config.tracking), made.version, again=True).verified
        assert verified is not None
        assert [change.what for change in verified.changes] == ["chroma"]
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def test_a_changed_registered_copy_is_named(history: list[Made]) -> None:
    made = history[0]
    registry = open_run_registry(made.config.paths, made.config.tracking)
    assert registry is not None
    copy = registry.fetch_adapter(*made.version.split("/")) / "adapter_model.safetensors"
    before = copy.read_bytes()
    flip(copy, random.Random(1))
    try:
        verified = trace(read_tracked(made.config.paths, made.config.tracking), made.version, again=True).verified
        assert verified is not None
        assert [change.what for change in verified.changes] == ["registered copy"]
    finally:
        copy.write_bytes(before)


def test_copies_of_the_record_that_disagree_are_named(history: list[Made]) -> None:
    made, client = history[0], open_tracker(history[0].config.paths, history[0].config.tracking).client
    name, _, number = made.version.partition("/")
    client.set_model_version_tag(name, number, "slmsearch.eval_key_before", "0" * 20)
    try:
        found = trace(read_tracked(made.config.paths, made.config.tracking), made.version, again=True)
        assert found.verified is not None
        assert any(change.what == "tags" and "eval_key_before" in change.how for change in found.verified.changes)
        assert any("0" * 20 in gap for gap in found.gaps)
    finally:
        client.set_model_version_tag(name, number, "slmsearch.eval_key_before", made.lineage["eval_key_before"])


def test_what_is_gone_is_said_and_not_guessed(history: list[Made]) -> None:
    made = history[1]
    place = made.adapter.parent
    away = place.with_name("away")
    place.rename(away)
    try:
        found = trace(read_tracked(made.config.paths, made.config.tracking), made.version)
        assert f"training {made.lineage['train_key']} is named and is not stored here: pruned, moved, or made elsewhere" in found.gaps
        assert keys(found, "index") == {made.lineage["index_key"]}, "the version's tags still say so"
    finally:
        away.rename(place)


def test_a_version_of_old_says_what_it_does_not_know(history: list[Made], tmp_path: Path) -> None:
    made, tracker = history[0], open_tracker(history[0].config.paths, history[0].config.tracking)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"old")
    with tracker.run("train", "old") as run_id:
        tracker.register_adapter(run_id, tmp_path, "old", {"slmsearch.adapter_hash": "f" * 64})
    found = trace(read_tracked(made.config.paths, made.config.tracking), "old/1", again=True)
    assert [gap for gap in found.gaps if "it carries no tag slmsearch.train_key" in gap]
    assert [gap for gap in found.gaps if "it carries no tag slmsearch.data_digest" in gap]


def test_a_name_of_nothing_and_of_too_much_are_one_line(history: list[Made]) -> None:
    config = history[0].config
    with pytest.raises(ConfigError, match="names nothing known here; give an adapter's directory"):
        trace(read_tracked(config.paths, config.tracking), "no-such-model/7")
    with pytest.raises(ConfigError, match="names nothing"):
        trace(read_tracked(config.paths, config.tracking), "zz")


def test_the_command_prints_the_chain_and_fails_on_a_change(
    history: list[Made], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = history[0]
    places = [f"--paths.{name}={value}" for name, value in made.config.paths.model_dump().items()]

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            cli([*arguments, *places], prog_name="slmsearch")
        return int(ended.value.code or 0), capfd.readouterr().out

    code, out = run("lineage", made.version)
    assert code == 0 and made.lineage["train_key"] in out
    assert made.lineage["data_digest"] in out and "made from it:" in out
    code, out = run("lineage", made.version, "--verify", "--json")
    assert code == 0 and json.loads(out)["verified"]["changes"] == []
    weights = made.adapter / "adapter_model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(b"other")
    try:
        code, out = run("lineage", made.version, "--verify")
        assert code == 1 and "adapter/adapter_model.safetensors was changed since it was written" in out
    finally:
        weights.write_bytes(before)


@pytest.fixture
def here(history: list[Made], monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Iterator[Any]:
    """Run flows in this process without Prefect; gives what stands for training."""
    with pytest.MonkeyPatch.context() as patch:
        training = without_prefect(patch)

        def run_flow(name: str, config: RunConfig, say: Any, here: bool) -> dict[str, Any]:
            assert here
            Path(config.paths.mlruns_dir).mkdir(parents=True)
            shutil.copy(empty_store, Path(config.paths.mlruns_dir) / "mlflow.db")
            module, _, function = FLOWS[name].partition(":")
            result: dict[str, Any] = getattr(importlib.import_module(module), function).fn(config)
            return result

        monkeypatch.setattr("flows.ops.reproduce.run_flow", run_flow)
        yield training


@pytest.mark.parametrize("number", [0, 1])
def test_a_version_is_reproduced_from_what_was_recorded(history: list[Made], here: Any, number: int, tmp_path: Path) -> None:
    made = history[number]
    here.content = f"adapter {number}".encode()
    found = reproduce_version(made.config, made.version, None, lambda _: None)
    assert found.same, [item for item in found.items if not item.same]
    items = {item.name: item for item in found.items}
    assert items["adapter_hash"].again == made.lineage["adapter_hash"]
    assert items["data_digest"].same and items["index_key"].same and items["train_key"].same
    assert items["train: reward/mean"].same
    assert ("evaluate-after: answer/exact_match" in items) == (number == 0)
    assert not list(Path(made.config.paths.data_dir).glob("reproduce-*"))
    assert "reproduced" in render_comparison(found)


def test_another_adapter_is_not_reproduced(history: list[Made], here: Any, tmp_path: Path) -> None:
    here.content = b"something else"
    found = reproduce_version(history[1].config, history[1].version, tmp_path / "again", lambda _: None)
    assert not found.same
    assert [item.name for item in found.items if not item.same] == ["adapter_hash"]
    assert "DIFFERENT  adapter_hash" in render_comparison(found)
    with pytest.raises(ConfigError, match="is not empty"):
        reproduce_version(history[1].config, history[1].version, tmp_path / "again", lambda _: None)


def test_only_versions_are_reproduced(history: list[Made]) -> None:
    with pytest.raises(ConfigError, match="give a model version"):
        reproduce_version(history[0].config, history[0].lineage["index_key"], None, lambda _: None)


def test_reproducing_imports_no_prefect_before_its_server_is_there() -> None:
    """Prefect reads its address when it is imported, and would start a server of its own otherwise."""
    program = "import sys, flows.ops.reproduce, flows.cli.commands.results; sys.exit('prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2]).returncode == 0
