"""One daemon for all tests of this folder; `make test-docker` runs them, in the order of their files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker.daemon import Daemon, missing
from tests.docker.stack import Stack, make_stack
from tests.docker.stand_ins import add_compose, make_image

HERE = Path(__file__).parent
TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon with `docker compose`."""
    if lacking := missing():
        pytest.fail(lacking, pytrace=False)
    kept = request.config.getoption("--docker-data")
    made = Daemon(Path(kept).resolve() if kept else None)
    try:
        add_compose(made)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def stand_in(daemon: Daemon) -> Callable[[str], None]:
    """Make an image that stands in for a public one, once."""
    made: set[str] = set()

    def make(name: str) -> None:
        if name not in made:
            make_image(daemon, name)
            made.add(name)

    return make


@pytest.fixture(scope="session")
def stack(daemon: Daemon, stand_in: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The project with its images built."""
    return make_stack(daemon, tmp_path_factory.mktemp("stack"), stand_in)
