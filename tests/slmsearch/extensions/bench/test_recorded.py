"""The recorded build beside today's: from git, in a process of its own; what cannot be had is said and left out."""

from pathlib import Path

import pytest

from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.errors import ServiceError
from slmsearch.extensions.bench import recorded
from slmsearch.extensions.bench.recorded import COMMIT, fetch_build, recorded_build
from slmsearch.extensions.bench.rollout import OURS, PEER, RECORDED, summarise_speed
from slmsearch.extensions.bench.steps import Times

MODULES = {
    "slmsearch/bench/rollout.py": """
import os
NO_LEARNING = 0.0
class Stopwatch:
    def take_step(self, trainer):
        print("others print, too")
        if trainer.asked == 2:
            os._exit(7)
        trainer.asked += 1
        return (trainer.asked, trainer.config["policy.model"])
def make_ours(shape, directory, watch):
    print("they do")
    shape.asked, shape.config = 0, {"policy.model": 10.0}
    return shape, None
""",
    "slmsearch/bench/shapes.py": """
from dataclasses import dataclass, field
class Config(dict):
    changed = dict.__or__
@dataclass
class Shape:
    config: Config = field(default_factory=Config)
def demo_shape(config):
    return Shape()
""",
    "flows/cli/settings.py": """
from slmsearch.bench.shapes import Config
def load_config(files, environment):
    return Config()
def resolve_paths(config, root):
    return config
Config.changed = lambda self, settings: self
""",
}
"""Modules by the names that the recorded build has; a stand-in that ends in its third step."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (place := tmp_path / COMMIT / name).parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        for package in (place.parent, place.parent.parent):
            (package / "__init__.py").touch()
    return tmp_path


def test_a_build_takes_a_step_when_it_is_asked(home: Path) -> None:
    said: list[str] = []
    with recorded_build("demo", {}, home, said.append) as build:
        assert build is not None and said == [f"  build of {COMMIT} 10.00 s"]
        assert build.take_step() == (2.0, 10.0)
        with pytest.raises(ServiceError, match=f"the build of {COMMIT} has ended with exit code 7"):
            build.take_step()


def test_a_build_that_does_not_start_is_left_out(home: Path) -> None:
    (home / COMMIT / "slmsearch" / "bench" / "shapes.py").unlink()
    said: list[str] = []
    with recorded_build("demo", {}, home, said.append) as build:
        assert build is None
    assert "shapes" in (home / f"{COMMIT}.log").read_text()
    assert said == [f"  without the build of {COMMIT}: the build of {COMMIT} has ended with exit code 1; see {home / COMMIT}.log"]


def test_where_there_is_no_history_it_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded.slmsearch, "__file__", str(tmp_path / "installed" / "slmsearch" / "__init__.py"))
    (tmp_path / "installed").mkdir()
    said: list[str] = []
    with recorded_build("demo", {}, tmp_path / "home", said.append) as build:
        assert build is None
    assert len(said) == 1 and said[0].startswith(f"  without the build of {COMMIT}: ") and "\n" not in said[0]
    assert not any((tmp_path / "home").iterdir())


def test_the_build_comes_from_this_repository(tmp_path: Path) -> None:
    try:
        folder = fetch_build(tmp_path)
    except ServiceError as error:
        pytest.skip(f"a clone without history: {error}")
    assert (folder / "slmsearch" / "bench" / "rollout.py").is_file() and (folder / "data" / "models" / "tiny-searcher").is_dir()
    assert not (folder / "build.tar").exists() and fetch_build(tmp_path) == folder


def test_the_ratio_is_that_of_whole_steps() -> None:
    sides = {OURS: [Times(1.0, 2.0)], PEER: [Times(4.0, 8.0)], RECORDED: [Times(9.0, 3.0)]}
    _, figures = summarise_speed(sides, [1.0], [Episode("q", (), StopReason.ANSWERED)])
    assert figures["today_ratio"] == 1.5
