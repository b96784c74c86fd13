"""The images of `deployments/`: they build, run as a user without rights, and hold no secret."""

import subprocess

import pytest

from tests.docker.daemon import Daemon
from tests.docker.stack import BUILT, Stack

pytestmark = pytest.mark.docker
each = pytest.mark.parametrize("image", BUILT.values(), ids=BUILT)
WITHOUT_RIGHTS = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--entrypoint=")


@each
def test_an_image_runs_as_a_user_without_rights(daemon: Daemon, stack: Stack, image: str) -> None:
    assert daemon.inspect(image)["Config"]["User"] == "10001:10001"
    assert daemon.run("run", *WITHOUT_RIGHTS, image, "sh", "-c", "id -u; id -g; id -G").split() == ["10001"] * 3
    raised = "find / -xdev -perm /6000 -type f 2>/dev/null"
    assert daemon.run("run", *WITHOUT_RIGHTS, "--user=0:0", image, "sh", "-c", f"{raised}; true") == "", (
        "nothing gives another user's rights"
    )
    own = "find / -xdev -user 10001 ! -path '/data*' ! -path '/proc/*' 2>/dev/null; true"
    assert daemon.run("run", *WITHOUT_RIGHTS, "--user=0:0", image, "sh", "-c", own) == "", "it can change nothing of its own code"


@pytest.mark.parametrize(
    ("name", "code"), [("services", "import prefect, mlflow, psycopg, boto3, flask_wtf"), ("worker", "import flows.ops.worker")]
)
def test_what_an_image_is_for_is_there(daemon: Daemon, stack: Stack, name: str, code: str) -> None:
    tmp = ("--tmpfs=/tmp", "--env=PREFECT_HOME=/tmp/prefect")
    daemon.run("run", *WITHOUT_RIGHTS, *tmp, BUILT[name], "python", "-c", code, timeout_s=300)


@each
def test_no_secret_is_in_a_layer(daemon: Daemon, stack: Stack, image: str) -> None:
    """Of the servers, of the checkout, of pip's settings; the last line is there, and shows that it would be found."""
    known = "with-secrets: $1"
    patterns = "\n".join([*stack.all_secrets(), known])
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE, env=daemon.environment) as saved:
        looked = subprocess.run(["grep", "-aoF", "-e", patterns], stdin=saved.stdout, capture_output=True, text=True)
    assert saved.returncode == 0
    assert set(looked.stdout.splitlines()) == {known}
    history = daemon.run("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    assert "pip install" in history and not [secret for secret in stack.all_secrets() if secret in history]
