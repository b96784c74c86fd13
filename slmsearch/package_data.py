"""Paths of files that are shipped with the code: presets, deployment files, tiny models, an adapter.

In a checkout they are in `deployments/` and `data/models/`, where people edit them. In a wheel the same folders are in `slmsearch/shipped/`
(`tool.hatch.build.targets.wheel.sources` in pyproject.toml).
"""

from pathlib import Path

_SHIPPED = Path(__file__).with_name("shipped")
_ROOT = _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parents[1]
CHECKOUT = None if _SHIPPED.is_dir() else _ROOT
"""Root of the checkout that the code is imported from; None for an installed wheel."""


def package_data(path: str) -> Path:
    """Return a shipped file or folder by its path in the repository, such as `deployments/prefect.yaml`."""
    return _ROOT / path
