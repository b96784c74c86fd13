"""Commands in this process, on a small corpus, with an embedder that needs no model."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from flows.cli.commands import bench, sandbox  # noqa: F401  commands of extensions, which the command line loads when they run
from flows.cli.groups import ENTRY_POINTS, EXTENSIONS, SECTIONS
from flows.cli.main import cli
from flows.cli.session import ops
from slmsearch.config import RunConfig
from slmsearch.errors import NotWorthItError
from slmsearch.evaluate.forecast import Expected, Forecast, Start, Training
from slmsearch.extensions.bench.result import Result
from tests.flows.fakes import WordEmbedder, write_corpus
from tests.loopback import listening

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command; return exit code, stdout and stderr."""
    embedder = WordEmbedder()
    for module in ("slmsearch.retrieval.build", "slmsearch.retrieval.search"):
        monkeypatch.setattr(f"{module}.load_embedder", lambda config: embedder)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli(arguments, prog_name="slmsearch")
        code = ended.value.code
        out, err = capfd.readouterr()
        assert code is None or isinstance(code, int)
        return code or 0, out, err

    return run


def flags(corpus: dict[str, str]) -> list[str]:
    return [part for name, path in corpus.items() for part in (f"--corpus.{name}", path)]


def test_setup_validates_and_indexes_and_search_finds(invoke: Invoke, tmp_path: Path) -> None:
    corpus = flags(write_corpus(tmp_path))
    code, out, err = invoke("setup", "--json", *corpus)
    assert code == 0, err
    result = json.loads(out)
    assert result["valid"]
    assert result["index"]["pages"] == 30

    code, out, _ = invoke("search", "TownC2", "--json", "--top-k", "2")
    assert code == 0
    found = json.loads(out)
    assert found["index_key"] == result["index"]["key"], "the current version"
    assert found["hits"][0]["page_id"] == "p2"
    assert len(found["hits"]) == 2

    code, out, _ = invoke("search", "TownC2", *corpus)
    assert code == 0
    assert "p2: TownC2" in out
    code, out, _ = invoke("index", "list")
    assert out.startswith(f"* {result['index']['key']}")


def test_the_next_command_has_the_same_settings_but_no_secret(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "my pages"
    folder.mkdir()
    corpus = write_corpus(folder)
    secrets = ("--judge.api_key", "s3cret", "--planner.worker", '{"api_key": "s3cret"}', "--judge.base_url", "http://me:pw@here/v1")
    code, out, err = invoke("setup", *flags(corpus), *secrets)
    assert code == 0, err
    first, second = out.splitlines()[-1].removeprefix("next").strip().split("; ")
    given = [*(f"--corpus.{name}={path}" for name, path in corpus.items()), "--judge.base_url=http://here/v1"]
    assert shlex.split(first) == ["slmsearch", "search", "a query", *given]
    assert shlex.split(second) == ["slmsearch", "run", "train-and-eval", *given]


@pytest.mark.parametrize("command", [["init"], ["world", "--pages", "40", "--out"]])
def test_a_command_to_copy_takes_a_folder_with_a_space(invoke: Invoke, tmp_path: Path, command: list[str]) -> None:
    folder = tmp_path / "my project"
    code, out, err = invoke(*command, str(folder))
    assert code == 0, err
    assert shlex.split(out.splitlines()[-1])[-1].startswith(str(folder))


def test_setup_can_stop_before_the_index_and_puts_data_where_it_is_told(invoke: Invoke, tmp_path: Path) -> None:
    code, out, _ = invoke("setup", "--skip-index", "--json", "--data-dir", str(tmp_path / "elsewhere"), *flags(write_corpus(tmp_path)))
    assert code == 0
    assert "index" not in json.loads(out)
    assert (tmp_path / "elsewhere" / "corpora" / json.loads(out)["data_digest"] / "manifest.json").is_file()


def test_setup_of_the_sandbox_says_that_there_is_none(invoke: Invoke) -> None:
    code, out, _ = invoke("setup", "--sandbox-only")
    assert code == 0
    assert "Nothing to prepare" in out


def test_dev_takes_ten_pages(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEV", "1")
    code, out, err = invoke("index", "build", "--json", *flags(write_corpus(tmp_path)))
    assert code == 0, err
    assert json.loads(out)["pages"] == 10


def spoil_first_page(corpus: dict[str, str], change: Callable[[list[str]], list[str]]) -> None:
    path = Path(corpus["pages"])
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda lines: [], "no pages"),
        (lambda lines: [lines[0], *lines], "more than once"),
        (lambda lines: [lines[0][:20] + "\n", *lines[1:]], "broken JSON"),
        (lambda lines: [lines[0].replace('"title"', '"titel"'), *lines[1:]], "title"),
    ],
    ids=["empty", "duplicate id", "broken line", "missing field"],
)
@pytest.mark.parametrize("command", [("validate",), ("index", "build")])
def test_bad_pages_are_one_line_and_leave_nothing_behind(
    invoke: Invoke, tmp_path: Path, isolated_environment: Path, command: tuple[str, ...], change: Any, named: str
) -> None:
    corpus = write_corpus(tmp_path)
    spoil_first_page(corpus, change)
    code, out, err = invoke(*command, *flags(corpus))
    assert code == 3
    assert out == ""
    assert named in err
    assert len(err.strip().splitlines()) == 1
    data = isolated_environment / "data"
    assert not (data / "index" / "CURRENT").exists()
    assert [path for path in data.rglob("pages.jsonl")] == []


def test_critical_findings_are_shown_with_rows_and_exit_1(invoke: Invoke, tmp_path: Path, isolated_environment: Path) -> None:
    def spoil(questions: list[dict[str, Any]]) -> None:
        questions[3]["page_ids"] = ["nowhere"]

    corpus = flags(write_corpus(tmp_path, spoil))
    code, out, _ = invoke("validate", *corpus)
    assert code == 1
    assert "not in the corpus" in out
    assert "q3" in out
    told = json.loads(invoke("validate", "--json", *corpus)[1])
    assert told["ok"] is False and told["findings"][0]["severity"] == "critical"
    code, out, err = invoke("setup", "--json", *corpus)
    assert code == 1
    assert json.loads(out)["valid"] is False
    assert "q3" in err
    assert not (isolated_environment / "data" / "index").exists()


def test_a_full_disk_is_said_before_anything_is_embedded(
    invoke: Invoke, tmp_path: Path, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = flags(write_corpus(tmp_path))
    code, out, _ = invoke("index", "build", "--json", *corpus)
    before = json.loads(out)["key"]
    nothing_free = type("Usage", (), {"free": 0})
    monkeypatch.setattr("slmsearch.retrieval.build.shutil.disk_usage", lambda path: nothing_free)
    code, _, err = invoke("index", "build", *corpus, "--retrieval.max_passage_chars", "60")
    assert code == 3
    assert "disk space" in err
    index = isolated_environment / "data" / "index"
    assert (index / "CURRENT").read_text().strip() == before
    assert [path.name for path in index.iterdir() if path.is_dir()] == [before]


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["config", "--train.stepz", "3"], 2, "did you mean train.steps"),
        (["config", "--config", "missing.yaml"], 2, "missing.yaml does not exist"),
        (["config", "--train.steps"], 2, "needs a value"),
        (["config", "--nonsense"], 2, "No such option"),
        (["nonsense"], 2, "No such command"),
        (["run", "nonsense"], 2, "train-and-eval"),
        (["run", "evaluate", "--live"], 2, "--live shows a training, and evaluate has none; leave it out"),
        (["run", "refresh"], 2, "refresh reads the documents that corpus.pages names"),
        (["train", "--live-plot"], 2, "No such option"),
        (["up", "--port", "5000"], 2, "Prefect and MLflow cannot share port 5000"),
        (["search", "anything"], 3, "slmsearch setup"),
        (["search", "anything", "--index", "../.."], 3, "no index key"),
        (["index", "build", "--corpus.pages", "gone.jsonl"], 3, "gone.jsonl"),
        (["validate", "--corpus.pages", "hub:rajpurkar/squad"], 3, "hub:rajpurkar/squad cannot be loaded (Cannot reach"),
        (["compare", "one", "two"], 3, "no evaluation 'one'"),
        (["report"], 2, "Missing argument 'RUN...'"),
        (["report", "latest", "--episodes", "-1"], 2, "-1 is not in the range"),
        (["report", "latest", "--figure", "x.pdf"], 2, "x.pdf has no suffix of a picture that can be written; name it .png or .svg"),
        (["report", "latest", "--figure", "x.png", "--output", "y.html"], 2, "leave them out with --figure"),
        (["report", "latest", "--figure", "x.png"], 3, "MLflow holds no run of a flow yet"),
        (["run", "validate", "--corpus.pages", "gone.jsonl"], 3, "gone.jsonl does not exist"),
        (
            ["run", "train-and-eval", "--decision.metric", "answer/words"],
            2,
            "decision.metric 'answer/words' is no mean over questions; use one",
        ),
        (["run", "train-and-eval", "--policy.model", "data/no/model"], 3, "no model at"),
        (["train", "--policy.model", "data/no/model"], 3, "no model at"),
    ],
)
def test_failures_have_an_exit_code_and_a_line_that_says_what_to_do(invoke: Invoke, arguments: list[str], code: int, named: str) -> None:
    found, out, err = invoke(*arguments)
    assert found == code, err
    assert named in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize("group", [[], ["index"], ["bench"], ["ops"]])
def test_an_unknown_command_is_told_in_json_where_that_is_wanted(invoke: Invoke, group: list[str]) -> None:
    code, out, _ = invoke(*group, "nonsense", "--json")
    assert code == 2 and json.loads(out) == {"error": "No such command 'nonsense'.", "boundary": "usage"}


def test_a_measurement_that_cannot_be_stored_is_printed(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("slmsearch.extensions.bench.false_alarms.run_nightly", lambda *_: Result({"nights": 5}, notes=("five nights",)))
    code, out, err = invoke("bench", "nightly", "--paths.mlruns_dir", str(tmp_path / "file"))
    assert code == 3 and "five nights" in out
    assert err.endswith(f"{tmp_path / 'file' / 'bench'}; check the path\n")


@pytest.mark.parametrize(("worth_it", "code"), [(True, 0), (False, 1), (None, 3)])
def test_a_forecast_says_by_its_exit_code_whether_to_train(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, worth_it: bool | None, code: int
) -> None:
    gain, beyond = Expected(0.03, 0.01, 0.05), ("size of the model",) if worth_it is None else ()
    start = Start(0.25, (4, 2, 2))
    told = Forecast(gain, 0.25, gain, worth_it, beyond, 60.0, 0.25, start, Training(40, 8, 8, 1e-3, 10**6)).to_dict()
    monkeypatch.setattr("flows.ops.runner.run_flow", lambda *_: told)
    ended, out, _ = invoke("forecast", "--json")
    assert (ended, json.loads(out)) == (code, told)
    assert {"gain", "headroom", "sft_continued", "worth_it", "seconds"} <= told.keys()
    ended, out, _ = invoke("forecast")
    assert ended == code
    assert re.search({True: r"worth it +yes", False: r"worth it +no$", None: r"worth it .*size of the model"}[worth_it], out, re.M)


def test_a_training_that_is_held_ends_with_exit_code_1(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(flow: str, config: RunConfig, *_: object) -> None:
        assert config.forecast.if_worth_it
        raise NotWorthItError("not trained: GRPO is expected to bring +0.1")

    monkeypatch.setattr("flows.ops.runner.run_flow", hold)
    code, out, err = invoke("run", "train-and-eval", "--if-worth-it", "--json")
    assert code == 1 and "not trained" in json.loads(out)["error"] and "slmsearch: not trained" in err


@pytest.mark.parametrize("section", ["corpus: {limit_pages: 5}", "policy: {adapter: mine}"])
def test_trainings_with_corpora_of_their_own_refuse_that_of_a_settings_file(invoke: Invoke, tmp_path: Path, section: str) -> None:
    (tmp_path / "own.yaml").write_text(section)
    code, _, err = invoke("bench", "forecast", "--config", str(tmp_path / "own.yaml"))
    assert code == 2 and "leave it out" in err


@pytest.mark.parametrize(
    ("variable", "address", "named"),
    [
        ("PREFECT_API_URL", "http://127.0.0.1:9/api", "no Prefect API answers at http://127.0.0.1:9/api"),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:9", "no MLflow server answers at http://127.0.0.1:9"),
    ],
)
def test_an_unreachable_server_is_named_at_once(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, variable: str, address: str, named: str
) -> None:
    monkeypatch.setenv(variable, address)
    code, _, err = invoke("run", "validate")
    assert code == 3
    assert named in err
    assert "Traceback" not in err


def test_a_refused_password_is_named_at_once(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    class Prefect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 401)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with listening(Prefect) as address:
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        code, _, err = invoke("run", "validate")
    assert code == 3 and "refuses the password; set PREFECT_API_AUTH_STRING" in err and "Traceback" not in err


def test_a_tiny_model_is_made_for_the_configured_environment(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(config: RunConfig, target: Path, on_phase: Any) -> dict[str, Any]:
        made.append(target.name)
        return {"parameters": 1, "seconds": 1.0}

    monkeypatch.setattr("slmsearch.training.bootstrap.bootstrap", make)
    for words in (["--config", "demo-planner"], ["searcher", "--config", "demo-planner"], []):
        code, _, err = invoke("bootstrap", *words)
        assert code == 0, err
    assert made == ["tiny-planner", "tiny-searcher", "tiny-searcher"]


def test_an_unforeseen_error_is_told_from_a_finding(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr("flows.runtime.settings.masked", explode)
    code, out, err = invoke("config", "--json")
    assert code == 70
    assert "Traceback" in err
    assert json.loads(out)["boundary"] == "ZeroDivisionError"


def test_two_stored_evaluations_are_compared_and_a_loss_is_exit_1(invoke: Invoke, tmp_path: Path) -> None:
    from dataclasses import asdict

    from tests.slmsearch.evaluate.builders import make

    for name, right in (("good", True), ("bad", False)):
        rows = [make(f"q{i}", right or i < 5) for i in range(40)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in ("good", "bad")}
    code, out, _ = invoke("compare", paths["bad"], paths["good"], "--decision.min_questions", "20")
    assert code == 0
    assert "promote" in out
    code, out, _ = invoke("compare", paths["good"], paths["bad"], "--json", "--decision.min_questions", "20")
    assert code == 1
    assert json.loads(out)["decision"] == "reject"


def test_report_takes_a_run_and_says_where_it_went(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"page": "/r/x.html", "bytes": 1_500_000, "artifact": "report/report.html", "warnings": ["x: evaluation of random is gone"]}
    asked: list[Any] = []
    runs = [{"run_id": "abcdef0123", "name": "clever-otter", "decision": "promote"}]
    monkeypatch.setattr(
        "tasks.runs.make_page", lambda names, paths, tracking, output, episodes: asked.append((names, episodes)) or {**made, "runs": runs}
    )
    code, out, err = invoke("report", "latest", "abcd", "--episodes", "20")
    assert (code, asked) == (0, [(("latest", "abcd"), 20)])
    assert out == "/r/x.html (1.5 MB), in MLflow as report/report.html\n  clever-otter  abcdef01  promote\n"
    assert "warning: x: evaluation of random is gone" in err


def test_the_help_shows_every_command_once_and_bare_names_stay(invoke: Invoke) -> None:
    shown = [name for names in SECTIONS.values() for name in names]
    assert sorted(shown) == sorted(name for name, command in cli.commands.items() if not command.hidden)
    assert {name: cli.commands[name].get_short_help_str(60) for name in EXTENSIONS} == EXTENSIONS
    assert {(entry.name, entry.load()) for entry in entry_points(group=ENTRY_POINTS)} == {(name, cli.commands[name]) for name in EXTENSIONS}
    assert sorted(shown) == [name for name in cli.list_commands(click.Context(cli)) if not cli.commands[name].hidden]
    code, out, _ = invoke("--help")
    assert code == 0 and len(out.splitlines()) <= 58 and all(title in out for title in SECTIONS)
    for name in ops.commands:
        assert f"\n  {name} " not in out
        assert invoke(name, "--help")[0] == invoke("ops", name, "--help")[0] == 0


def groups(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from groups(command, (*path, name))


@pytest.mark.parametrize("path", list(groups(cli)), ids=" ".join)
def test_no_description_is_cut_at_80_columns(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).output
    assert "..." not in shown.partition("Options:")[2], shown
