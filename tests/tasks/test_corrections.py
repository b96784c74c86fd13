"""Corrections of users go to the pages that they asked about."""

from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
from tasks.learn import _corrections


def test_corrections_are_those_of_the_same_pages_the_newest_first(tmp_path: Path) -> None:
    config = RunConfig().changed({"paths.data_dir": str(tmp_path), "corpus.pages": str(tmp_path / "notes")})
    log = FeedbackLog(config.paths.feedback)
    for number, (pages, within) in enumerate([(None, None), (str(tmp_path / "notes"), None), (str(tmp_path / "harbour"), None),
                                              (f"{tmp_path}/harbour/../notes", None), (str(tmp_path / "notes"), "folder a")]):  # fmt: skip
        log.append(Feedback("When?", "1500", "wrong", str(number), pages=pages, within=within))
    log.append(Feedback("When?", "1500", "right", pages=str(tmp_path / "notes")))
    assert [one.answer for one in _corrections(config.corpus.pages, config.paths)] == ["3", "1", "0"]
