"""A few episodes of every training batch, as lines of `examples.jsonl`: what a planner wrote, and what came of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slmsearch.artifacts.files import replace_text
from slmsearch.environments.rows import EpisodeRow
from slmsearch.searcher.episode import Episode

EXAMPLES = "examples.jsonl"
"""In the directory of a training job."""
PER_STEP = 2
MAX_CHARS = 1000


def append_examples(path: Path, step: int, rows: Sequence[EpisodeRow], episodes: Sequence[Episode]) -> None:
    """Append the first episode of the batch and the first that ended otherwise."""
    chosen = [0] if rows else []
    chosen += [i for i, row in enumerate(rows) if row.correct != rows[0].correct][: PER_STEP - 1]
    with path.open("a", encoding="utf-8") as file:
        for i in chosen:
            file.write(json.dumps(_example(step, rows[i], episodes[i])) + "\n")


def read_examples(path: Path) -> list[dict[str, Any]]:
    """Read all complete lines; a missing file holds none."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def truncate_examples(path: Path, last_step: int) -> None:
    """Drop the examples after `last_step`, which a resumed run plays again."""
    if path.exists():
        kept = [example for example in read_examples(path) if example["step"] <= last_step]
        replace_text(path, "".join(json.dumps(example) + "\n" for example in kept))


def _example(step: int, row: EpisodeRow, episode: Episode) -> dict[str, Any]:
    carried_out = "; ".join(f"{turn.call.argument} {turn.result.text}" for turn in episode.turns if turn.call and turn.result)
    return {
        "step": step,
        "problem": row.question[:MAX_CHARS],
        "plan": episode.turns[0].text[:MAX_CHARS] if episode.turns else "",
        "worker": carried_out[:MAX_CHARS],
        "answer": row.answer or "",
        "gold": row.gold,
        "reward": row.reward,
        "stop_reason": row.stop_reason,
        "independence": row.measured.get("plan/independence", 0.0),
        "tokens": row.measured.get("plan/tokens", 0.0),
    }
