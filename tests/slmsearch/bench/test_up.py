"""What the measurement of `slmsearch up` says; `tests/e2e/test_up.py` starts the real one."""

import subprocess
import sys
from pathlib import Path

import pytest

from slmsearch.bench import up
from slmsearch.errors import ServiceError


def test_times_come_with_their_spread_and_each_start_begins_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[Path] = []
    times = iter([(30.0, 40.0), (20.0, 50.0), (25.0, 45.0)])

    def start(home: Path) -> tuple[float, float]:
        homes.append(home)
        assert not any(home.iterdir())
        return next(times)

    monkeypatch.setattr(up, "_start_once", start)
    said: list[str] = []
    result = up.run_up(3, said.append)
    assert result.values["running"] == {"median": 45.0, "low": 40.0, "high": 50.0}
    assert said[0] == "up after 30.0 s, the run is running after 40.0 s"
    assert result.render().splitlines()[-1] == "the submitted run is running: 45.0 (40.0-50.0) s"
    assert len(set(homes)) == 3
    assert not any(home.exists() for home in homes)


def test_one_that_does_not_come_up_is_said_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    log.write_text("port 4200 is in use\n")
    with subprocess.Popen([sys.executable, "-c", ""]) as process, pytest.raises(ServiceError, match="port 4200 is in use"):
        up._wait(lambda: False, process, log)
