"""One empty MLflow store for all tests of flows: its tables take seconds to make."""

from pathlib import Path

import pytest
from mlflow import MlflowClient


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
