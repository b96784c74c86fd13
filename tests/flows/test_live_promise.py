"""A promise about answers from a watched folder: made anew where few of them can be other ones, else void."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.ops import live_documents
from flows.ops.live_documents import LiveDocuments
from flows.stages import calibrating
from flows.stages.policy_choice import SearcherChoice
from slmsearch.errors import CorpusError
from slmsearch.serving.api import playing
from slmsearch.serving.api.playing import ServedPolicy
from tests.e2e.small_world import Embeddings
from tests.flows.test_live_documents import Here, step
from tests.loopback import listening
from tests.slmsearch.serving.documents.test_refresh import Served


def test_a_promise_is_made_anew_for_an_edit_that_few_answers_saw_and_is_void_after_one_that_many_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise CorpusError("split 'validation' holds no question")

    monkeypatch.setattr(live_documents, "Child", Here)
    monkeypatch.setattr(calibrating, "in_child", lambda function, *args, **kwargs: function(*args, **kwargs))
    with listening(Embeddings) as address:
        world = Served(tmp_path, address)
        config = world.config.changed({"corpus.questions": str(tmp_path / "questions.jsonl")})
        choice = SearcherChoice(config, None, lambda _: None, wrong_at_most=0.5)
        calibrating.calibrate_searcher(replace(choice, wrong_at_most=None), "validation", 0, 0.5)
        live = LiveDocuments(choice, tmp_path / "docs")
        served = live.find()
        assert served.promise is not None and served.promise.calibration.index_key == served.index_key

        def change(words: str, pages: int) -> ServedPolicy:
            for file in sorted((tmp_path / "docs").glob("*.md"))[:pages]:
                file.write_text(file.read_text().replace(".", f". {words}."))
            changed = step(live, served)
            playing.load(changed)
            promise = live.judge(served, changed, Here())  # type: ignore[arg-type]
            return replace(changed, promise=promise or changed.promise)

        edited = change("It rained", 2)
        assert edited.promise is not None and edited.index_key != served.index_key
        assert edited.promise.calibration.index_key == edited.index_key, "it holds"
        assert step(live, edited) is edited
        again = LiveDocuments(choice, tmp_path / "docs").find()
        assert again.promise == edited.promise, "also after a restart"
        monkeypatch.setattr(live_documents, "CALIBRATED", 2)
        served = edited
        lost = change("It snowed", 40)
        assert lost.promise == edited.promise and lost.index_key != edited.index_key
        assert "the promise does not hold on them: more than 2 questions" in caplog.text
        monkeypatch.setattr(live_documents, "CALIBRATED", 10**6)
        monkeypatch.setattr("slmsearch.serving.api.graded_plays.select_questions", fail)
        served = lost
        failed = change("It hailed", 1)
        assert failed.promise == edited.promise and "does not hold on them: split 'validation' holds no question" in caplog.text
    playing._loaded.clear()
