"""The nightly flow without Prefect: what it plays, what it compares with, whom it tells; and the gate when two trainings end together."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from prefect.client.schemas.objects import State
from pydantic import SecretStr

from flows import nightly as module
from flows.cli.main import cli
from flows.nightly import nightly, post_alarm
from flows.runtime.automations import ENDED, REGRESSED
from flows.stages import pipeline
from flows.train import train_and_eval
from slmsearch.config import RunConfig
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import EvaluationError, ModelError
from slmsearch.evaluate import run as playing
from slmsearch.evaluate.nights import load_nights
from slmsearch.retrieval.versions import current_key
from tasks import nights as judging
from tasks.nights import accept_night, nights_dir
from tasks.retention import in_use
from tasks.tracking import PromotionEvent, move_champion, open_tracker, read_promotions
from tests.flows.fakes import FakeTraining
from tests.flows.plain import plain, small_run, without_prefect

FIRST = date(2026, 11, 1)
SMALL = {"decision": {"min_questions": 20}, "nightly": {"fresh_pages": 40}}


class Webhook(HTTPServer):
    """Takes alarms and answers as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taken)
        self.status, self.taken = 200, list[dict[str, Any]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?key=secret"


class Taken(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        self.server.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[Webhook]:
    with Webhook() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def hook(server: Webhook) -> Webhook:
    server.status = 200
    server.taken.clear()
    return server


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    told: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(module, "emit", lambda event, _config, payload: told.append((event, payload)))
    return told


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    monkeypatch.setattr(module, "judge_night_task", plain(module.judge_night_task))
    monkeypatch.setattr(module, "show_night", lambda *_: None)
    monkeypatch.setattr(module, "get_run_logger", lambda: SimpleNamespace(warning=lambda *_: None))
    return without_prefect(monkeypatch)


@pytest.fixture
def config(isolated_environment: Path, empty_store: Path, training: FakeTraining, hook: Webhook) -> RunConfig:
    """A champion, promoted by the flow."""
    config = small_run(isolated_environment, empty_store, **SMALL)
    assert train_and_eval.fn(config)["decision"] == "promote"
    return config.model_copy(update={"nightly": config.nightly.model_copy(update={"webhook": SecretStr(hook.url)})})


def play(config: RunConfig, number: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Play a night of a series."""
    monkeypatch.setattr(module, "tonight", lambda: FIRST + timedelta(days=number))
    ended = nightly.fn(config)
    named = isinstance(ended, State)
    result: dict[str, Any] = json.loads(json.dumps(ended.data if named else ended))
    assert named == (result["state"] == "regressed") and (not named or (ended.name, ended.is_completed()) == ("Regressed", True))
    return result


def break_the_champion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "make_policy_sampler", lambda *_: ScriptedSampler(lambda *_: "<answer>I don't know</answer>"))


def other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    known = judging.describe_environment()
    monkeypatch.setattr(judging, "describe_environment", lambda: {**known, "packages": {**known["packages"], "torch": "9.9"}})


def test_a_quiet_series_is_green_and_a_fall_is_told_with_what_changed(
    config: RunConfig, events: list[tuple[str, dict[str, Any]]], hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = current_key(config.paths.index)
    first, second = (play(config, number, monkeypatch) for number in range(2))
    assert [first["state"], second["state"]] == ["green", "green"]
    assert first["night"]["fixed"]["eval_key"] != second["night"]["fixed"]["eval_key"], "played anew"
    assert first["night"]["against"]["promotion"] and second["night"]["against"]["green"] == [first["night"]["night"]]
    assert {test["against"] for test in second["night"]["tests"]} == {"green nights", "promotion", "fresh worlds"}
    assert first["night"]["fresh"]["questions"] != second["night"]["fresh"]["questions"], "another world every night"
    assert current_key(config.paths.index) == before
    assert second["night"]["changes"]["last green night"] == []
    assert [event for event, _ in events] == [ENDED, ENDED] and hook.taken == []

    break_the_champion(monkeypatch)
    other_packages(monkeypatch)
    third = play(config, 2, monkeypatch)
    assert third["state"] == "regressed"
    (told,) = hook.taken
    assert told["state"] == "regressed" and {fall["against"] for fall in told["falls"]} >= {"green nights", "promotion"}
    for name in ("last green night", "promotion"):
        assert [(c["part"], c["name"], c["now"]) for c in told["changes"][name]] == [("packages", "torch", "9.9")]
    assert "packages torch" in told["text"] and "regressed" in told["text"]
    assert [event for event, _ in events[2:]] == [ENDED, REGRESSED] and events[-1][1]["falls"] == told["falls"]
    (latest, *_), odd = load_nights(nights_dir(config.paths, config.tracking))
    assert (latest.state, latest.alarm, odd) == ("regressed", "sent", [])
    assert "secret" not in json.dumps(third)

    fourth = play(config, 3, monkeypatch)
    assert fourth["state"] == "regressed" and fourth["night"]["against"]["last_green"] == second["night"]["night"], "red is no reference"
    with pytest.raises(EvaluationError, match="green already"):
        accept_night(nights_dir(config.paths, config.tracking), first["night"]["night"], "why", "me")
    accept_night(nights_dir(config.paths, config.tracking), fourth["night"]["night"], "the questions were wrong", "me")
    fifth = play(config, 4, monkeypatch)
    assert fifth["night"]["against"]["last_green"] == fourth["night"]["night"]
    assert fifth["state"] == "green" and any("was accepted since the promotion" in note for note in fifth["night"]["notes"])
    kept = in_use(config)["evals"]
    assert {first["night"]["fixed"]["eval_key"], fourth["night"]["fixed"]["eval_key"]} <= set(kept)


def test_a_night_again_is_the_same_night(config: RunConfig, events: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (play(config, 0, monkeypatch) for _ in range(2))
    assert first["night"]["fixed"] == again["night"]["fixed"] and len(load_nights(nights_dir(config.paths, config.tracking))[0]) == 1
    evaluated = set(path.name for path in config.paths.evals.iterdir())
    other_packages(monkeypatch)
    changed = play(config, 0, monkeypatch)
    assert changed["night"]["night"] != first["night"]["night"], "other packages are played again"
    assert {changed["night"]["fixed"]["eval_key"], changed["night"]["fresh"]["eval_key"]}.isdisjoint(evaluated)


def test_without_fresh_worlds_and_champion_a_night_is_still_a_night(
    isolated_environment: Path, empty_store: Path, training: FakeTraining, events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_run(isolated_environment, empty_store, nightly={"fresh_pages": 0})
    result = play(config, 0, monkeypatch)
    assert (result["night"]["policy"], result["night"]["fresh"], result["state"]) == ("untrained", None, "green")
    assert len(result["night"]["notes"]) == 2


def test_a_night_shows_what_answers_rest_on_where_it_is_measured(
    isolated_environment: Path, empty_store: Path, training: FakeTraining, events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "show_night", lambda *given: shown.append(given))
    shown: list[Any] = []
    config = small_run(isolated_environment, empty_store, nightly={"fresh_pages": 0})
    play(config.changed({"evaluate.views": ("whole", "withdrawn")}), 0, monkeypatch)
    ((tables, *_),) = shown
    assert '"I don\'t know" on twins' in tables and "| fixed |" in tables


@pytest.mark.parametrize(
    ("address", "status", "outcome", "calls"),
    [
        ("", 200, "sent", 1),
        ("", 503, "failed: it answered 503", 3),
        ("", 404, "failed: it answered 404", 1),
        ("http://127.0.0.1:9/secret", 200, "failed: ConnectError", 0),
        ("secret", 200, "failed: nightly.webhook is no address; it begins with http:// or https://", 0),
    ],
)
def test_an_alarm_that_cannot_be_delivered_is_said_without_its_address(
    hook: Webhook, address: str, status: int, outcome: str, calls: int
) -> None:
    hook.status = status
    told = post_alarm(address or hook.url, {"text": "x"})
    assert (told, len(hook.taken)) == (outcome, calls)


def test_a_webhook_that_restarts_hears_of_the_night(hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []

    def restart(pause_s: float) -> None:
        paused.append(pause_s)
        hook.status = 200

    hook.status = 503
    monkeypatch.setattr(module, "PAUSES_S", (2.0, 15.0, 0.0))
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=restart))
    assert post_alarm(hook.url, {"text": "x"}) == "sent" and paused == [2.0]


def test_a_night_that_begins_a_day_late_is_left_to_the_next_one(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for hours, late in ((25, True), (23, False)):
        begins = datetime.now(UTC) - timedelta(hours=hours)
        monkeypatch.setattr(pipeline, "flow_run", SimpleNamespace(id="x", scheduled_start_time=begins))
        monkeypatch.setattr(pipeline, "get_run_logger", lambda: SimpleNamespace(warning=lambda *parts: said.append(parts[-1])))
        left = pipeline.leave_out_late()
        assert (left is not None) is late and (left is None or left["state"] == "left out")
    assert len(said) == 1 and said[0].startswith("left out: it was to begin on")


def test_a_webhook_that_is_down_does_not_end_the_night(
    config: RunConfig, events: list[Any], hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.status = 500
    break_the_champion(monkeypatch)
    result = play(config, 0, monkeypatch)
    assert (result["state"], result["night"]["alarm"]) == ("regressed", "failed: it answered 500")


def test_nights_are_listed_and_accepted_by_a_command(config: RunConfig, events: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    break_the_champion(monkeypatch)
    night = play(config, 0, monkeypatch)["night"]["night"]
    (nights_dir(config.paths, config.tracking) / "odd.json").write_text("{}")
    where = [f"--paths.mlruns_dir={config.paths.mlruns_dir}", f"--paths.data_dir={config.paths.data_dir}"]
    listed = CliRunner().invoke(cli, ["nights", *where])
    assert listed.exit_code == 0 and night in listed.output and "regressed" in listed.output and "odd.json is no record" in listed.output
    assert CliRunner().invoke(cli, ["nights", "--accept", night, *where]).exit_code == 2, "a reason is wanted"
    assert CliRunner().invoke(cli, ["nights", "--accept", "1999", "--reason", "x", *where]).exit_code == 3
    accepted = CliRunner().invoke(cli, ["nights", "--accept", night, "--reason", "known", *where])
    assert accepted.exit_code == 0, accepted.output
    assert load_nights(nights_dir(config.paths, config.tracking))[0][0].accepted["reason"] == "known"


# Two trainings that end together


def test_a_decision_about_a_champion_that_is_no_longer_one_is_taken_again(
    config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.stages import promotion

    tracker, model, compared = open_tracker(config.paths, config.tracking), config.tracking.registered_model, list[str]()

    def another_is_faster(*_: object) -> str:
        compared.append(str((tracker.champion(model) or {})["version"]))
        if len(compared) == 1:  # while this one is compared with champion 1
            made = tracker.client.get_model_version(model, "1")
            rival = tracker.client.create_model_version(model, made.source, made.run_id, {**made.tags, "slmsearch.adapter_hash": "rival"})
            move_champion(tracker, PromotionEvent(model, str(rival.version), "promote", "faster", "another run"), "1")
        return ""

    monkeypatch.setattr(promotion, "_find_objection", another_is_faster)
    training.content = b"another adapter"
    other = config.model_copy(update={"train": config.train.model_copy(update={"seed": 1})})
    summary = train_and_eval.fn(other)
    rival, mine = "3", "2"
    assert compared == ["1", rival], "compared with the new champion, too"
    assert summary["decision"] == "promote"
    assert [(move.previous, move.version) for move in read_promotions(tracker.home, model)] == [(None, "1"), ("1", rival), (rival, mine)]


def test_a_gate_that_cannot_decide_holds(config: RunConfig, training: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.stages import promotion

    def gone(*_: object) -> Any:
        raise ModelError("its adapter cannot be read")

    monkeypatch.setattr(promotion.Champion, "policy", gone)
    training.content = b"another adapter"
    summary = train_and_eval.fn(config.model_copy(update={"train": config.train.model_copy(update={"seed": 1})}))
    assert summary["decision"] == "hold" and "cannot be compared with: its adapter cannot be read" in summary["reason"]
    champion = open_tracker(config.paths, config.tracking).champion(config.tracking.registered_model)
    assert champion is not None and champion["version"] == "1"
    assert champion["slmsearch.promotion_eval_key"]
