"""A real store of MLflow for the tests of one file."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from tasks.tracking import Tracker


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlruns")


@pytest.fixture
def tracker(store: Path, request: pytest.FixtureRequest) -> Iterator[Tracker]:
    """One experiment per test in one store, whose tables take seconds to make."""
    mlflow.set_tracking_uri(None)
    yield Tracker(f"sqlite:///{store}/mlflow.db", request.node.name[:60], store)
