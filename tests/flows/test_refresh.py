"""The flow `refresh` without Prefect: which edits the champion answers from, what is withdrawn in any case, and what services see."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.schemas.objects import State

from flows import refresh as module
from flows.refresh import refresh
from flows.runtime.automations import HELD_BACK
from flows.stages import calibrating
from flows.stages.policy_choice import SearcherChoice
from flows.train import train_and_eval
from slmsearch.config import RunConfig
from slmsearch.corpus.store import read_pages
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import CorpusError, IndexUnusableError, ModelError, PromotionError
from slmsearch.serving.api import playing
from slmsearch.serving.api.graded_plays import GradedPlays
from tasks.retention import in_use
from tasks.tracking import CHAMPION, Tracker, open_tracker
from tests.flows.fakes import FakeTraining
from tests.flows.plain import plain, small_run, without_prefect

TOWNS = [f"Town{chr(65 + number % 26)}{number}" for number in range(30)]
SMALL = {"decision": {"min_questions": 20}}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "emit", lambda event, _model, payload, of: told.append({"event": event, "of": of, **payload}))
    return told


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]]) -> FakeTraining:
    monkeypatch.setattr(module, "serve_documents_task", plain(module.serve_documents_task))
    monkeypatch.setattr(module, "show_refresh", lambda _: None)
    monkeypatch.setattr(module, "device", lambda _: nullcontext())
    monkeypatch.setattr(module, "get_run_logger", lambda: SimpleNamespace(warning=lambda *_: None, info=lambda *_: None))
    return without_prefect(monkeypatch)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion plays as a baseline does, and where it is served, too."""

    def make(_spec: Any, environment: Any, _questions: Any) -> ScriptedSampler:
        return ScriptedSampler(RetrieveThenAnswer(environment.toolbox, environment.config.searcher.max_turns))

    monkeypatch.setattr(playing, "make_policy_sampler", make)


@pytest.fixture
def folder(isolated_environment: Path) -> Path:
    place = isolated_environment / "towns"
    place.mkdir()
    for number, name in enumerate(TOWNS):
        write_town(place, name, 1500 + number)
    return place


def write_town(folder: Path, name: str, year: int) -> None:
    (folder / f"{name}.md").write_text(f"# {name}\n\n{name} is a town.\n\n## History\n\n{name} was founded in {year}.\n")


@pytest.fixture
def config(isolated_environment: Path, empty_store: Path, training: FakeTraining, searching: None, folder: Path) -> RunConfig:
    """A champion of a folder of documents, promoted by the flow."""
    config = small_run(isolated_environment, empty_store, **SMALL)
    questions = [json.loads(line) for line in Path(str(config.corpus.questions)).read_text().splitlines()]
    for question, name in zip(questions, TOWNS, strict=True):
        question |= {"page_ids": [name.lower()], "section_ids": [f"{name.lower()}:history"]}
    kept = folder.with_name("asked.jsonl")
    kept.write_text("".join(json.dumps(question) + "\n" for question in questions))
    config = config.changed({"corpus.pages": str(folder), "corpus.questions": str(kept)})
    assert train_and_eval.fn(config)["decision"] == "promote"
    return config


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def run(config: RunConfig) -> dict[str, Any]:
    ended = refresh.fn(config)
    result: dict[str, Any] = json.loads(json.dumps(ended.data if isinstance(ended, State) else ended))
    assert isinstance(ended, State) == (result["state"] == "held back")
    assert not isinstance(ended, State) or (ended.name, ended.is_completed()) == ("HeldBack", True)
    return result


def choose(config: RunConfig) -> SearcherChoice:
    return SearcherChoice(config, CHAMPION, lambda _: None)


def texts(config: RunConfig) -> dict[str, str]:
    """Return the pages that a service begins with."""
    served = choose(config).find()
    return {page.id: page.content for page in read_pages(config.paths.corpora / str(served.corpus_digest))}


def test_an_edit_is_answered_from_and_a_running_service_sees_it(config: RunConfig, folder: Path, events: list[dict[str, Any]]) -> None:
    before = choose(config).find()
    assert run(config)["state"] == "unchanged" and choose(config).find_new(before) is None
    change(folder / "TownA0.md", "1500", "1499")
    (folder / "New.md").write_text("# New\n\nNew is a town that was founded in 1999.\n")
    (folder / "TownB1.md").unlink()
    found = run(config)
    assert (found["state"], found["edit"]) == ("refreshed", "1 added, 1 changed, 1 removed")
    now = texts(config)
    assert "1499" in now["towna0"] and "new" in now and "townb1" not in now
    after = choose(config).find_new(before)
    assert after is not None and (after.version, after.index_key) == (before.version, found["index_key"])
    assert choose(config).find_new(after) is None and not events
    used = in_use(config)
    assert found["index_key"] in used["indexes"] and found["data_digest"] in used["corpora"], "housekeeping leaves it"
    assert before.index_key in used["indexes"]
    shutil.rmtree(config.paths.index / found["index_key"])
    with pytest.raises(IndexUnusableError, match="slmsearch run refresh"):
        choose(config).find()
    assert run(config)["index_key"] == found["index_key"] == choose(config).find().index_key
    shutil.rmtree(config.paths.index / found["index_key"])
    for name, year in (("TownA0", 1500), ("TownB1", 1501)):
        write_town(folder, name, year)
    (folder / "New.md").unlink()
    assert run(config)["state"] == "unchanged", "the documents are those of the evaluation again"
    assert choose(config).find().index_key == before.index_key


def test_what_lost_its_text_is_held_back_and_what_was_deleted_is_withdrawn_all_the_same(
    config: RunConfig, folder: Path, events: list[dict[str, Any]]
) -> None:
    change(folder / "TownA0.md", "1500", "1500 by MÃ¼ller, BÃ¶hm and KrÃ¤mer")
    change(folder / "TownC2.md", "1502", "1302")
    held = run(config)
    assert held["state"] == "held back" and "towna0" in held["reasons"][0]
    assert "Ã" not in texts(config)["towna0"] and "1502" in texts(config)["townc2"]
    (folder / "TownB1.md").unlink()
    (folder / "TownD3.md").write_text("")
    again = run(config)
    assert again["state"] == "held back" and again["index_key"] != held["index_key"]
    now = texts(config)
    assert "townb1" not in now and "Ã" not in now["towna0"] and "townd3" in now, "the file of the last is there, and empty"
    assert [event["event"] for event in events] == [HELD_BACK] * 2 and events[1]["of"] == "documents"
    change(folder / "TownA0.md", "MÃ¼ller, BÃ¶hm and KrÃ¤mer", "Müller, Böhm and Krämer")
    (folder / "TownD3.md").write_text("# TownD3\n\nTownD3 is a town.\n\n## History\n\nTownD3 was founded in 1503.\n")
    assert run(config)["state"] == "refreshed"


def test_a_champion_that_answers_less_holds_a_version_back(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "replay", lambda questions, *_: [(True, False)] * len(questions))
    change(folder / "TownC2.md", "a town", "a small town")
    found = run(config)
    assert found["state"] == "held back" and "questions are answered rightly" in found["reasons"][0]


def test_a_calibration_is_made_anew_before_the_documents_are_served(
    config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, calls = choose(config), list[str]()
    served = choice.find()
    file = choice.calibration_file(served.spec)
    file.parent.mkdir(parents=True)
    file.write_text("{}")

    def calibrated(_choice: SearcherChoice, new: Any, known: GradedPlays) -> None:
        calls.append(str(new.index_key))
        assert choose(config).find().index_key == served.index_key and known == GradedPlays("validation", 0)

    monkeypatch.setattr(calibrating, "_calibrate", calibrated)
    change(folder / "TownC2.md", "a town", "a small town")
    assert run(config)["index_key"] == calls[0] != served.index_key


def test_questions_of_a_changed_corpus_are_those_that_it_still_states(config: RunConfig, folder: Path) -> None:
    change(folder / "TownC2.md", "1502", "1302")
    (folder / "TownB1.md").unlink()
    assert run(config)["state"] == "refreshed"
    playing.load(choose(config).find())
    asked = {question.id for questions in playing._loaded[0].known_questions().values() for question in questions}
    assert len(asked) == 28 and not {"q1", "q2"} & asked


def test_a_later_champion_and_a_rollback_answer_from_the_documents_as_they_are(
    config: RunConfig, folder: Path, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was deleted while the next one was trained does not come back, and a newer training has newer documents."""
    (folder / "TownB1.md").unlink()
    refreshed = run(config)
    tracker, model = open_tracker(config.paths, config.tracking), config.tracking.registered_model
    began = tracker.began_s(model, "1")
    assert began > 0 and choose(config).find().index_key == refreshed["index_key"]
    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "began_s", lambda _self, _name, _version: began + 3600.0)
        assert choose(config).find().index_key != refreshed["index_key"]
    assert not tracker.set_documents(model, "other", expected=""), "set against what has changed meanwhile"
    with pytest.raises(PromotionError, match="by another run meanwhile"):
        module.serve_documents_task("d", "k", 0.0, "", config.paths, config.tracking)
    assert tracker.set_documents(model, "damaged", tracker.documents(model))
    with pytest.raises(ModelError, match=r"slmsearch\.documents of .* is damaged"):
        choose(config).find()


def test_a_service_takes_new_documents_over_though_nothing_keeps_its_promise_there(
    config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_choice: SearcherChoice, _served: Any) -> Any:
        raise ModelError("wrong too often")

    before = choose(config).find()
    (folder / "TownB1.md").unlink()
    found = run(config)
    monkeypatch.setattr(SearcherChoice, "_promise", refuse)
    after = choose(config).find_new(before)
    assert after is not None and after.index_key == found["index_key"]
    with pytest.raises(ModelError, match="wrong too often"):
        choose(config).find()


def test_what_plays_takes_new_documents_over_though_the_next_champion_keeps_no_promise(
    config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted page was quoted until somebody calibrated the new champion."""

    def refuse(_choice: SearcherChoice, _served: Any) -> Any:
        raise ModelError("is not calibrated")

    before = replace(choose(config).find(), version="slmsearch-searcher/0")
    (folder / "TownB1.md").unlink()
    found = run(config)
    monkeypatch.setattr(SearcherChoice, "_promise", refuse)
    after = choose(config).find_new(before)
    assert after is not None and (after.version, after.index_key) == ("slmsearch-searcher/0", found["index_key"])
    with pytest.raises(ModelError, match="is not calibrated"):
        choose(config).find_new(after)


def test_moved_documents_are_the_same_documents(config: RunConfig, folder: Path) -> None:
    (folder / "2025").mkdir()
    for file in sorted(folder.glob("*.md")):
        file.rename(folder / "2025" / file.name)
    assert run(config)["state"] in ("refreshed", "held back"), "and are not refused as others"


def test_of_a_file_in_the_place_of_another_the_former_text_is_withdrawn(config: RunConfig, folder: Path) -> None:
    (folder / "TownB1.md").rename(folder / "TownB1.txt")
    change(folder / "TownA0.md", "1500", "1500 by MÃ¼ller, BÃ¶hm and KrÃ¤mer")
    assert run(config)["state"] == "held back"
    assert "townb1" not in texts(config)


def test_other_documents_and_no_champion_are_refused_and_no_documents_are_nothing_to_do(
    config: RunConfig, folder: Path, isolated_environment: Path
) -> None:
    for name in TOWNS[:16]:
        (folder / f"{name}.md").unlink()
    with pytest.raises(CorpusError, match=r"of the 30 pages .* 16 are not in"):
        run(config)
    for changed in ({"corpus.pages": None, "corpus.questions": None}, {"environment": "planner"}, {"tracking.registered_model": "another"}):
        found = run(config.changed(changed))
        assert found["state"] == "unchanged" and found["message"].startswith("nothing to refresh"), changed
