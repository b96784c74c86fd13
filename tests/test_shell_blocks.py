"""Every shell block of README and docs: its commands are read by the console script, and those that can run here do."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from flows.cli.main import cli
from flows.runtime.settings import find_settings, load_config
from tests.e2e.stand import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deployments" / "README.md"]
BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_HERE = {
    "slmsearch learn": "minutes; tests/e2e/test_learn.py",
    "slmsearch ask --config": "what `learn` left; tests/e2e/test_learn.py",
    "slmsearch calibrate": "what `learn` left; tests/flows/test_documents.py",
    "slmsearch train --judge.kind ollama": "Ollama",
    "slmsearch run train-planner": "an 8B model",
    "slmsearch run train-and-eval --config": "a GPU",
    "slmsearch sft --from gold --config human": "an hour; tests/slmsearch/training/test_gold.py",
    "slmsearch sft --from gold --config writer": "an hour; tests/slmsearch/environments/writer",
    "slmsearch questions --from-corpus --config learn --writer": "a writer; tests/slmsearch/environments/writer",
    "slmsearch serve judge --engine": "Ollama",
    "slmsearch serve policy": "a GPU, or llama.cpp",
    "slmsearch export gguf": "a champion; tests/flows/test_export_gguf.py",
    "slmsearch ask --policy my-searcher": "what `export gguf` wrote",
    "slmsearch serve searcher": "until Ctrl-C; tests/e2e/test_searcher_service.py",
    "slmsearch mcp": "until its client closes it; tests/e2e/test_mcp.py",
    "slmsearch judge qualify": "a model server",
    "slmsearch evaluate --policy openai:": "a model server",
    "slmsearch evaluate --policy smollm2-135m-searcher": "the network; tests/flows/test_models.py",
    "slmsearch ask --policy smollm2-135m-searcher": "the network; tests/flows/test_models.py",
    "slmsearch models get": "the network",
    "slmsearch bundle": "the network, and results of another machine",
    "slmsearch promote": "a registered version; tests/flows/test_pipeline.py",
    "slmsearch rollback": "a champion; tests/flows/test_pipeline.py",
    "slmsearch run nightly": "a champion; tests/flows/test_nightly.py",
    "slmsearch run train-and-eval": "minutes; tests/e2e/test_pipeline.py",
    "slmsearch up": "until Ctrl-C; tests/e2e/test_up.py",
    "slmsearch sandbox": "a server that stays; tests/flows/test_sandbox.py",
    "slmsearch ops reconcile": "a Prefect server; tests/flows/test_reconcile.py",
}
"""Beginnings of commands that do not run in this test, and what they need."""
NOTES = {
    "mill.md": "# Harrow Mill\n\n## History\n\nHarrow Mill was built in 1823 by Edda Lund. It stands beside the river Orr.\n",
    "bridge.md": "# Orr Bridge\n\n## Construction\n\nOrr Bridge was opened in 1871. It was designed by Tobias Hale.\n",
    "hall.md": "# Lund Hall\n\n## Use\n\nLund Hall is a museum in Vester. The museum was founded in 1904 by Ida Lund.\n",
}


def commands() -> list[str]:
    """Return the lines of all blocks, joined where they go on, without comments."""
    found: list[str] = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            lines = block.replace("\\\n", " ").splitlines()
            found += [command for line in lines if (command := re.split(r"\s#", line)[0].strip())]
    return list(dict.fromkeys(found))


OURS = [command for command in commands() if command.startswith("slmsearch ")]
RUN = [command for command in OURS if not command.startswith(tuple(NOT_HERE))]


def test_there_are_blocks() -> None:
    assert len(OURS) >= 20 and len(RUN) >= 6
    assert not [start for start in NOT_HERE if not any(command.startswith(start) for command in OURS)], "no line says more than there is"


@pytest.mark.parametrize("command", OURS)
def test_the_console_script_reads_it(command: str) -> None:
    words = shlex.split(command.replace("NAME", "name"))[1:]
    context, group = click.Context(cli), cli
    found: click.Command = group
    while isinstance(found, click.Group):
        name, found, words = found.resolve_command(context, words)  # type: ignore[assignment]
        assert found is not None, name
    words = ["learn" if word.startswith("data/learn/") else word for word in words]  # as `learn` writes them
    read = found.make_context(command, [str(ROOT / word) if word.startswith("deployments/") else word for word in words])
    load_config([find_settings(given) for given in read.params.get("given") or ()], read.meta["slmsearch.overrides"])


def test_what_can_run_here_runs(ready_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    for name, text in NOTES.items():
        (tmp_path / "notes" / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for command in RUN:
        words = [sys.executable, "-m", "flows", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("command", [command for command in commands() if not command.startswith("slmsearch ")])
def test_the_other_tools_have_what_they_are_asked_for(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[:3] == ["prefect", "deployment", "run"]:
        deployments = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())["deployments"]
        assert words[3].split("/")[1] in {deployment["name"] for deployment in deployments}
    else:
        files = [word for word in words if word.startswith(("deployments/", "data/"))]
        assert all((ROOT / file).exists() for file in files)
