"""The real size: SmolLM2-135M learns to search real Wikipedia pages from gold demonstrations, by product commands only.

Settings are those of the preset `squad`. `make test-real` runs it; it takes about 40 minutes on two cores that have nothing
else to do.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.deployments.reading import ROOT

PACK = ROOT.parent / "shared" / "data"
PAGES, QUESTIONS = PACK / "squad_pages.jsonl", PACK / "squad_questions.jsonl"
BAR = 0.25
"""Share of the test questions that must be answered exactly."""
MAX_RSS_GIB = 5.0

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(0),
    pytest.mark.skipif(not QUESTIONS.is_file(), reason=f"needs the question pack in {PACK}"),
]


def run(*arguments: str, home: Path) -> dict[str, Any]:
    """Run a command of the product and return its result, with its minutes."""
    config = ["--config", "squad", "--corpus.pages", str(PAGES), "--corpus.questions", str(QUESTIONS)]
    paths = ["--paths.data_dir", str(home / "data"), "--paths.mlruns_dir", str(home / "mlruns")]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    started = time.monotonic()
    command = [sys.executable, "-c", "from flows.cli.main import main; main()", *arguments, *config, *paths, "--json"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == 0, f"{arguments[0]} ended with {ended.returncode}"
    result: dict[str, Any] = json.loads(ended.stdout)
    return {**result, "minutes": (time.monotonic() - started) / 60}


def test_smollm2_learns_from_gold_demonstrations_on_real_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Path(os.environ.get("REAL_HOME", tmp_path))
    model = home / "smollm2-searcher"
    taught = run("sft", "--from", "gold", "--out", str(model), home=home)
    assert taught["steps"] <= 300
    after = run("evaluate", "--policy", str(model), "--split", "test", home=home)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    exact, f1 = after["metrics"]["answer/exact_match"], after["metrics"]["answer/f1"]
    with capsys.disabled():
        print(
            f"\nSmolLM2-135M on pages it never saw: EM {exact:.1%}, F1 {f1:.1%} of {after['n']} questions; "
            f"{taught['episodes']} demonstrations (left out: {taught['left_out']}), {taught['steps']} updates in "
            f"{taught['minutes']:.1f} min, evaluation {after['minutes']:.1f} min, peak {peak:.2f} GiB"
        )
    assert exact >= BAR
    assert peak <= MAX_RSS_GIB
