"""The fixtures of conftest.py do what the other tests rely on."""

import os
import socket
from pathlib import Path

import pytest

from flows.runtime.settings import load_config


def test_other_machines_cannot_be_reached():
    # 192.0.2.0/24 is reserved for documentation: were the guard off, this would time out and raise OSError instead.
    with pytest.raises(RuntimeError, match="a test tried to reach"), socket.socket() as client:
        client.settimeout(0.2)
        client.connect(("192.0.2.1", 80))


def test_this_machine_can_be_reached():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5) as client:
        assert client.getpeername() == server.getsockname()


def test_settings_see_the_directories_of_the_test(isolated_environment: Path):
    paths = load_config().paths
    assert Path(paths.data_dir).is_relative_to(isolated_environment)
    assert Path(paths.mlruns_dir).is_relative_to(isolated_environment)


def test_libraries_keep_their_state_out_of_the_home():
    assert not Path(os.environ["PREFECT_HOME"]).is_relative_to(Path.home() / ".prefect")
    assert not Path(os.environ["HF_HOME"]).is_relative_to(Path.home() / ".cache")
    assert "PREFECT_API_URL" not in os.environ


@pytest.mark.parametrize("turn", [1, 2])
def test_what_code_under_test_sets_does_not_reach_the_next_test(turn: int):
    assert "MLFLOW_TRACKING_URI" not in os.environ, f"left over before turn {turn}"
    os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///elsewhere.db"
