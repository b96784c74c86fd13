"""`python -m tests.e2e.weighed ARGUMENTS`: the console script, which says what its process holds before and after each stage of a flow.

One line a stage on stderr: `weighed NAME BEFORE AFTER TORCH`, sizes in MB of resident memory; TORCH is 1 where this process has loaded it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from flows.cli.main import main
from flows.runtime import api
from slmsearch.config import PathsConfig


def resident_mb() -> float:
    """Resident memory of this process."""
    return float(psutil.Process().memory_info().rss) / 1e6


_prefect_api = api.prefect_api


@contextmanager
def weighing(paths: PathsConfig) -> Iterator[api.Api]:
    """Have stages weighed once Prefect may be imported: it reads its address then."""
    with _prefect_api(paths) as found:
        from flows.stages.pipeline import Pipeline

        stage = Pipeline.stage

        @contextmanager
        def weighed(self: Any, name: str, key: str | None = None) -> Iterator[str]:
            before = resident_mb()
            with stage(self, name, key) as run_id:
                yield run_id
            print(f"weighed {name} {before:.0f} {resident_mb():.0f} {int('torch' in sys.modules)}", file=sys.stderr, flush=True)

        Pipeline.stage = weighed  # type: ignore[method-assign]
        yield found


if __name__ == "__main__":
    api.prefect_api = weighing
    main()
