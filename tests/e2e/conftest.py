"""Everything in this folder starts real processes: it is marked `e2e` and may take longer."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))
