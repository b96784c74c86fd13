"""Write the pages that follow from the code: `docs/cli.md` and `docs/configuration.md`; with `--check`, fail where they differ."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, SecretStr

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flows.cli.commands import bench, sandbox  # noqa: E402, F401  commands of extensions
from flows.cli.main import cli  # noqa: E402
from slmsearch.config import RunConfig  # noqa: E402

WRITTEN = "<!-- Written by `make docs`, never by hand. -->"
COMMON = """\
Every command that reads settings takes `--config NAME|FILE` (a preset or a YAML file; repeatable, later ones win), any setting as a flag
(`--train.steps 50`), and `--json`, with which standard output is one JSON object. Exit codes: 0 done, 1 a negative finding, 2 wrong
usage, 3 a missing or broken service, file or other resource.
"""


def cli_page() -> str:
    """Describe every command with its options, as `--help` does."""
    parts = ["# Commands", WRITTEN, COMMON.strip()]
    for path, command in _commands(cli, ("slmsearch",)):
        command.params = [parameter for parameter in command.params if parameter.name not in ("given", "as_json")]
        command.epilog, command.add_help_option = None, False
        with click.Context(command, info_name=" ".join(path), terminal_width=110) as context:
            parts += [f"## {' '.join(path)}", f"```text\n{command.get_help(context)}\n```"]
    return "\n\n".join(parts) + "\n"


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


def configuration_page() -> str:
    """Describe every setting: name, default, meaning."""
    parts = [
        "# Configuration",
        WRITTEN,
        "Settings come from defaults, then YAML files (`--config`, later files win), then short names (`DATA_DIR`, `JUDGE_MODEL` …), then\n"
        "`.env`, then variables (`SLMSEARCH_TRAIN__STEPS=50`), then flags (`--train.steps 50`). `slmsearch config` prints what is in use.",
        *_sections(RunConfig(), ""),
    ]
    return "\n\n".join(parts) + "\n"


def _sections(section: BaseModel, prefix: str) -> Iterator[str]:
    fields = {name: getattr(section, name) for name in type(section).model_fields}
    values = {name: value for name, value in fields.items() if not isinstance(value, BaseModel)}
    if values:
        doc = " ".join((type(section).__doc__ or "").split())
        rows = [f"| `{prefix}{name}` | {_cell(value)} | {_meaning(section, name)} |" for name, value in values.items()]
        yield f"## {prefix.rstrip('.') or 'A run'}"
        yield doc
        yield "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])
    for name, value in fields.items():
        if isinstance(value, BaseModel):
            yield from _sections(value, f"{prefix}{name}.")


def _cell(value: Any) -> str:
    shown = "" if isinstance(value, SecretStr) else str(value)
    return f"`{shown}`".replace("|", "\\|") if shown else ""


def _meaning(section: BaseModel, name: str) -> str:
    return " ".join((type(section).model_fields[name].description or "").split()).replace("|", "\\|")


def main() -> None:
    """Write the pages, or compare them with `--check`."""
    for name, text in (("cli.md", cli_page()), ("configuration.md", configuration_page())):
        path = ROOT / "docs" / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/{name} is not what the code says: make docs writes it")


if __name__ == "__main__":
    main()
