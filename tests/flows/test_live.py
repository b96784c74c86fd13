"""The live plot follows what a training run stores, and never costs it anything."""

import io
import os
from pathlib import Path

import pytest

from flows.cli.live import PAGE, LivePlot
from slmsearch.config import RunConfig
from slmsearch.learn.files import LOCK, STEPS
from slmsearch.learn.reports import append_report, truncate_reports
from tasks.progress import Progress
from tests.slmsearch.report.page.synthetic import make_run

STEPS_MADE = make_run(5, steps=8).steps


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return RunConfig.model_validate({"paths": {"data_dir": str(tmp_path)}, "train": {"steps": 8}})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A training directory of this process, beside one of another."""
    for name, owner in (("other", 1), ("mine", os.getpid())):
        (tmp_path / "training" / name).mkdir(parents=True)
        (tmp_path / "training" / name / LOCK).write_text(str(owner))
    return tmp_path / "training" / "mine"


def test_nothing_is_drawn_before_training_has_a_place(config: RunConfig) -> None:
    said: list[str] = []
    with LivePlot(config, said.append):
        pass
    assert said == []


def test_steps_become_lines_and_a_page_and_the_last_page_stays_still(config: RunConfig, directory: Path) -> None:
    said: list[str] = []
    plot = LivePlot(config, said.append)
    plot.look()
    assert said[0] == f"live plot: {directory / PAGE}"
    assert 'http-equiv="refresh"' in (directory / PAGE).read_text()
    for report in STEPS_MADE:
        append_report(directory / STEPS, report)
    plot.look(last=True)
    assert any("collapse" in line for line in said)
    assert said[-1].startswith("step 8/8  reward 1.000")
    page = (directory / PAGE).read_text()
    assert "Ended at step 8 of 8" in page and 'http-equiv="refresh"' not in page


def test_a_resumed_run_that_drops_steps_is_followed(config: RunConfig, directory: Path) -> None:
    plot = LivePlot(config, lambda text: None)
    for report in STEPS_MADE[:6]:
        append_report(directory / STEPS, report)
    plot.look()
    truncate_reports(directory / STEPS, 2)
    append_report(directory / STEPS, STEPS_MADE[2])
    plot.look(last=True)
    assert "Ended at step 3 of 8" in (directory / PAGE).read_text()


def test_a_terminal_gets_three_curves_in_place(config: RunConfig, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    for report in STEPS_MADE:
        append_report(directory / STEPS, report)
    with LivePlot(config, lambda text: None), Progress("the bar", "steps") as progress:
        progress(1, 2)
    shown = screen.getvalue()
    assert "the bar" not in shown, "two things that draw in place would draw over each other"
    assert "Ended at step 8 of 8" in shown and "step 8/8" not in shown, "curves, and no lines beside them"
    assert all(word in shown for word in ("reward", "accuracy", "loss", "█"))


def test_a_fault_of_the_plot_is_said_once_and_ends_only_the_plot(
    config: RunConfig, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    said: list[str] = []
    monkeypatch.setattr("flows.cli.live.replace_text", fail)
    with LivePlot(config, said.append):
        trained = "to the end"
    assert trained
    assert said[-1] == "live plot: OSError: no space left; training goes on without it"
    assert sum("no space left" in line for line in said) == 1
