"""Images made from Debian packages under the names that `deployments/` asks for, because a test reaches no registry of images.

They show that our files build, start and hold together. They are not the images of those names: versions are Debian's, PostgreSQL's
entrypoint is a short one, and the S3 store is moto.
"""

import shutil
import ssl
import subprocess
from pathlib import Path

from tests.deployments.reading import ROOT
from tests.docker.daemon import Daemon

FILES = Path(__file__).parent / "stand-ins"
LABEL = "slmsearch.stand-in=made from Debian packages"
IMAGES = {
    "python-3.13": "python:3.13-slim",
    "python-3.11": "python:3.11.14-slim-bookworm",
    "postgres": "postgres:17.6-bookworm",
    "nginx": "nginxinc/nginx-unprivileged:1.28.0-alpine",
    "store": "chrislusf/seaweedfs:3.97",
}
BUILD_SECONDS = 900.0


def find_mirror() -> str:
    """Return the address from which this machine's own apt fetches Debian."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True).stdout.split()
    assert listed, "apt knows no mirror here"
    return min(listed, key=len)  # those of other archives are longer by their names


def make_debian(daemon: Daemon, release: str) -> None:
    """Make `stand-in/debian:RELEASE`, unless it is kept from another time."""
    name = f"stand-in/debian:{release}"
    if daemon.ask("image", "inspect", name).returncode == 0:
        return
    root, mirror = daemon.home / release, find_mirror()
    done = subprocess.run(["debootstrap", "--variant=minbase", release, str(root), mirror], capture_output=True, text=True)
    assert done.returncode == 0, f"debootstrap {release} {mirror} fails:\n{done.stdout[-2000:]}"
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["docker", "import", "-", name], stdin=packed.stdout, check=True, capture_output=True, env=daemon.environment)
    assert packed.returncode == 0
    shutil.rmtree(root)


def make_image(daemon: Daemon, name: str) -> None:
    """Make one of `IMAGES`."""
    make_debian(daemon, "bookworm" if name in ("python-3.11", "store") else "trixie")
    context = daemon.home / "stand-ins"
    if not context.exists():
        shutil.copytree(FILES, context)
        shutil.copy(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt", context / "ca-certificates.crt")
    words = ["--network", "host", "--label", LABEL, "--file", str(context / f"{name}.Dockerfile"), "--tag", IMAGES[name]]
    # The builder that needs no plugin; our own files are built by compose.
    daemon.run("build", *words, str(context), timeout_s=BUILD_SECONDS, DOCKER_BUILDKIT="0")


def add_compose(daemon: Daemon) -> None:
    """Give the daemon's clients the plugin `docker compose`: Debian 12 has only its predecessor, Debian 13 has it."""
    if daemon.ask("compose", "version").returncode == 0:
        return
    make_debian(daemon, "trixie")
    name = "slmsearch-compose-plugin"
    fetch = "apt-get update -qq && cd /tmp && apt-get download -qq docker-compose && dpkg-deb --extract docker-compose*.deb /plugin"
    daemon.run("run", "--name", name, "--network", "host", "stand-in/debian:trixie", "sh", "-c", fetch, timeout_s=BUILD_SECONDS)
    target = daemon.config / "cli-plugins" / "docker-compose"
    daemon.run("cp", f"{name}:/plugin/usr/libexec/docker/cli-plugins/docker-compose", str(target))
    daemon.run("rm", name)
    daemon.run("compose", "version")


def copy_project(target: Path) -> Path:
    """Copy the files that git knows, as a checkout has them."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target
