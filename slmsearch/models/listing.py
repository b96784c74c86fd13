"""Which models lie in a folder, and what is known of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slmsearch.artifacts.files import read_json
from slmsearch.models.fetch import MANIFEST
from slmsearch.models.known import KNOWN

MADE_HERE = "part of slmsearch"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that is here, or could be."""

    name: str
    """As `policy.model` takes it, or the name of its directory."""
    path: str | None
    """Where it lies; None: it can be fetched."""
    what: str
    source: str
    licence: str
    parameters: int | None


def list_models(folders: Sequence[Path]) -> list[ListedModel]:
    """List the models in folders, and the known ones that are in none of them."""
    found: dict[str, ListedModel] = {}
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.glob("*/config.json")):
            if not path.parent.name.startswith("."):
                found.setdefault(path.parent.name, _describe(path.parent))
    for model in KNOWN.values():
        missing = ListedModel(model.name, None, model.what, f"package {model.requirement}, or hub {model.hub_id}", model.licence, None)
        found.setdefault(model.name, missing)
    return [found[name] for name in sorted(found)]


def _describe(path: Path) -> ListedModel:
    manifest, made, taught = (read_json(path / name) for name in (MANIFEST, "bootstrap.json", "sft.json"))
    if "source" in manifest:
        what, source, licence = manifest["what"], manifest["source"], manifest["licence"]
        return ListedModel(path.name, str(path), what, source, licence, manifest.get("parameters"))
    if made:
        what = f"trained from scratch on generated data ({made.get('config', {}).get('recipe', 'unknown')} demonstrations)"
        return ListedModel(path.name, str(path), what, "slmsearch bootstrap", MADE_HERE, made.get("parameters"))
    if taught:
        start = Path(str(taught.get("start"))).name
        return ListedModel(path.name, str(path), f"{start} after supervised training", "slmsearch sft", f"that of {start}", None)
    return ListedModel(path.name, str(path), "put here by hand", "unknown", "unknown", None)
