"""Names of models and adapters: where each is, and the base that an adapter brings."""

import json
from pathlib import Path

import pytest

from slmsearch.artifacts.directories import hash_files
from slmsearch.config import PolicyConfig
from slmsearch.models.fetch import list_models
from slmsearch.models.hashes import hash_recorded, model_hash, read_base, trained_policy
from slmsearch.models.known import KNOWN, SHIPPED, path_of

ADAPTER = "smollm2-135m-searcher"
BASE = "smollm2-135m-instruct"


def put(folder: Path, base: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    return folder


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_is_taken_from_the_data_directory_first(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("slmsearch.models.known.shipped_models", lambda: tmp_path / "shipped")
    assert path_of(name, tmp_path / "data") == str(tmp_path / "shipped" / name)
    (tmp_path / "data" / "models" / name).mkdir(parents=True)
    assert path_of(name, tmp_path / "data") == str(tmp_path / "data" / "models" / name)


def test_an_adapter_brings_the_known_model_that_it_names(tmp_path: Path) -> None:
    served = PolicyConfig(model="another", adapter="other", dtype="bfloat16", base_url="http://x/v1")
    known, other = put(tmp_path / "known", BASE), put(tmp_path / "other", "/elsewhere/model")
    own = trained_policy(served, str(known))
    assert own == PolicyConfig(model=BASE, adapter=str(known), dtype="bfloat16"), "and is not asked of the server of another model"
    assert trained_policy(served, str(other)) == served.model_copy(update={"adapter": str(other)})
    assert (read_base(known), read_base(put(tmp_path / "none", None)), read_base(tmp_path)) == (BASE, "", None)


def test_an_adapter_that_names_a_known_model_by_its_id_on_the_hub_is_put_on_it(tmp_path: Path) -> None:
    adapter = put(tmp_path / "elsewhere", KNOWN[BASE].hub_id)
    assert trained_policy(PolicyConfig(model="tiny-searcher"), str(adapter)).model == BASE
    own = PolicyConfig(model=KNOWN[BASE].hub_id)
    pinned = PolicyConfig(model=f"{own.model}@0123abc")
    assert [trained_policy(one, str(adapter)).model for one in (own, pinned)] == [own.model, pinned.model], "what the settings name"


def test_adapters_are_listed_with_the_licence_of_their_card_or_else_of_their_base(tmp_path: Path) -> None:
    put(tmp_path / ADAPTER, BASE)
    put(tmp_path / "mine", "/here/models/base")
    for name, card in (("stated", "---\nlicense: cc-by-sa-4.0\n---\n"), ("broken", "---\n{\n---\n"), ("silent", "---\ntags: [a]\n---\n")):
        (put(tmp_path / name, BASE) / "README.md").write_text(card)
    found = {model.name: model for model in list_models(tmp_path, tmp_path)}
    assert [found[name].licence for name in ("stated", "broken", "silent")] == ["cc-by-sa-4.0", "Apache-2.0", "Apache-2.0"]
    shipped, mine = found[ADAPTER], found["mine"]
    assert (shipped.what, shipped.source, shipped.licence) == (f"LoRA adapter of {BASE}", "part of slmsearch", "Apache-2.0")
    assert (mine.what, mine.source, mine.licence) == ("LoRA adapter of base", "unknown", "that of base")
    assert shipped.path == str(tmp_path / ADAPTER) and found[BASE].path is None
    other = {model.name: model.path for model in list_models(tmp_path / "elsewhere", tmp_path)}
    assert other == {**dict.fromkeys(KNOWN), ADAPTER: shipped.path}, "what lies beside the shipped ones belongs to another data directory"


def test_the_record_of_a_model_with_its_adapter_beside_it_has_the_hash_of_the_model(tmp_path: Path) -> None:
    put(tmp_path / "model" / "adapter", BASE)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).write_text(name)
    assert hash_recorded(hash_files(tmp_path / "model")) == model_hash(str(tmp_path / "model"))
