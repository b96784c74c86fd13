from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect import task
from prefect.states import Failed

from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError, JudgeError, ModelError, ServiceError
from tasks.caching import _is_outage, cached, fresh, retried, touches_network
from tasks.environment import code_digest


@task(**cached("config"))
def named(key: str, config: int) -> str:
    return f"{key}{config}"


def test_a_cached_task_ignores_the_arguments_it_is_told_to() -> None:
    policy = named.cache_policy

    def key(**inputs: object) -> str | None:
        context = SimpleNamespace(task=named)
        return policy.compute_key(task_ctx=context, inputs=inputs, flow_parameters={})  # type: ignore[arg-type]

    assert key(key="a", config=1) == key(key="a", config=2)
    assert key(key="a", config=1) != key(key="b", config=1)
    assert named.result_serializer == "json", "the default is pickle"


def test_a_lost_artefact_makes_a_task_ignore_its_stored_result() -> None:
    assert fresh(named, True) is named
    assert fresh(named, False).refresh_cache


def test_only_tasks_that_touch_a_network_are_tried_again() -> None:
    assert retried(False) == {}
    assert retried(True)["retries"] > 0
    assert not touches_network(RunConfig())
    for section in (
        {"judge": {"kind": "ollama"}},
        {"retrieval": {"embedder": {"base_url": "http://x"}}},
        {"policy": {"base_url": "http://x"}},
    ):
        assert touches_network(RunConfig.model_validate(section))


@pytest.mark.parametrize(
    ("error", "worth_it"),
    [(JudgeError("down"), True), (ServiceError("down"), True), (ModelError("gone"), False), (ConfigError("odd"), False)],
)
def test_only_outages_are_tried_again(error: Exception, worth_it: bool) -> None:
    state = Failed(data=error)
    assert _is_outage(named, None, state) is worth_it  # type: ignore[arg-type]


def test_the_code_of_a_room_is_part_of_its_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import slmsearch

    for name in ("corpus", "judge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text("1")
    monkeypatch.setattr(slmsearch, "__file__", str(tmp_path / "__init__.py"))
    keys = []
    for change in (None, "corpus", "judge"):
        if change:
            (tmp_path / change / "code.py").write_text("2")
        code_digest.cache_clear()
        keys.append(code_digest("corpus"))
    code_digest.cache_clear()
    assert keys[0] != keys[1], "its own code counts"
    assert keys[1] == keys[2], "that of another room does not"
