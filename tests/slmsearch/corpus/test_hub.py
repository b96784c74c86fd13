"""Data sets of the Hub, read from a stand-in on loopback: names, keys, commits, licence, and what is said without a network."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slmsearch.config import CorpusConfig, PlannerConfig
from slmsearch.corpus import store
from slmsearch.corpus.hub import HubName, parse_hub_name
from slmsearch.corpus.packages import Origin
from slmsearch.corpus.sources import load_source, source_parts
from slmsearch.corpus.store import build_corpus, read_manifest
from slmsearch.environments.planner.problem_sources import problems_parts
from slmsearch.errors import CorpusError
from tests.slmsearch.corpus.hub import StandIn, serving

NAME = "rajpurkar/squad"
OLD, NEW = "a" * 40, "b" * 40
CARD = """---
license: cc-by-sa-4.0
configs:
- config_name: plain_text
  data_files:
  - split: train
    path: plain_text/train-*
  - split: validation
    path: plain_text/validation-*
---
# SQuAD
"""


def row(text: str, question_id: str = "q1") -> dict[str, Any]:
    answers = {"text": ["Poland"], "answer_start": [text.index("Poland")]}
    return {"id": question_id, "title": "Frédéric_Chopin", "context": text, "question": "Where was he born?", "answers": answers}


def files(*rows: dict[str, Any], card: str = CARD, validation: str = "Poland is where he was born.") -> dict[str, bytes]:
    def parquet(*rows: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(list(rows)), buffer)
        return buffer.getvalue()

    parts = {"train": parquet(*rows), "validation": parquet(row(validation))}
    data = {f"plain_text/{split}-00000-of-00001.parquet": content for split, content in parts.items()}
    return {".gitattributes": b"*.parquet binary\n", "README.md": card.encode(), **data}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    with serving() as served:
        for module, name, value in (
            ("huggingface_hub.constants", "HF_HUB_OFFLINE", False),
            ("huggingface_hub.constants", "ENDPOINT", served.url),
            ("huggingface_hub.constants", "HUGGINGFACE_CO_URL_TEMPLATE", served.url + "/{repo_id}/resolve/{revision}/{filename}"),
            ("huggingface_hub.constants", "HF_HUB_CACHE", str(tmp_path / "hub")),
            ("datasets.config", "HF_HUB_OFFLINE", False),
            ("datasets.config", "HF_ENDPOINT", served.url),
            ("datasets.config", "HF_DATASETS_CACHE", str(tmp_path / "datasets")),
        ):
            monkeypatch.setattr(f"{module}.{name}", value)
        served.put(NAME, OLD, files(row("He was born in Poland.")))
        yield served


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)


def configured(name: str = f"hub:{NAME}") -> CorpusConfig:
    return CorpusConfig(pages=name, questions=name)


def content(name: str) -> str:
    return load_source(configured(name))[0][0].content


def test_a_set_is_fetched_once_and_found_again(hub: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = build_corpus(configured(), tmp_path / "corpora")
    ((question, _),) = store.read_questions(tmp_path / "corpora" / digest)
    assert (question.id, question.answer, question.section_ids) == ("q1", "Poland", ("frédéric_chopin:section_1",))
    assert len([path for path in hub.asked if path.endswith(f"{OLD}/plain_text/train-00000-of-00001.parquet")]) <= 2  # HEAD, GET
    monkeypatch.setattr(store, "load_source", None)
    assert build_corpus(configured(), tmp_path / "corpora") == digest
    go_offline(monkeypatch)
    hub.asked.clear()
    assert build_corpus(configured(), tmp_path / "corpora") == digest
    assert hub.asked == []


@pytest.mark.usefixtures("hub")
def test_the_manifest_names_licence_and_set(tmp_path: Path) -> None:
    manifest = read_manifest(tmp_path / build_corpus(configured(), tmp_path))
    said = "the Hugging Face data set rajpurkar/squad at commit aaaaaaaaaaaa; its card names the authors"
    assert manifest.origin == {"licence": "cc-by-sa-4.0", "attribution": said}


@pytest.mark.parametrize(
    ("stated", "licence"),
    [
        ("license: [mit, cc-by-4.0]", "mit, cc-by-4.0"),
        ("license: other\nlicense_name: my-terms", "my-terms"),
        ("license: unknown", None),
        ("license: other", None),
        ("pretty_name: SQuAD", None),
    ],
)
def test_a_licence_is_taken_as_the_card_states_it(hub: StandIn, stated: str, licence: str | None) -> None:
    hub.put(NAME, NEW, files(row("He was born in Poland."), card=CARD.replace("license: cc-by-sa-4.0", stated)))
    origin = parse_hub_name(f"hub:{NAME}").find_origin()
    assert (origin and origin.licence) == licence


def test_two_origins_are_both_named(hub: StandIn, tmp_path: Path) -> None:
    hub.put("acme/asked", OLD, files(row("He was born in Poland."), card=CARD.replace("cc-by-sa-4.0", "mit")))
    config = CorpusConfig(pages=f"hub:{NAME}", questions="hub:acme/asked")
    origin = read_manifest(tmp_path / build_corpus(config, tmp_path)).origin
    assert origin is not None and origin["licence"] == "cc-by-sa-4.0; mit"
    assert origin["attribution"].count("at commit") == 2
    assert parse_hub_name("hub:acme/asked").find_origin() == Origin("mit", origin["attribution"].partition("authors; ")[2])


def test_subset_split_and_commit_are_read_and_part_of_the_key(hub: StandIn) -> None:
    hub.put(NAME, NEW, files(row("Now Poland is written otherwise.")))
    names = [NAME, f"{NAME}@{OLD}", f"{NAME}/plain_text", f"{NAME}:validation", f"{NAME}/plain_text:validation@{OLD}"]
    found = [content(f"hub:{name}").partition("Section 1\n\n")[2].strip() for name in names]
    newest, old, validation = "Now Poland is written otherwise.", "He was born in Poland.", "Poland is where he was born."
    assert found == [newest, old, newest, validation, validation]
    keys = [parse_hub_name(f"hub:{name}").fingerprint() for name in names]
    assert None not in keys and len(set(keys)) == len(names)
    assert keys[0] == parse_hub_name(f"hub:{NAME}@main").fingerprint() == parse_hub_name(f"hub:{NAME}@{NEW}").fingerprint()


def test_a_branch_that_moves_on_is_another_key(hub: StandIn) -> None:
    before = source_parts(configured(f"hub:{NAME}@main"))
    hub.put(NAME, NEW, files(row("Now Poland is written otherwise.")))
    after = source_parts(configured(f"hub:{NAME}@main"))
    assert before and after and before["sources"] != after["sources"]


@pytest.mark.usefixtures("hub")
def test_a_split_is_part_of_the_key_of_problems() -> None:
    train, validation = (problems_parts(PlannerConfig(problems=f"hub:{NAME}{split}")) for split in ("", ":validation"))
    assert train is not None and "split" not in train and validation == {**train, "split": "validation"}


def test_a_local_folder_has_a_key_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}\n")
    before = parse_hub_name(f"hub:{tmp_path}").fingerprint()
    (tmp_path / "train.jsonl").write_text('{"a": 1}\n')
    assert before != parse_hub_name(f"hub:{tmp_path}").fingerprint()


@pytest.mark.parametrize("missing", ["acme/none", f"{NAME}@{NEW}", f"{NAME}/fancy", f"{NAME}:test"])
@pytest.mark.usefixtures("hub")
def test_what_the_hub_does_not_have_is_one_line(missing: str) -> None:
    with pytest.raises(
        CorpusError, match=r"^hub:\w+/\w+ cannot be loaded \(.+\); check the name, go online once, or give local files$"
    ) as raised:
        load_source(configured(f"hub:{missing}"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("card", ["license: [a, b", "- a", "configs: 3"])
def test_a_broken_card_is_one_line(hub: StandIn, card: str) -> None:
    hub.put(NAME, NEW, files(row("He was born in Poland."), card=f"---\n{card}\n---\n"))
    with pytest.raises(CorpusError, match=f"^hub:{NAME} cannot be loaded"):
        load_source(configured())
    origin = parse_hub_name(f"hub:{NAME}").find_origin()
    assert origin is None


def test_another_commit_in_the_cache_does_not_stand_in(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    load_source(configured())
    hub.put(NAME, NEW, files(row("Now Poland is written otherwise.")))
    parse_hub_name(f"hub:{NAME}@{NEW}").fetch_card()
    go_offline(monkeypatch)
    with pytest.raises(CorpusError, match="the Hub does not answer, and the cache holds another commit than bbbbbbbbbbbb"):
        load_source(configured(f"hub:{NAME}@{NEW}"))
    assert "He was born" in content(f"hub:{NAME}@{OLD}")


def test_a_hub_name_carries_subset_split_and_commit(tmp_path: Path) -> None:
    assert parse_hub_name("hub:owner/name") == HubName("owner/name")
    assert parse_hub_name("hub:owner/name@abc") == HubName("owner/name", None, "abc")
    assert parse_hub_name("hub:owner/name/sub@abc") == HubName("owner/name", "sub", "abc")
    assert parse_hub_name("hub:owner/name/sub:dev@refs/pr/1") == HubName("owner/name", "sub", "refs/pr/1", "dev")
    assert parse_hub_name("hub:owner/name:train[:100]") == HubName("owner/name", None, None, "train[:100]")
    assert parse_hub_name("hub:openai/gsm8k") == HubName("openai/gsm8k", "main")
    assert parse_hub_name(f"hub:{tmp_path}") == HubName(str(tmp_path)), "a local folder, whatever its name"


def test_a_hub_set_out_of_reach_is_one_line() -> None:
    with pytest.raises(CorpusError, match=r"^hub:acme/none cannot be loaded \(.*offline mode is enabled") as raised:
        load_source(CorpusConfig(pages="hub:acme/none"))
    assert "\n" not in str(raised.value)
    assert source_parts(CorpusConfig(pages="hub:acme/none")) is None
