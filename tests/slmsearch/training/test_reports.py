"""Reports as lines of a file that grows, breaks and is cut back."""

import json

import pytest

from slmsearch.errors import CheckpointError
from slmsearch.training.reports import ReportTail, append_report, make_report, read_reports, truncate_reports


def test_a_line_being_written_waits(tmp_path):
    path = tmp_path / "steps.jsonl"
    tail = ReportTail(path)
    assert tail.poll() == []
    first, second = make_report(1, {"loss": 0.5}), make_report(2, {"loss": 0.25})
    append_report(path, first)
    line = json.dumps({"step": 2, "metrics": {"loss": 0.25}, "time": second.time})
    with path.open("a") as file:
        file.write(line[:10])
        file.flush()
        assert tail.poll() == [first]
        file.write(line[10:] + "\n")
    assert tail.poll() == [second]
    assert tail.poll() == []


def test_cut_back_to_a_step_and_grown_again(tmp_path):
    path = tmp_path / "steps.jsonl"
    reports = [make_report(step, {"loss": float(step)}) for step in range(1, 6)]
    for report in reports:
        append_report(path, report)
    with path.open("a") as file:
        file.write('{"step": 6, "met')  # killed here
    assert truncate_reports(path, 3) == reports[:3]
    append_report(path, reports[3])
    assert read_reports(path) == reports[:4]
    assert truncate_reports(tmp_path / "none.jsonl", 3) == []


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    report = make_report(1, {"b": 1, "a": float("nan"), "c": float("inf"), "d": None})
    assert report.metrics == {"b": 1.0}


def test_a_broken_line_inside_is_an_error(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(CheckpointError, match="delete that directory"):
        read_reports(path)
