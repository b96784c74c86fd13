"""Lines in the log where nobody looks at a terminal."""

import logging

import pytest

from tasks import progress
from tasks.progress import Progress


@pytest.mark.parametrize(("total", "line"), [(240, "train: 3 of 240 steps"), (0, "train: 3 steps")])
def test_a_line_says_a_total_that_is_known(
    total: int, line: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    with caplog.at_level(logging.INFO, "slmsearch"), Progress("train", "steps") as shown:
        shown(3, total)
    assert caplog.messages == [line]
