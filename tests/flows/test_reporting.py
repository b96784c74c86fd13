"""What a finished run leaves to look at may fail; the run and its numbers stand."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow
from prefect.exceptions import TerminationSignal

from flows.runtime.links import where_to_look
from flows.stages import summary as reporting
from slmsearch.config import PathsConfig, RunConfig, TrackingConfig


@pytest.mark.usefixtures("prefect_harness")
def test_a_report_that_fails_is_a_warning_and_costs_the_run_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("nobody thought\nof this")

    monkeypatch.setattr(reporting, "report_task", fail)
    monkeypatch.setattr(reporting, "report_page_task", fail)
    recorded: list[dict[str, Any]] = []
    tracker = SimpleNamespace(record_json=lambda run_id, summary, name: recorded.append(dict(summary)), experiment_id="1")
    run: Any = SimpleNamespace(run_id="r", config=RunConfig(), lineage={"train_key": "k"}, tracker=tracker)
    ids = {"mlflow_experiment_id": "1", "mlflow_run_id": "r", "flow_run_id": "f"}

    @flow
    def concluding() -> dict[str, Any]:
        summary: dict[str, Any] = {"decision": "promote", "evaluations": {}, **ids}
        reporting.leave_reports(run, summary)
        return summary

    state = concluding(return_state=True)
    summary = state.result()
    assert state.is_completed()
    said = "ZeroDivisionError: nobody thought of this; make it again with `slmsearch report latest`"
    assert summary["warnings"] == [f"tables and figures: {said}", f"report page: {said}"]
    assert recorded == [summary], "MLflow has the warnings too"
    assert f"warning  report page: {said}" in where_to_look(PathsConfig(), TrackingConfig(), summary)
    assert "report page: ZeroDivisionError" in caplog.text


def make_stop() -> BaseException:
    return TerminationSignal(signal=signal.SIGTERM)


@pytest.mark.parametrize("stop", [make_stop, KeyboardInterrupt])
@pytest.mark.parametrize("explicit", [True, False])
def test_told_to_stop_while_a_library_is_imported_a_run_does_not_go_on(stop: Any, explicit: bool) -> None:
    told = stop()
    warnings: list[str] = []
    with pytest.raises(type(told)) as caught, reporting.tolerated("report page", warnings):
        try:
            raise told
        except BaseException as error:
            if explicit:
                raise ImportError("initialization failed") from error
            raise ImportError("initialization failed")  # noqa: B904
    assert caught.value is told
    assert warnings == []


def test_an_error_after_something_else_that_ended_is_an_error() -> None:
    try:
        try:
            raise SystemExit(1)
        except SystemExit:
            raise ValueError("a parser that calls exit") from None
    except ValueError as error:
        assert reporting.find_stop(error) is None
