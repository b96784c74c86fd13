import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flows.cli.session import exit_code, split_overrides
from slmsearch import errors

HEAVY = "torch trl transformers mlflow prefect great_expectations sentence_transformers chromadb pandas pydantic".split()  # noqa: SIM905
COMMANDS = "setup world validate index reindex search evaluate train bootstrap compare run up config".split()  # noqa: SIM905


def slmsearch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables})


@pytest.mark.parametrize(
    ("arguments", "own", "overrides"),
    [
        (["--train.steps", "5", "--json"], ["--json"], ["--train.steps=5"]),
        (["query", "--train.steps=5"], ["query"], ["--train.steps=5"]),
        (["--reward.malformed", "-0.5"], [], ["--reward.malformed=-0.5"]),
        (["--train.group-size", "4"], [], ["--train.group_size=4"]),
        (["--searcher.system_prompt", ""], [], ["--searcher.system_prompt="]),
        (["--searcher.system_prompt=a b=c --d"], [], ["--searcher.system_prompt=a b=c --d"]),
        (["--limit", "5", "a.b"], ["--limit", "5", "a.b"], []),
        (["--", "--train.steps"], ["--", "--train.steps"], []),
    ],
)
def test_dotted_flags_are_separated_from_the_commands_own(arguments: list[str], own: list[str], overrides: list[str]) -> None:
    assert split_overrides(arguments) == (own, overrides)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_of_the_output_that_has_gone_is_no_finding(form: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "flows", "config", *form]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE and not done.stderr


@pytest.mark.parametrize("arguments", [["--train.steps"], ["--train.steps", "--json"]])
def test_a_dotted_flag_without_a_value_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError, match=r"--train\.steps needs a value"):
        split_overrides(arguments)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.CorpusError("x"), 3),
        (errors.InvalidDataError("x"), 1),
        (errors.ServiceError("x"), 3),
        (errors.ModelError("x"), 3),
        (errors.IndexUnusableError("x"), 3),
        (OSError(28, "No space left on device"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: errors.SlmSearchError | OSError, code: int) -> None:
    assert exit_code(error) == code


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, flows.cli.main\n"
        "try: flows.cli.main.cli(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


def test_json_is_one_object_on_stdout(tmp_path: Path) -> None:
    done = slmsearch("config", "--json", "--train.steps", "7", SLMSEARCH_JUDGE__API_KEY="s3cret")
    assert done.returncode == 0
    assert json.loads(done.stdout)["train"]["steps"] == 7
    assert "s3cret" not in done.stdout


def test_progress_and_prints_do_not_reach_stdout(tmp_path: Path) -> None:
    done = slmsearch("world", "--pages", "40", "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "num_pages": 40,
        "seed": 11,
        "pages": str(tmp_path / "pages.jsonl"),
        "questions": str(tmp_path / "questions.jsonl"),
    }
    assert len((tmp_path / "pages.jsonl").read_text().splitlines()) == 40


def test_a_failure_with_json_is_one_object_too() -> None:
    done = slmsearch("config", "--json", "--train.steps", "many")
    assert done.returncode == 2
    failure = json.loads(done.stdout)
    assert failure["boundary"] == "config"
    assert "train.steps" in failure["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pages", "--json"], "Missing argument 'FOLDER'."),
        (["config", "--train.steps", "--json"], "--train.steps needs a value"),
        (["run", "refresh", "--json"], "refresh reads the documents that corpus.pages names"),
    ],
)
def test_wrong_usage_with_json_is_one_object_too(arguments: list[str], said: str) -> None:
    done = slmsearch(*arguments)
    assert done.returncode == 2 and said in done.stderr
    failure = json.loads(done.stdout)
    assert failure["boundary"] == "usage" and failure["error"].startswith(said)


def test_a_file_that_cannot_be_reached_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "gone", tmp_path / "file" / "below"):
        done = slmsearch("bundle", "--target", str(path), "--out", str(tmp_path / "out"))
        assert done.returncode == 3
        assert done.stderr.endswith(f": {path}; check the path\n")


SLOW = """
import sys
import click
from flows.cli.main import cli
from flows.cli.session import Session, command
from tasks import progress

progress.LINE_SECONDS = 0.05

@command(cli, "slow")
@click.option("--counted", is_flag=True)
def slow(session: Session, counted: bool) -> None:
    if counted:
        with progress.Progress("index", "passages") as shown:
            shown(0, 3000)
            sys.stdin.readline()
    else:
        sys.stdin.readline()
    session.finish({"done": True}, "done")

@command(cli, "forever", endless=True)
def forever(session: Session) -> None:
    session.say("ready")
    sys.stdin.readline()
    session.finish({"done": True}, "done")

cli(sys.argv[1:], prog_name="slmsearch")
"""


@pytest.mark.parametrize(
    ("arguments", "first"), [(["slow"], "slow: 0 s so far"), (["slow", "--counted"], "index: 0 of 3,000 passages, 0 s so far")]
)
def test_long_work_says_how_far_it_is_and_stdout_stays_one_object(arguments: list[str], first: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline().rstrip("\n") == first  # it comes while the command still works
        out, _ = child.communicate("go on\n", timeout=60)
    assert json.loads(out) == {"done": True} and child.returncode == 0


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")])
def test_a_command_that_a_signal_ended_is_one_object_too(number: signal.Signals, code: int, said: str) -> None:
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job of a shell ignores Ctrl-C
    command = [sys.executable, "-c", heard + SLOW, "slow", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        child.stderr.readline()
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    assert child.returncode == code
    assert json.loads(out)["error"] == said
    assert err.splitlines()[-1] == f"slmsearch: {said}"


def test_a_command_that_waits_for_others_says_nothing_of_its_own_progress() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW, "forever"], input="\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "ready\n")
