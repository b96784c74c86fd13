"""Stored evaluations: immutable directories named by a key of their inputs.

    <evals_dir>/<key>/{rows.jsonl, episodes.jsonl, metrics.json, manifest.json}

A directory is written under a temporary name and renamed once its manifest, the last file, is complete; readers ignore one without a
manifest. Log-probabilities of episodes are not stored, because no code reads them after an evaluation.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from slmsearch.artifacts.directories import publish, staging_directory
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.rows import EpisodeRow, row_from_dict
from slmsearch.errors import EvaluationError
from slmsearch.foreign import cause_of
from slmsearch.keys import file_key

ROWS, EPISODES, METRICS_FILE, MANIFEST = "rows.jsonl", "episodes.jsonl", "metrics.json", "manifest.json"
_EPISODE = TypeAdapter(Episode)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation of one policy."""

    rows: tuple[EpisodeRow, ...]
    """Rows, one per question, in the order of the questions."""
    episodes: tuple[Episode, ...]
    """Episodes, one per row."""
    metrics: dict[str, float]
    slices: dict[str, dict[str, float]]
    seconds: float
    """Wall time of playing and grading, in seconds."""


def has_evaluation(evals_dir: Path, key: str) -> bool:
    """Return whether a complete evaluation is stored under a key, with its files unchanged."""
    directory = evals_dir / key
    try:
        return all(file_key(directory / name) == digest for name, digest in _read_digests(directory).items())
    except (EvaluationError, OSError):
        return False


def write_evaluation(evals_dir: Path, key: str, evaluation: Evaluation, sources: Mapping[str, object], corpus: str = "") -> Path:
    """Store an evaluation; a complete one under the same key is left unchanged.

    The manifest names the inputs of the key (`sources`), so that the lineage can be followed, and the digest of the corpus that the
    questions were first taken from, because the key covers only the questions.

    Raises:
        EvaluationError: the evaluation cannot be written; no partial directory is left.
    """
    final = evals_dir / key
    if has_evaluation(evals_dir, key):
        return final
    try:
        with staging_directory(evals_dir, key) as staging:
            _write_files(staging, key, evaluation, sources, corpus)
            publish(staging, final, lambda _: has_evaluation(evals_dir, key))
    except OSError as error:
        raise EvaluationError(f"cannot store evaluation {key} in {evals_dir} ({error}); free disk space or fix permissions") from error
    return final


def load_evaluation(evals_dir: Path, key: str) -> Evaluation:
    """Load a stored evaluation after checking its files against the manifest.

    Raises:
        EvaluationError: the evaluation is missing, incomplete or damaged.
    """
    directory = evals_dir / key
    for name, digest in _read_digests(directory).items():
        if not (directory / name).is_file() or file_key(directory / name) != digest:
            raise EvaluationError(f"{directory / name} is missing or was changed since it was written; delete {directory}, evaluate again")
    stored = json.loads((directory / METRICS_FILE).read_text(encoding="utf-8"))
    episodes = tuple(episode_from_dict(values) for values in _read_lines(directory / EPISODES))
    return Evaluation(tuple(load_rows(directory)), episodes, stored["metrics"], stored["slices"], stored["seconds"])


def _read_digests(directory: Path) -> dict[str, str]:
    """Return the files of a stored evaluation with their digests, as its manifest names them."""
    try:
        return dict(json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvaluationError(f"{directory} holds no complete evaluation ({type(error).__name__}); evaluate again") from error


def load_rows(path: Path) -> list[EpisodeRow]:
    """Load rows from a stored evaluation's directory or from a `rows.jsonl`.

    Raises:
        EvaluationError: the file is missing or a line is not a row.
    """
    return [row_from_dict(values) for values in _read_lines(path / ROWS if path.is_dir() else path)]


def episode_to_dict(episode: Episode) -> dict[str, object]:
    """Convert an episode to JSON-serialisable values, without log-probabilities."""
    values = asdict(episode)
    for turn in values["turns"]:
        del turn["sampled_logprobs"]
        for name in ("program", "quotation"):  # the keys are left out, as in older files
            if turn[name] is None:
                del turn[name]
        for name in ("made", "tokens", "scores"):  # likewise: only programs, planners and searches have these
            if turn["result"] is not None and not turn["result"][name]:
                del turn["result"][name]
    return values


def episode_from_dict(values: Mapping[str, object]) -> Episode:
    """Convert stored values back to an episode.

    Raises:
        EvaluationError: the values are not those of an episode.
    """
    try:
        return _EPISODE.validate_python(values)
    except ValueError as error:
        raise EvaluationError(f"a stored episode is damaged ({cause_of(error)}); delete the evaluation and evaluate again") from error


def _write_files(directory: Path, key: str, evaluation: Evaluation, sources: Mapping[str, object], corpus: str) -> None:
    _write_lines(directory / ROWS, map(asdict, evaluation.rows))
    _write_lines(directory / EPISODES, map(episode_to_dict, evaluation.episodes))
    summary = {"metrics": evaluation.metrics, "slices": evaluation.slices, "seconds": evaluation.seconds}
    (directory / METRICS_FILE).write_text(_to_json(summary) + "\n", encoding="utf-8")
    digests = {name: file_key(directory / name) for name in (ROWS, EPISODES, METRICS_FILE)}
    manifest = {"key": key, "n": len(evaluation.rows), "files": digests, "sources": dict(sources), "corpus": corpus}
    (directory / MANIFEST).write_text(_to_json(manifest) + "\n", encoding="utf-8")


def _to_json(value: object) -> str:
    # ASCII, because a served model may answer with lone surrogates, which JSON can escape but UTF-8 cannot hold.
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _write_lines(path: Path, values: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{_to_json(value)}\n" for value in values)


def _read_lines(path: Path) -> list[dict[str, object]]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise EvaluationError(f"cannot read stored results from {path} ({error}); evaluate again") from error
