"""systemd's units and the Kubernetes template: read by the tools that will read them, as far as those are here."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kubernetes

from flows.ops.worker import DRAIN_SECONDS
from flows.runtime.pool import read_template
from slmsearch.errors import ConfigError
from tests.deployments.reading import DEPLOYMENTS, service

UNITS = sorted((DEPLOYMENTS / "systemd").glob("*.service"))
TEMPLATE = DEPLOYMENTS / "kubernetes" / "base-job-template.json"
MOST_EXPOSED = {"slmsearch-prefect.service": 2.5, "slmsearch-mlflow.service": 2.5, "slmsearch-worker.service": 4.5}
"""What `systemd-analyze security` may say, 0 to 10; a unit without any hardening gets 9.6."""
analysed = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")


def settings(path: Path) -> dict[str, list[str]]:
    """Directives of a unit with their values, in order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(" ".join(value.split()))
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_take_secrets_as_credentials_and_end_in_order(path: Path) -> None:
    found = settings(path)
    assert found["User"] == ["slmsearch"]
    assert found["KillMode"] == ["mixed"], "the main process alone is terminated; what is left is killed after it"
    assert found["Restart"] == ["on-failure"]
    credentials = {value.partition(":")[0] for value in found["LoadCredential"]}
    for command in [*found["ExecStart"], *found.get("ExecStartPre", [])]:
        taken = set(re.findall(r"[A-Z_]+=(\w+)(?= )", command.partition(" -- ")[0] + " "))
        assert taken <= credentials, command
        assert command.startswith("/opt/slmsearch/deployments/with-secrets ")
    assert not re.search(r"(?i)(password|auth_string|secret_key)=\S", " ".join(found["Environment"]))
    assert not any("0.0.0.0" in command for command in found["ExecStart"])


def test_a_worker_gets_the_time_to_drain() -> None:
    found = settings(DEPLOYMENTS / "systemd" / "slmsearch-worker.service")
    assert found["ExecStart"][0].endswith("-- slmsearch ops worker")
    assert float(found["TimeoutStopSec"][0]) > DRAIN_SECONDS + 20


@pytest.mark.parametrize("name", ["prefect", "mlflow"])
def test_units_and_compose_file_harden_the_servers_alike(name: str) -> None:
    unit = dict(
        pair.split("=", 1)
        for line in settings(DEPLOYMENTS / "systemd" / f"slmsearch-{name}.service")["Environment"]
        for pair in line.split()
    )
    places = re.compile(r"HOME|DIRECTORY|HOST|PATH|S3|AWS|HF_")
    for variable, value in service(name)["environment"].items():
        if not places.search(variable):
            assert unit[variable] == value


@analysed
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With a path that exists for what they start: the verifier looks for it."""
    for path in (DEPLOYMENTS / "systemd").iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/slmsearch/deployments/with-secrets", "/bin/true"))
    names = [str(tmp_path / path.name) for path in [*UNITS, DEPLOYMENTS / "systemd" / "slmsearch.target"]]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "slmsearch" in line and "/opt/slmsearch" not in line]
    assert not ours, done.stderr


@analysed
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_expose_little(path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)], capture_output=True, text=True, timeout=60
    )
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stderr
    assert float(exposure[1]) <= MOST_EXPOSED[path.name], done.stdout


# Kubernetes


def filled(value: Any, variables: dict[str, Any]) -> Any:
    """Fill `{{ name }}` as Prefect does: alone it takes the value, inside text its string."""
    if isinstance(value, dict):
        return {key: filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    if alone := re.fullmatch(r"\{\{ (\w+) \}\}", value):
        return variables[alone[1]]
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: str(variables[found[1]]), value)


def manifest(**given: Any) -> dict[str, Any]:
    """The job that the template makes with its defaults."""
    template = json.loads(TEMPLATE.read_text())
    defaults = {name: item.get("default") for name, item in template["variables"]["properties"].items()}
    env = [{"name": name, "value": value} for name, value in defaults["env"].items()]
    made = filled(
        template["job_configuration"]["job_manifest"], {**defaults, "env": env, "command": ["prefect", "flow-run", "execute"], **given}
    )
    assert isinstance(made, dict)
    return made


def unknown(value: Any, kind: str, path: str = "job") -> list[str]:
    """Names in a manifest that Kubernetes does not know there, by the types of its Python client."""
    if listed := re.fullmatch(r"list\[(.+)\]", kind):
        return [odd for i, item in enumerate(value) for odd in unknown(item, listed[1], f"{path}[{i}]")]
    model = getattr(kubernetes, kind, None)
    if model is None or not hasattr(model, "openapi_types"):
        return []
    fields = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    odd = [f"{path}.{name}" for name in value if name not in fields]
    return odd + [more for name, item in value.items() if name in fields for more in unknown(item, fields[name], f"{path}.{name}")]


def test_the_job_is_one_that_kubernetes_knows() -> None:
    assert unknown(manifest(), "V1Job") == []
    assert unknown({"spec": {"template": {"spec": {"parallelism": 1}}}}, "V1Job") == ["job.spec.template.spec.parallelism"], (
        "it would notice"
    )


def test_the_job_is_hardened_and_gets_its_secrets_as_files() -> None:
    pod = manifest()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never" and manifest()["spec"]["backoffLimit"] == 0, "Prefect decides what is run again"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + 20
    assert container["image"] == service("worker")["image"]
    assert container["command"] == service("worker")["entrypoint"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert not any(re.search("(?i)password|auth_string|secret", item["name"]) for item in container["env"])
    assert "memory" in container["resources"]["limits"]


def test_the_template_is_one_that_prefect_takes(tmp_path: Path) -> None:
    from prefect.client.schemas.objects import WorkPool

    template = read_template(TEMPLATE)
    assert WorkPool(name="gpu", type="kubernetes", base_job_template=template).base_job_template == template
    wrong = tmp_path / "wrong.json"
    for text in ("{", "[]", '{"variables": {}}'):
        wrong.write_text(text)
        with pytest.raises(ConfigError, match="base job template"):
            read_template(wrong)
