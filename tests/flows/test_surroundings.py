"""What libraries find in the environment, and on disk."""

import os
from pathlib import Path
from unittest.mock import patch

from flows.surroundings import prepare_surroundings
from slmsearch.config import RunConfig


def test_prefect_can_make_its_home_in_a_data_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    config = RunConfig(paths={"data_dir": str(tmp_path / "a" / "data")})  # type: ignore[arg-type]
    with patch.dict(os.environ):
        del os.environ["PREFECT_HOME"]
        prepare_surroundings(config, {})
        assert Path(os.environ["PREFECT_HOME"]) == tmp_path / "a" / "data" / "prefect"
    assert (tmp_path / "a" / "data").is_dir()


def test_what_the_user_has_set_stands(tmp_path: Path) -> None:
    with patch.dict(os.environ, {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}):
        os.environ.pop("MLFLOW_LOGGING_LEVEL", None)  # a test before may have prepared the process
        prepare_surroundings(RunConfig(), {"PREFECT_HOME": str(tmp_path / "elsewhere"), "MLFLOW_LOGGING_LEVEL": "INFO"})
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "3"
        assert os.environ["MLFLOW_LOGGING_LEVEL"] == "INFO"
