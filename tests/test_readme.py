"""README.md and docs/ name commands, files and settings that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from flows.cli.main import cli
from flows.cli.session import split_overrides
from slmsearch.config import RunConfig

ROOT = Path(__file__).parent.parent
GENERATED, HISTORY = ("cli", "configuration"), "log"
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem not in (*GENERATED, HISTORY))]
README = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
LINES = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = sorted({*re.findall(r"`(slmsearch [a-z][^`]*)`", README), *(line for line in LINES if line.startswith("slmsearch "))})
OF_OTHERS = ("--env.", "--sampling.", "--client.")
"""Beginnings of flags that the evaluation command of verifiers takes."""
FLAGS = sorted(flag for flag in set(re.findall(r"`[^`]*?(--[a-z_]+\.[a-z_.]+)", README)) if not flag.startswith(OF_OTHERS))


def has_setting(name: str) -> bool:
    section = RunConfig()
    for part in name.split("."):
        if part not in type(section).model_fields:
            return False
        section = getattr(section, part)
    return True


def test_the_readme_is_worth_checking():
    assert len(COMMANDS) >= 12
    assert {"make demo", "make test"} <= set(LINES)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_exist(line):
    own, overrides = split_overrides(shlex.split(line)[1:])
    assert all(has_setting(override.removeprefix("--").partition("=")[0]) for override in overrides)
    command: click.Command = cli
    while own and isinstance(command, click.Group):
        name = getattr(command, "usual", own[0]) if own[0].startswith("--") else own.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"no command {name!r} in {line!r}"
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in own if word.startswith("--")} <= known


@pytest.mark.parametrize("flag", FLAGS)
def test_settings_exist(flag):
    assert has_setting(flag.removeprefix("--"))


@pytest.mark.parametrize("target", [line.removeprefix("make ") for line in LINES if line.startswith("make ")])
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_named_files_exist():
    names = set(re.findall(r"(?:deployments|data/models|slmsearch|tests)/[\w./-]+\w", README))
    assert names
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "deployments" / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configs_are_valid(path):
    RunConfig.model_validate(yaml.safe_load(path.read_text()) or {})


def test_deployments_named_in_the_readme_exist():
    deployed = {item["name"] for item in yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())["deployments"]}
    named = {name for _, name in re.findall(r"prefect deployment run '?([\w-]+)/([\w-]+)", README)}
    assert named
    assert named <= deployed
