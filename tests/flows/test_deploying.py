from pathlib import Path

import pytest
import yaml

from flows.ops.deploying import PREFECT_FILE, _as_deployment, read_prefect_file
from slmsearch.errors import ConfigError
from tests.root import ROOT


def test_a_deployment_is_what_the_file_says() -> None:
    root = ROOT
    file = read_prefect_file(root / PREFECT_FILE)
    made = {
        found.name: _as_deployment(found, root, {"seed": 3}) for found in file.deployments if found.name in ("nightly", "evaluate-shard")
    }
    nightly, shard = made["nightly"], made["evaluate-shard"]
    assert (nightly.flow_name, nightly.entrypoint, nightly.work_pool_name) == ("nightly", "slmsearch_flows.nightly", "gpu")
    assert nightly.parameters == {"config": {"seed": 3}} and shard.parameters == {}
    assert shard.work_queue_name == "shards"
    assert nightly.storage is not None
    assert nightly.storage.to_pull_step() == {"prefect.deployments.steps.set_working_directory": {"directory": str(root)}}
    (schedule,) = nightly.schedules or []
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.slug) == ("30 3 * * *", "Etc/UTC", "nightly")


def test_every_deployment_says_what_it_does_and_what_its_parameters_mean() -> None:
    for found in read_prefect_file(ROOT / PREFECT_FILE).deployments:
        made = _as_deployment(found, ROOT, {})
        assert made.description and {"slmsearch"} < set(made.tags), found.name
        schema = made._parameter_openapi_schema.model_dump()
        assert all(parameter.get("description") for parameter in schema["properties"].values()), found.name
        fields = schema["definitions"]["TrainConfig"]["properties"]
        assert "different questions" in fields["questions_per_step"]["description"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pull": []}, "pull: Extra inputs are not permitted; leave it out, or deploy with: prefect"),
        ({"deployments": [{"name": "x", "entrypoint": "a.py:b", "work_pool": {"name": "gpu"}, "triggers": []}]}, "deployments.0.triggers"),
        ({"deployments": [{"name": "x"}]}, "deployments.0.entrypoint: Field required"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "prefect.yaml"
    path.write_text(yaml.safe_dump({"name": "slmsearch", "deployments": [], **change}))
    with pytest.raises(ConfigError) as caught:
        read_prefect_file(path)
    assert told in str(caught.value)


@pytest.mark.parametrize("content", [None, b"a: [", b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prefect.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"prefect\.yaml cannot be read"):
        read_prefect_file(path)
