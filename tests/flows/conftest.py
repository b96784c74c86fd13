"""One empty MLflow store for all tests of flows: its tables take seconds to make."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def empty_store(empty_stores: Path) -> Path:
    return empty_stores / "mlflow.db"
