"""What libraries find in the environment, and on disk."""

import io
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import flows.runtime.process_environment
from flows.runtime.process_environment import prepare_process_environment
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError


def test_prefect_can_make_its_home_in_a_data_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    config = RunConfig(paths={"data_dir": str(tmp_path / "a" / "data")})  # type: ignore[arg-type]
    with patch.dict(os.environ):
        del os.environ["PREFECT_HOME"]
        prepare_process_environment(config, {})
        assert Path(os.environ["PREFECT_HOME"]) == tmp_path / "a" / "data" / "prefect"
    assert (tmp_path / "a" / "data").is_dir()


@pytest.mark.parametrize("name", ["what?", "my%20project", "caf%C3%A9"])
@pytest.mark.parametrize("setting", ["data_dir", "mlruns_dir"])
def test_a_folder_that_no_address_of_a_store_can_name_is_refused(tmp_path: Path, name: str, setting: str) -> None:
    """With `?` the run broke and wrote a store beside the folder; with `%20` its artifacts went to a folder of another name."""
    config = RunConfig(paths={setting: str(tmp_path / name / setting)})  # type: ignore[arg-type]
    with patch.dict(os.environ):
        del os.environ["PREFECT_HOME"]
        with pytest.raises(ConfigError, match=f"{re.escape(name)}.*rename the folder, or set paths.{setting}"):
            prepare_process_environment(config, {})
    assert not list(tmp_path.iterdir())


def test_other_folders_with_signs_are_taken(tmp_path: Path) -> None:
    paths = {"data_dir": str(tmp_path / "100% #1 & more"), "mlruns_dir": str(tmp_path / "a+b=c")}
    prepare_process_environment(RunConfig(paths=paths), {})  # type: ignore[arg-type]


def test_what_the_user_has_set_stands(tmp_path: Path) -> None:
    with patch.dict(os.environ, {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3"}):
        os.environ.pop("MLFLOW_LOGGING_LEVEL", None)  # a test before may have prepared the process
        prepare_process_environment(RunConfig(), {"PREFECT_HOME": str(tmp_path / "elsewhere"), "MLFLOW_LOGGING_LEVEL": "INFO"})
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "3"
        assert os.environ["MLFLOW_LOGGING_LEVEL"] == "INFO"


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What a logger of a library writes, with the record factory restored afterwards."""
    factory, stream = logging.getLogRecordFactory(), io.StringIO()
    logger, handler = logging.getLogger("some.library"), logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logging.setLogRecordFactory(factory)


def test_no_log_holds_a_secret(logged: io.StringIO, isolated_environment: Path) -> None:
    prepare_process_environment(
        RunConfig.model_validate({"judge": {"api_key": "PLANTEDSECRET", "base_url": "http://u:PLANTEDPASSWORD@host/v1"}}), {}
    )
    log = logging.getLogger("some.library")
    log.warning("asking %s with %s", "http://u:PLANTEDPASSWORD@host/v1", "Bearer PLANTEDSECRET")
    try:
        try:
            raise ValueError("Illegal header value b'Bearer PLANTEDSECRET\\n'")
        except ValueError as error:
            raise RuntimeError("http://u:PLANTEDPASSWORD@host/v1/models answered 401") from error
    except RuntimeError:
        log.exception("it failed")
    text = logged.getvalue()
    assert "PLANTED" not in text
    for told in ("asking http://host/v1 with Bearer", "Illegal header value", "http://host/v1/models answered 401", "Traceback"):
        assert told in text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_directories_and_databases_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.model_validate({"paths": {"data_dir": str(tmp_path / "data"), "mlruns_dir": str(tmp_path / "mlruns")}})
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "data" / "prefect"))
    before = os.umask(0o022)
    try:
        prepare_process_environment(config, {})
        directories = [tmp_path / "data", tmp_path / "mlruns", tmp_path / "data" / "prefect"]
        assert [mode(path) for path in directories] == [0o700] * 3, "as they are made"
        databases = [tmp_path / "data/prefect/prefect.db", tmp_path / "mlruns/mlflow.db", tmp_path / "data/judge/verdicts.sqlite"]
        for path in [*directories, *databases]:
            path.parent.mkdir(exist_ok=True)
            path.touch()
            path.chmod(0o755 if path.is_dir() else 0o644)
        prepare_process_environment(config, {})
        assert [mode(path) for path in databases] == [0o600] * 3
        assert [mode(path) for path in directories] == [0o755] * 3, "what the user made elsewhere is the user's to decide"
        monkeypatch.setattr(flows.runtime.process_environment, "CHECKOUT", tmp_path)
        prepare_process_environment(config, {})
        assert [mode(path) for path in directories] == [0o700] * 3, "those of the checkout are closed"
    finally:
        os.umask(before)
