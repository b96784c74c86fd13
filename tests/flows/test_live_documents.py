"""A watched folder without a service: what is noticed, what is withdrawn, what is begun with, and what is never removed."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.ops import live_documents
from flows.ops.live_documents import LiveDocuments
from flows.stages.policy_choice import SearcherChoice
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError, CorpusError, IndexUnusableError, ServiceError
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.documents.listing import list_documents
from slmsearch.serving.documents.refresh import Version, build_version
from tasks.retention import in_use
from tests.e2e.small_world import Embeddings
from tests.loopback import listening

NAMES = ("Alba", "Brixa", "Cortona", "Delos", "Elea", "Faro")


class Here:
    """A child process that is none."""

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "docs"
    place.mkdir()
    for number, name in enumerate(NAMES):
        text = f"# {name}\n\n{name} is a town.\n\n## History\n\nThe town of {name} was founded in {1500 + number} by Admiral {name}son.\n"
        (place / f"{name}.md").write_text(text)
    return place


@pytest.fixture
def choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SearcherChoice]:
    monkeypatch.setattr(live_documents, "Child", Here)
    with listening(Embeddings) as address:
        settings = {
            "paths.data_dir": str(tmp_path / "data"),
            "paths.mlruns_dir": str(tmp_path / "mlruns"),
            "retrieval.embedder.base_url": address,
            "retrieval.embedder.model": "words",
        }
        yield SearcherChoice(RunConfig().changed(settings), "retrieve-then-answer", lambda _: None)


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def step(live: LiveDocuments, served: ServedPolicy) -> ServedPolicy:
    """Look until nothing changes, and let the next version play if there is one."""
    live._look()
    live._look()
    return live.find_new(served) or served


def test_an_edit_becomes_the_next_version_and_the_former_goes(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    first = live.find()
    assert step(live, first) is first, "nothing changed"
    edit(folder / "Alba.md", "1500", "1499")
    second = step(live, first)
    assert second.index_key != first.index_key
    edit(folder / "Alba.md", "1499", "1498")
    third = step(live, second)
    step(live, third)
    index = choice.config.paths.index
    assert not (index / str(second.index_key)).exists() and (index / str(third.index_key)).is_dir()
    again = LiveDocuments(choice, folder)
    assert again.find().index_key == third.index_key, "the one that was served last"


def test_a_file_that_is_gone_is_withdrawn_and_a_disk_that_is_not_mounted_is_not(
    choice: SearcherChoice, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    assert live.withdrawn(served) == frozenset()
    (folder / "Brixa.md").unlink()
    live._look()
    assert live.withdrawn(served) == {"brixa"}
    live._look()
    assert caplog.text.count("withdrawn, because their files are gone: brixa") == 1 and live.describe()["withdrawn"] == 1
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()  # the mount point
    live._look()
    live._look()
    assert live.withdrawn(served) == {"brixa"} and caplog.text.count("is gone, or holds no document") == 1
    folder.rmdir()
    aside.rename(folder)
    edit(folder / "Alba.md", "1500", "1499")
    changed = step(live, served)
    assert changed.index_key != served.index_key and live.withdrawn(changed) == frozenset()


def test_a_file_that_is_being_written_is_waited_for_and_a_folder_that_never_rests_is_not(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    assert live.find_new(served) is None
    for word in ("half ", "written"):
        with (folder / "Alba.md").open("a") as file:
            file.write(word)
        live._look()
        assert live.find_new(served) is None
    live._look()
    changed = live.find_new(served)
    assert changed is not None
    text = (choice.config.paths.corpora / str(changed.corpus_digest) / "pages.jsonl").read_text()
    assert "half written" in text
    monkeypatch.setattr(live_documents, "SETTLE_S", 0.0)
    (folder / "Alba.md").write_text("# Alba\n\nAlba is a town, and is edited all the time.\n")
    live._look()
    assert live._dirty.is_set()


def test_a_restarted_service_says_since_when_its_version_is_served(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    live.find()
    (record,) = (Path(choice.config.paths.data_dir) / "live").glob("*.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "since": live.since - 3600}))
    again = LiveDocuments(choice, folder)
    again.find()
    assert again.describe()["pages"] == len(NAMES) and again.since == live.since - 3600


def test_a_folder_that_another_takes_the_place_of_is_seen(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    other = folder.with_name("next")
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_text(file.read_text().replace("1503", "1303"))
    folder.rename(folder.with_name("former"))
    other.rename(folder)
    assert step(live, served).index_key != served.index_key


def test_a_file_renamed_to_the_same_id_is_found_again(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    (folder / "Faro.md").rename(folder / "faro.md")
    changed = step(live, served)
    assert changed.corpus_digest != served.corpus_digest and live.withdrawn(changed) == frozenset()


def test_what_was_held_back_stays_so_without_accept(choice: SearcherChoice, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    (folder / "Delos.md").write_text("")
    assert step(live, served) is served
    held: Any = live.describe()["held_back"]
    assert held["reasons"] == ("delos: the file is empty",) and caplog.text.count("held back (delos: the file is empty)") == 1
    for policy in ("retrieve-then-answer", "random"):
        assert LiveDocuments(replace(choice, policy=policy), folder).find().index_key == served.index_key
    assert LiveDocuments(choice, folder, accept=True).find().index_key != served.index_key


def test_a_champion_that_was_measured_on_an_older_version_plays_on_the_documents_as_they_are(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put back on its own version, which the gate then kept: two edits that were served before were lost again."""
    live = LiveDocuments(choice, folder)
    first = live.find()
    edit(folder / "Alba.md", "1500", "1499")
    served = step(live, first)
    assert served.index_key != first.index_key
    promoted = replace(first, version="searcher/2", measured_on=first.corpus_digest or "")
    finder: Any = lambda _self, playing, documents: promoted if playing.version != promoted.version else None  # noqa: E731
    monkeypatch.setattr(live, "_choice", type("C", (), {"follows": True, "find_new": finder})())
    champion = live.find_new(served)
    assert champion is not None and (champion.version, champion.index_key) == ("searcher/2", served.index_key)
    assert live.find_new(champion) is None
    again = LiveDocuments(choice, folder)
    monkeypatch.setattr(SearcherChoice, "find_here", lambda _: (promoted, False))
    assert again.find().index_key == served.index_key, "the version that was served last, whatever it was measured on"


def test_what_a_link_led_to_is_gone_with_it(choice: SearcherChoice, folder: Path) -> None:
    (folder / "current.md").symlink_to("Alba.md")
    live = LiveDocuments(choice, folder)
    served = live.find()
    (folder / "Alba.md").unlink()
    edit(folder / "Brixa.md", "1501", "1498")
    live._look()
    assert live.withdrawn(served) == {"alba", "current"}
    changed = step(live, served)
    assert changed.index_key != served.index_key and live.describe()["held_back"] is None


def test_a_version_whose_unreadable_file_is_deleted_is_held_no_longer(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    edit(folder / "Alba.md", "1500", "1499")
    (folder / "Delos.md").write_text("")
    assert step(live, served) is served and live.describe()["held_back"] is not None
    (folder / "Delos.md").unlink()
    assert step(live, served).index_key != served.index_key and live.describe()["held_back"] is None


def test_another_tag_alone_is_an_edit(choice: SearcherChoice, folder: Path) -> None:
    text = (folder / "Alba.md").read_text()
    (folder / "Alba.md").write_text(f"---\ntags: [public]\n---\n{text}")
    live = LiveDocuments(choice, folder)
    served = live.find()
    (folder / "Alba.md").write_text(f"---\ntags: [secret]\n---\n{text}")
    assert step(live, served).corpus_digest != served.corpus_digest


def test_after_a_move_of_all_files_lost_facts_are_still_missed(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    (folder / "2025").mkdir()
    for name in NAMES:
        (folder / f"{name}.md").rename(folder / "2025" / f"{name}.md")
    moved = step(live, served)
    assert moved.corpus_digest != served.corpus_digest
    for number, name in enumerate(NAMES):
        edit(folder / "2025" / f"{name}.md", str(1500 + number), str(1300 + number))
    assert step(live, moved) is moved
    held: Any = live.describe()["held_back"]
    assert "are no longer there" in held["reasons"][0]


def test_one_service_at_a_time_watches_a_folder(choice: SearcherChoice, folder: Path) -> None:
    with LiveDocuments(choice, folder).alone(), pytest.raises(ConfigError, match="another service watches"):
        LiveDocuments(choice, folder).alone().__enter__()
    with LiveDocuments(choice, folder).alone():
        pass


def test_what_a_killed_or_failed_build_left_is_removed_later(choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    paths = choice.config.paths
    before = {path.name for path in (*paths.corpora.iterdir(), *paths.index.iterdir())}

    def fail(*_: object, **__: object) -> None:
        raise IndexUnusableError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("slmsearch.serving.documents.refresh.build_index", fail)
        for number in range(3):
            edit(folder / "Alba.md", str(1500 - number), str(1499 - number))
            live._not_before.clear()
            with pytest.raises(IndexUnusableError):
                step(live, served)
    assert len([path for path in paths.corpora.iterdir() if path.name not in before]) == 3
    again = LiveDocuments(choice, folder)  # as after a kill
    served = again.find()
    served = step(again, served)
    step(again, served)
    left = {path.name for path in (*paths.corpora.iterdir(), *paths.index.iterdir()) if path.is_dir()} - before
    assert left == {served.corpus_digest, served.index_key}
    known = [json.loads(file.read_text())["digest"] for file in (paths.corpora / "sources").glob("*.json")]
    assert sorted(known) == sorted(path.name for path in paths.corpora.iterdir() if path.name != "sources")


def test_nothing_is_removed_that_was_there_before_or_that_is_recorded_as_used(choice: SearcherChoice, folder: Path) -> None:
    config = choice.config.changed({"corpus.pages": str(folder)})
    sections = config.paths, config.corpus, config.retrieval
    learnt = build_version(*sections)
    assert set(learnt.built) == {"corpora", "indexes"} and build_version(*sections).built == {}
    live = LiveDocuments(choice, folder)
    served = live.find()
    assert served.index_key == learnt.version.key
    for number in range(3):
        edit(folder / "Alba.md", str(1500 - number), str(1499 - number))
        served = step(live, served)
    step(live, served)
    assert (config.paths.index / learnt.version.key).is_dir() and (config.paths.corpora / learnt.version.digest).is_dir()
    used = in_use(config)
    assert used["indexes"].keys() >= {served.index_key} and used["corpora"].keys() >= {served.corpus_digest}


def test_a_version_that_cannot_be_made_is_tried_again_after_a_while(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    edit(folder / "Alba.md", "1500", "1499")
    live._look()
    full = IndexUnusableError("no disk space left: free some")

    def fail(*_: object) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(live_documents.refresh, "refresh", fail)
        with pytest.raises(IndexUnusableError):
            live.find_new(served)
        assert live.find_new(served) is None, "not at once"
    live._not_before.clear()
    assert live.find_new(served) is not None


def test_a_champion_that_cannot_be_found_keeps_no_edit_back(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()

    def fail(_self: object, _served: object, documents: bool) -> None:
        raise ServiceError("the store is down")

    asked: Any = type("C", (), {"follows": True, "find_new": fail})()
    monkeypatch.setattr(live, "_choice", asked)
    edit(folder / "Alba.md", "1500", "1499")
    assert step(live, served).index_key != served.index_key
    step(live, served)
    assert caplog.text.count("the store is down") == 1


def test_the_watch_goes_on_whatever_a_file_system_does(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live, stop, looks = LiveDocuments(choice, folder), threading.Event(), threading.Semaphore(0)
    monkeypatch.setattr(live_documents, "LOOK_S", 0.001)

    def break_down() -> None:
        looks.release()
        raise OSError("stale file handle")

    monkeypatch.setattr(live, "_look", break_down)
    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=live.watch, args=(stop,))
        thread.start()
        assert all(looks.acquire(timeout=20) for _ in range(4))
        stop.set()
        thread.join(20)
    assert caplog.text.count("cannot be looked at, and is tried again: stale file handle") == 1


def test_what_cannot_be_watched_is_one_line(choice: SearcherChoice, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"paths.data_dir .* lies in .*, which would change with every answer"):
        LiveDocuments(choice, tmp_path)
    with pytest.raises(ConfigError, match="programs see all of the corpus"):
        LiveDocuments(replace(choice, config=choice.config.changed({"searcher.programs": True})), folder)
    with pytest.raises(CorpusError, match="does not exist"):
        LiveDocuments(choice, tmp_path / "nowhere").find()


def test_a_folder_that_cannot_be_entered_is_not_taken_for_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slmsearch.corpus.documents.folder import Entry, Reason
    from slmsearch.serving.documents import listing

    entries = [Entry(folder / "Alba.md", "Alba.md"), Entry(folder / "sub", "sub/", Reason.UNREADABLE)]
    monkeypatch.setattr(listing, "list_folder", lambda _: entries)
    found = list_documents(folder)
    assert found is not None and [found.holds(path) for path in ("Alba.md", "sub/b.md", "subs.md", "Brixa.md")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_record_of_a_killed_service_names_a_whole_version(choice: SearcherChoice, folder: Path) -> None:
    served = LiveDocuments(choice, folder).find()
    (record,) = (Path(choice.config.paths.data_dir) / "live").glob("*.json")
    state = json.loads(record.read_text())
    assert (
        Version(**state["served"]) == Version(str(served.corpus_digest), str(served.index_key)) and state["known"] == served.corpus_digest
    )
