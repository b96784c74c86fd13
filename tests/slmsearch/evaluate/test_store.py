"""Stored evaluations: what comes back, and what is refused."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from slmsearch.episodes.episode import Turn
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.store import Evaluation, has_evaluation, load_evaluation, load_rows, write_evaluation
from tests.slmsearch.evaluate.builders import make, play, read, say, search

ROWS = (make("q1", answer="Zoë\u2028\ud800"), make("q2", False, first_hit=None))
EPISODES = (
    play(
        search("ada"), read("ada:life"), Turn("a", answer="1815", context_ids=(1, 2), sampled_ids=(3,)), prompt_ids=(9, 8), sampled_tokens=1
    ),
    play(say("no"), question_id="q2", seconds=0.1 + 0.2),
)
EVALUATION = Evaluation(ROWS, EPISODES, summarise(ROWS), summarise_slices(ROWS), 1.25)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = write_evaluation(tmp_path, "key", EVALUATION, {"index_key": "abc"})
    assert path == tmp_path / "key"
    assert load_evaluation(tmp_path, "key") == EVALUATION
    assert load_rows(path) == list(ROWS)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["key"], manifest["n"], manifest["sources"]) == ("key", 2, {"index_key": "abc"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]  # no temporary directory is left


def test_log_probabilities_are_not_stored(tmp_path: Path) -> None:
    episode = play(Turn("a", answer="x", sampled_ids=(3,), sampled_logprobs=(-0.5,)))
    write_evaluation(tmp_path, "key", Evaluation((ROWS[0],), (episode,), {}, {}, 0.0), {})
    assert load_evaluation(tmp_path, "key").episodes[0].turns[0].sampled_logprobs == ()


def test_a_complete_evaluation_is_never_overwritten(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "key", EVALUATION, {})
    write_evaluation(tmp_path, "key", Evaluation((), (), {}, {}, 0.0), {})
    assert load_evaluation(tmp_path, "key") == EVALUATION


def test_a_directory_without_manifest_does_not_count_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "rows.jsonl").write_text("half a li")
    assert not has_evaluation(tmp_path, "key")
    with pytest.raises(EvaluationError, match="no complete evaluation"):
        load_evaluation(tmp_path, "key")
    write_evaluation(tmp_path, "key", EVALUATION, {})
    assert load_evaluation(tmp_path, "key") == EVALUATION


@pytest.mark.parametrize("name", ["rows.jsonl", "episodes.jsonl", "metrics.json"])
def test_damage_is_noticed(tmp_path: Path, name: str) -> None:
    path = write_evaluation(tmp_path, "key", EVALUATION, {}) / name
    path.write_text(path.read_text().replace("0", "1", 1))
    with pytest.raises(EvaluationError, match=name):
        load_evaluation(tmp_path, "key")
    path.unlink()
    with pytest.raises(EvaluationError, match=name):
        load_evaluation(tmp_path, "key")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', "\x00"])
def test_a_damaged_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    (write_evaluation(tmp_path, "key", EVALUATION, {}) / "manifest.json").write_text(text)
    with pytest.raises(EvaluationError, match="no complete evaluation"):
        load_evaluation(tmp_path, "key")


def test_damaged_lines_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text in ('{"question_id": "q1"}\n', "not json\n", "[1]\n"):
        path.write_text(text)
        with pytest.raises(EvaluationError):
            load_rows(path)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(EvaluationError, match=r"No space left.*free disk space"):
        write_evaluation(tmp_path, "key", EVALUATION, {})
    assert list(tmp_path.iterdir()) == []


def test_stored_files_are_plain_json_lines(tmp_path: Path) -> None:
    path = write_evaluation(tmp_path, "key", EVALUATION, {})
    lines = (path / "episodes.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["question_id"] for line in lines] == ["q1", "q2"]
