from pathlib import Path

import pytest

from slmsearch.errors import ServiceError
from slmsearch.extensions.bench.service import run_service


def test_a_service_that_does_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"^the service is not ready: slmsearch: train\.steps: "):
        run_service(["--train.steps=many"], "SLMSEARCH_API_TOKEN", 1.0, ["Who?"], tmp_path / "log", str)
