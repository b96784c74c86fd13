"""One folder for each model of the zoo, with data, results and a corpus, shared by the cells that are about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.fakes import write_corpus
from tests.zoo.models import DEFAULT, NAMES, make_model

Slmsearch = Callable[..., tuple[int, str, str]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave all but one model to `-m zoo`, whichever order the cells stand in."""
    if "zoo" in (config.getoption("-m") or ""):
        return
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("zoo")
        if item.get_closest_marker("zoo") and name not in (None, DEFAULT):
            item.add_marker(pytest.mark.skip(reason="one model runs by default; -m zoo runs all"))


class Zoo:
    """A model, a corpus, and where everything about it lies."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.model = make_model(name, folder / "models" / name)
        self.corpus = write_corpus(folder / "corpus")

    def flags(self, **settings: object) -> list[str]:
        """Return the flags of a small run on this model; keywords, with `__` for the dot, set others."""
        chosen: dict[str, object] = {
            "policy__model": self.model,
            "policy__device": "cpu",
            "corpus__pages": self.corpus["pages"],
            "corpus__questions": self.corpus["questions"],
            **settings,
        }
        return [f"--{name.replace('__', '.')}={value}" for name, value in chosen.items()]


@pytest.fixture(scope="session")
def zoos(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Zoo]:
    made: dict[str, Zoo] = {}

    def find(name: str) -> Zoo:
        if name not in made:
            made[name] = Zoo(name, tmp_path_factory.mktemp(name.replace(".", "-")))
        return made[name]

    return find


@pytest.fixture(params=NAMES)
def zoo(request: pytest.FixtureRequest, zoos: Callable[[str], Zoo], monkeypatch: pytest.MonkeyPatch) -> Zoo:
    """A model of the zoo; commands of all its cells share one data directory, so that the index is built once."""
    found = zoos(request.param)
    monkeypatch.setenv("SLMSEARCH_PATHS__DATA_DIR", str(found.folder / "data"))
    monkeypatch.setenv("SLMSEARCH_PATHS__MLRUNS_DIR", str(found.folder / "mlruns"))
    return found
