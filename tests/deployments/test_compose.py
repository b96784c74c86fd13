"""The rules that the compose file keeps; that it keeps to the specification is checked
in tests/slmsearch/extensions/sandbox/test_docker.py."""

import configparser
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flows.ops.worker import DRAIN_SECONDS
from tests.deployments.reading import DEPLOYMENTS, ROOT, compose

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
ONCE = {name for name, found in SERVICES.items() if found["restart"] == "no"}
SECRET = re.compile(r"passw|secret|token|auth_string|api_key|access_key", re.IGNORECASE)
each = pytest.mark.parametrize("name", SERVICES)


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def test_what_the_issue_asks_for_is_there() -> None:
    assert {"postgres", "prefect", "mlflow", "store", "proxy", "worker", "worker-gpu", "deploy"} <= SERVICES.keys()
    assert sorted(ONCE) == ["bucket", "deploy"]
    assert SERVICES["worker-gpu"]["profiles"] == ["gpu"]
    (device,) = SERVICES["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


@each
def test_images_are_pinned_to_a_version(name: str) -> None:
    repository, _, tag = SERVICES[name]["image"].partition(":")
    assert repository and re.search(r"\d+\.\d+", tag), f"{SERVICES[name]['image']} can change under us"


def test_dockerfiles_start_from_pinned_images_and_install_pinned_packages() -> None:
    text = (DEPLOYMENTS / "Dockerfile.services").read_text()
    starts = [line.split()[1] for line in text.splitlines() if line.startswith("FROM")]
    assert all(start in ("base",) or re.search(r":\d+\.\d+\.\d+", start) for start in starts), starts
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert installs and all("--constraint constraints.txt" in line for line in installs)
    assert text.count("USER 10001:10001") == 2
    assert "deployments/secrets" in (DEPLOYMENTS / "Dockerfile.services.dockerignore").read_text().splitlines()


def test_the_worker_s_image_has_the_packages_and_modules_of_the_wheel() -> None:
    text = (DEPLOYMENTS / "Dockerfile.services").read_text()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    code = {name for name in wheel if not name.startswith("data/")}
    assert {line.split()[1] for line in text.splitlines() if line.startswith("COPY")} >= code
    let_in = {line[1:] for line in (DEPLOYMENTS / "Dockerfile.services.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in >= code


@each
def test_services_are_hardened(name: str) -> None:
    found = SERVICES[name]
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "network_mode", "pid", "ipc", "devices", "env_file"} & found.keys()
    assert set(found.get("cap_add", [])) <= ({"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"} if name == "postgres" else set())
    assert not any("docker.sock" in str(volume) for volume in found.get("volumes", []))
    if name != "postgres":
        assert found["user"]
        assert not found["user"].startswith("0:") or name == "store"


@each
def test_services_say_when_they_are_well_and_how_they_end(name: str) -> None:
    if name in ONCE:
        return
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()
    assert seconds(SERVICES[name]["stop_grace_period"]) >= 10
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["logging"]["options"]["max-size"], "logs do not fill the disk"


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_the_health_check_of_a_worker_has_its_password(name: str) -> None:
    """Docker starts a health check beside the entrypoint and not through it."""
    _, *words = SERVICES[name]["healthcheck"]["test"]
    assert words == ["with-secrets", "PREFECT_API_AUTH_STRING=prefect_auth", "--", "slmsearch", "worker", "--check"]


@pytest.mark.parametrize("name", ["worker", "worker-gpu"])
def test_workers_get_the_time_to_drain(name: str) -> None:
    assert SERVICES[name]["command"] == ["slmsearch", "worker"], "Prefect's own leaves its flow runs running for ever"
    assert SERVICES[name]["stop_signal"] == "SIGTERM"
    assert seconds(SERVICES[name]["stop_grace_period"]) > DRAIN_SECONDS + 20


def test_only_the_proxy_is_reached_and_only_from_this_machine() -> None:
    published = {name: found["ports"] for name, found in SERVICES.items() if "ports" in found}
    assert published.keys() == {"proxy"}
    assert all(port.startswith("127.0.0.1:") for port in published["proxy"])
    assert compose()["networks"]["inside"] == {"internal": True}
    assert {name for name, found in SERVICES.items() if set(found["networks"]) - {"inside"}} == {"proxy", "worker", "worker-gpu"}


@each
def test_secrets_come_from_files(name: str) -> None:
    found = SERVICES[name]
    known = compose()["secrets"]
    assert all(known[secret] == {"file": f"./secrets/{secret}"} for secret in found.get("secrets", []))
    for variable, value in found.get("environment", {}).items():
        assert not SECRET.search(variable) or variable.endswith("_FILE"), f"{variable} stands in clear text"
        assert not re.search(r"://[^/\s]*:[^/\s]*@", str(value)), f"{variable} holds a password"
    words = [*found.get("entrypoint", []), *found.get("command", [])]
    assert not any(re.search(r"://[^/\s]*:[^/\s]*@", word) for word in words)
    files = [word.partition("=")[2] for word in found.get("entrypoint", []) if "=" in word]
    assert set(files) <= set(found.get("secrets", [])), "what the entrypoint reads is mounted"


def test_every_secret_is_used_and_git_takes_none() -> None:
    used = {secret for found in SERVICES.values() for secret in found.get("secrets", [])}
    built = {secret for found in SERVICES.values() for secret in found.get("build", {}).get("secrets", [])}
    assert not used & built and used | built == set(compose()["secrets"])
    assert compose()["secrets"]["pip.conf"] == {"file": "${PIP_CONFIG_FILE:-/dev/null}"}, "who names none builds without"
    assert (DEPLOYMENTS / "secrets" / ".gitignore").read_text().splitlines()[-2:] == ["*", "!.gitignore"]


def test_what_waits_for_another_waits_until_it_is_well() -> None:
    for name, found in SERVICES.items():
        for other, how in found.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert how["condition"] == wanted, f"{name} on {other}"


def test_mlflow_knows_every_option_of_its_users_file() -> None:
    file = configparser.ConfigParser()
    file.read(DEPLOYMENTS / "mlflow" / "auth.ini")
    # Its package opens a database on import, so what reads the file is read itself.
    reader = Path(str(find_spec("mlflow").origin)).parent / "server" / "auth" / "config.py"  # type: ignore[union-attr]
    known = set(re.findall(r"\"([a-z_]+)\"", reader.read_text()))
    assert set(file["mlflow"]) <= known and int(file["mlflow"]["auth_cache_ttl_seconds"]) == 60


def test_both_servers_ask_for_a_password_and_trust_one_origin() -> None:
    prefect, mlflow = SERVICES["prefect"], SERVICES["mlflow"]
    assert "PREFECT_SERVER_API_AUTH_STRING=prefect_auth" in prefect["entrypoint"]
    assert prefect["environment"]["PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"] == "http://127.0.0.1:4200"
    assert prefect["environment"]["PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED"] == "true"
    assert "--app-name=basic-auth" in mlflow["command"]
    assert "MLFLOW_AUTH_ADMIN_PASSWORD=mlflow_password" in mlflow["entrypoint"]
    assert not any("*" in word for word in mlflow["command"])
    assert mlflow["environment"]["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    client = SERVICES["worker"]
    assert {"PREFECT_API_AUTH_STRING=prefect_auth", "MLFLOW_TRACKING_PASSWORD=mlflow_password"} <= set(client["entrypoint"])
    assert "PREFECT_API_KEY" not in client["environment"], "it would win over the auth string"
