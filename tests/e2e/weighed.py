"""`python -m tests.e2e.weighed ARGUMENTS`: the console script, which says what its process holds before and after each stage of a flow.

One line a stage on stderr: `weighed NAME BEFORE AFTER TORCH`, sizes in MB of resident memory; TORCH is 1 where this process has loaded it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from flows.cli.main import main
from flows.stages.pipeline import Pipeline


def resident_mb() -> float:
    """Resident memory of this process."""
    return float(psutil.Process().memory_info().rss) / 1e6


_stage = Pipeline.stage


@contextmanager
def weighed(self: Pipeline, name: str, key: str | None = None) -> Iterator[str]:
    """Hold a stage open as `Pipeline.stage` does, and weigh."""
    before = resident_mb()
    with _stage(self, name, key) as run_id:
        yield run_id
    print(f"weighed {name} {before:.0f} {resident_mb():.0f} {int('torch' in sys.modules)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    Pipeline.stage = weighed  # type: ignore[method-assign]
    main()
