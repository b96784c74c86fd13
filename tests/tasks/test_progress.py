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


def test_a_line_says_how_long_the_rest_takes_by_what_was_seen(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 20.0, 50.0, 80.0, 380.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with caplog.at_level(logging.INFO, "slmsearch"), Progress("train", "steps") as shown:
        for done in (20, 21, 22, 32):  # 20 were done before a kill
            shown(done, 40)
    assert caplog.messages == [
        "train: 20 of 40 steps",
        "train: 21 of 40 steps, 10 min left",
        "train: 22 of 40 steps, 9 min left",
        "train: 32 of 40 steps, 4 min left",
    ]
