"""A registered adapter as a model that MLflow loads: it answers questions.

`mlflow models serve -m models:/NAME@champion --env-manager local` serves it, `mlflow.pyfunc.load_model` loads it. Beside the adapter's
files lie `MLmodel` and the settings that it learnt with. Base, pages and index are those of the data directory: that of the training, or
that of SLMSEARCH_PATHS__DATA_DIR.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import pandas as pd
import yaml
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema

from slmsearch.config import RunConfig
from slmsearch.evaluate.policies import TRAINED, PolicySpec
from slmsearch.models.hashes import trained_policy
from slmsearch.serving.api import playing
from slmsearch.serving.api.playing import Answer, ServedPolicy

SETTINGS = "settings.yaml"
MLMODEL = "MLmodel"
DIGEST, INDEX = "data_digest", "index_key"
"""Keys in the metadata of the model."""
QUESTION = "question"
"""Column of the input."""
DATA_DIR = "SLMSEARCH_PATHS__DATA_DIR"
"""Environment variable with the data directory, where it is not that of the training."""
COLUMNS = {"answer": DataType.string, "stop_reason": DataType.string, "sources": DataType.string}
"""Columns of the output; `sources` is a JSON list of the sections that were read: `section_id`, `page_id`, `heading` and `supports`."""


def write_model(folder: Path, settings: Mapping[str, object], lineage: Mapping[str, str]) -> None:
    """Write into a folder what MLflow and this module need to load an adapter that lies, or will lie, there.

    Args:
        folder: directory of the adapter's files.
        settings: settings of the training, without secrets.
        lineage: keys of the run, `data_digest` and `index_key` among them.
    """
    asked, told = Schema([ColSpec(DataType.string, QUESTION)]), Schema([ColSpec(kind, name) for name, kind in COLUMNS.items()])
    model = Model(signature=ModelSignature(asked, told), metadata={name: lineage[name] for name in (DIGEST, INDEX)})
    mlflow.pyfunc.add_to_model(model, loader_module=__name__)
    model.save(str(folder / MLMODEL))
    (folder / SETTINGS).write_text(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _load_pyfunc(path: str) -> "SearcherModel":
    """Load a folder for MLflow."""
    return SearcherModel(Path(path))


class SearcherModel:
    """A searcher in this process; several may be loaded, of which one plays at a time."""

    _lock = threading.Lock()

    def __init__(self, folder: Path) -> None:
        """Load base, adapter, pages and index.

        Raises:
            SlmSearchError: one of them is missing or does not fit.
        """
        keys = Model.load(str(folder / MLMODEL)).metadata or {}
        settings = yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8"))
        if data_dir := os.environ.get(DATA_DIR):
            settings = _moved(settings, Path(settings["paths"]["data_dir"]), Path(data_dir).absolute())
        config = RunConfig(**settings)
        spec = PolicySpec(TRAINED, trained_policy(config.policy, str(folder)))
        self._batch = config.evaluate.batch_size
        with self._lock:
            playing.load(ServedPolicy(folder.name, spec, config, keys[DIGEST], keys[INDEX]))
            self._policy = playing.take_loaded()

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer the questions of the column `question`, a row each; `answer` is null where there is none."""
        del params
        answers: dict[str, Answer] = {}
        asked = {str(number): str(text) for number, text in enumerate(model_input[QUESTION])}
        names = [*asked]
        with self._lock:
            playing.play_with(self._policy)
            for start in range(0, len(names), self._batch):
                batch = {name: playing.ClientQuestion(asked[name]) for name in names[start : start + self._batch]}
                playing.play(batch, (), on_turn=lambda name, step: None, on_end=answers.__setitem__)
        return pd.DataFrame([_row(answers[name]) for name in names], columns=[*COLUMNS])


def _moved(value: Any, before: Path, now: Path) -> Any:
    """Replace the data directory at the beginning of all paths in settings, such as that of a base that was trained in it."""
    if isinstance(value, dict):
        return {name: _moved(one, before, now) for name, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, before, now) for one in value]
    inside = isinstance(value, str) and Path(value).is_relative_to(before)
    return str(now / Path(value).relative_to(before)) if inside else value


def _row(answer: Answer) -> dict[str, str | None]:
    read = [
        {"section_id": one.section_id, "page_id": one.page_id, "heading": one.heading, "supports": one.supports} for one in answer.sources
    ]
    return {
        "answer": answer.episode.answer,
        "stop_reason": str(answer.episode.stop_reason),
        "sources": json.dumps(read, ensure_ascii=False),
    }
