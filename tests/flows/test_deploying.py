from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule

from flows.ops.deploying import PREFECT_FILE, _as_deployment, apply_deployment, read_prefect_file
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


def test_what_people_changed_of_a_deployment_stays_when_it_is_deployed_again(tmp_path: Path) -> None:
    described = next(found for found in read_prefect_file(ROOT / PREFECT_FILE).deployments if found.name == "housekeeping")
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=described.work_pool.name, type="process"), overwrite=True)
        apply_deployment(_as_deployment(described, tmp_path, {"train": {"seed": 1}}), client)
        first = client.read_deployment_by_name("housekeeping/housekeeping")
        assert [schedule.active for schedule in first.schedules] == [True]
        client.update_deployment_schedule(first.id, first.schedules[0].id, active=False)
        client.create_deployment_schedules(first.id, [(CronSchedule(cron="5 5 * * *"), True)])
        client.update_deployment(first.id, DeploymentUpdate(parameters={**first.parameters, "apply": True}))
        client.pause_deployment(first.id)
        apply_deployment(_as_deployment(described, ROOT, {"train": {"seed": 2}}), client)
        again = client.read_deployment_by_name("housekeeping/housekeeping")
    assert sorted((schedule.schedule.cron, schedule.active) for schedule in again.schedules) == sorted(
        [(first.schedules[0].schedule.cron, False), ("5 5 * * *", True)]
    )
    assert again.paused and again.parameters == {**first.parameters, "config": {"train": {"seed": 2}}, "apply": True}
    assert again.pull_steps == [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}]
