"""`slmsearch learn` on a folder of Markdown with tiny-searcher: real processes, a real index, real training; then one file changes.

What a budget decides is tested in `tests/flows/test_learn.py`: on a busy machine no budget is both short and enough.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.small_world import PATIENCE_SECONDS, SmallWorld, small_world

pytestmark = pytest.mark.timeout(4 * PATIENCE_SECONDS)
SMALL = {
    "searcher__max_episode_tokens": 400,
    "train__questions_per_step": 2,
    "train__group_size": 2,
    "train__accumulation": 1,
    "train__preflight": "record",  # four updates teach it nothing
    "train__monitor__held_out": 4,
    "decision__min_questions": 4,
}


def learn(world: SmallWorld, folder: Path, *more: str) -> dict[str, Any]:
    process = world.start("learn", str(folder), "--json", *more, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.communicate(timeout=2 * PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    result: dict[str, Any] = json.loads(out)
    return result


def test_a_folder_is_learnt_and_again_when_a_file_changed(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    with small_world(tmp_path, forked=True, **SMALL) as world:
        for page in world.indexed.toolbox.library.pages():
            (folder / f"{page.id}.md").write_text(page.content)
        first = learn(world, folder, "--budget", "0", "--sft.steps", "4", "--train.steps", "2")
        learnt = first["learnt"]
        assert first["training"]["steps"] == 2 and not learnt["planned"]
        assert Path(first["report"]["page"]).is_file() and not first["warnings"]
        assert {"untrained", "closed_book", "reader", "start", "after"} <= set(first) and learnt["question_s"] > 0
        assert "few_shot" not in first, "two examples and an episode do not fit into 1,024 tokens"

        changed = folder / f"{page.id}.md"
        changed.write_text(
            changed.read_text() + "\n## Lighthouse\n\nThe old lighthouse of Nordkvik was built in 1742 by Ingrid Salander.\n"
        )
        second = learn(world, folder, "--budget", "0", "--config", learnt["settings"])  # with its steps
        assert 0 < second["learnt"]["questions"]["kept"] < second["learnt"]["questions"]["count"]
        assert second["training"]["steps"] == 2
        asked = subprocess.run(
            world.command("ask", "Who built the old lighthouse of Nordkvik?", "--config", learnt["settings"], "--json"),
            env=world.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert asked.returncode in (0, 1), asked.stderr
        assert json.loads(asked.stdout)["index_key"] == second["lineage"]["index_key"], "asked on the pages as they are now"
