"""The files of `deployments/` as values, and small stand-ins for what substitutes in them."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"


def compose() -> dict[str, Any]:
    """The compose file, merge keys resolved."""
    found = yaml.safe_load((DEPLOYMENTS / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def service(name: str) -> dict[str, Any]:
    """One service of it."""
    found = compose()["services"][name]
    assert isinstance(found, dict)
    return found


def replace_all(text: str, replacements: dict[str, str]) -> str:
    """Replace strings in one pass; each must occur, so that a test notices when a file no longer says what it relies on."""
    missing = [old for old in replacements if old not in text]
    assert not missing, f"not in the file: {missing}"
    return re.sub(
        "|".join(re.escape(old) for old in sorted(replacements, key=len, reverse=True)), lambda found: replacements[found[0]], text
    )
