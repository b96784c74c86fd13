"""A watched folder whose service was killed: which version it begins with, what stays withdrawn, and that nothing is left behind."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.ops.live_documents import LiveDocuments
from flows.stages.policy_choice import SearcherChoice
from tests.flows import test_live_documents
from tests.flows.test_live_documents import Here, edit, step

PLACES = ("serving.documents.refresh.name_index", "retrieval.build.build_lexical", "corpus.store.read_json")
"""Functions that a kill falls on: a corpus without an index, vectors without a version, sources without their corpus."""
choice, folder = test_live_documents.choice, test_live_documents.folder


def recorded(live: LiveDocuments) -> str:
    """Return the index that a service begins with which is started now."""
    return str(json.loads(live._record.read_text())["served"]["key"])


def test_a_version_is_recorded_before_it_plays(choice: SearcherChoice, folder: Path) -> None:
    """A service that was killed within three seconds of its first answer from a version began with the one of before."""
    live = LiveDocuments(choice, folder)
    first = live.find()
    edit(folder / "Alba.md", "1500", "1499")
    second = step(live, first)
    made = live._next[str(second.corpus_digest)]
    live._next[made.version.digest] = replace(made, replayed=())  # no policy is loaded
    assert recorded(live) == first.index_key, "it may not play yet"
    live.judge(first, second, Here())  # type: ignore[arg-type]
    assert recorded(live) == second.index_key
    live.find_new(first)
    assert recorded(live) == first.index_key, "it could not play"
    live.judge(first, second, Here())  # type: ignore[arg-type]
    assert LiveDocuments(choice, folder).find().index_key == second.index_key


def test_the_text_of_a_deleted_file_does_not_come_back_with_another_file_of_its_name(choice: SearcherChoice, folder: Path) -> None:
    live = LiveDocuments(choice, folder)
    first = live.find()
    text, other = (folder / "Brixa.md").read_text(), (folder / "Cortona.md").read_text()
    for name in ("Brixa", "Cortona"):
        (folder / f"{name}.md").unlink()
        live._look()
    (folder / "Brixa.md").write_text(text.replace("1501", "1201"))
    (folder / "Cortona.md").write_text(other)
    live._look()
    assert live.withdrawn(first) == {"brixa", "cortona"}, "until it is known what they say"
    again = LiveDocuments(choice, folder)
    assert again.withdrawn(again.find()) == {"brixa", "cortona"}, "also after a restart"
    second = step(live, first)
    assert live.withdrawn(first) == {"brixa"} and live.withdrawn(second) == frozenset()
    again = LiveDocuments(choice, folder)
    live.find_new(second)
    assert again.find().index_key == second.index_key and again.withdrawn(second) == frozenset()


def test_nothing_is_left_of_a_version_whose_build_or_removal_was_killed(
    choice: SearcherChoice, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveDocuments(choice, folder)
    served = live.find()
    paths = choice.config.paths

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for number, place in enumerate(PLACES):
        for year in (1500 - 2 * number, 1499 - 2 * number):
            served = step(live, served)
            edit(folder / "Alba.md", str(year + 1), str(year))
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(f"slmsearch.{place}", die)
            for _ in range(3):
                served = step(live, served)
        live = LiveDocuments(choice, folder)
        served = live.find()
    for _ in range(3):
        served = step(live, served)
    left = [path.name.rpartition("-")[2] for path in (*paths.index.glob(".partial-*"), *paths.index.glob(".building-*"))]
    known = [json.loads(file.read_text())["digest"] for file in (paths.corpora / "sources").glob("*.json")]
    stored = {path.name for path in paths.corpora.iterdir()} - {"sources"}
    assert left == [served.index_key] and stored == {*known} == {served.corpus_digest, live._known}
