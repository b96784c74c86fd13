"""The evaluation command of `verifiers` on a served tiny-searcher, beside our own evaluation of the same questions."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.runtime.settings import masked
from slmsearch.config import RunConfig
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.evaluate.policies import parse_policy
from slmsearch.evaluate.run import select_questions
from tests.e2e.conftest import MODEL
from tests.e2e.small_world import SmallWorld, small_world
from tests.slmsearch.evaluate.corpus import evaluate_searcher

NUM_QUESTIONS = 24

pytestmark = pytest.mark.skipif(
    find_spec("verifiers") is None, reason="the extra `verifiers` is not installed (it needs a Python before 3.14)"
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SmallWorld]:
    """A sample of its questions is played."""
    changes = {"corpus__world__pages": 40, "corpus__world__seed": 77, "evaluate__split": "all", "evaluate__limit": NUM_QUESTIONS}
    with small_world(tmp_path, **changes) as made:
        yield made


def run_their_evaluation(config: RunConfig, server: str, folder: Path) -> list[dict[str, Any]]:
    """Run `vf-eval slmsearch`; returns the episodes it saved."""
    settings = folder / "run.yaml"
    settings.write_text(yaml.safe_dump(masked(config)))  # what `slmsearch config` prints
    command = [str(Path(sys.executable).with_name("vf-eval")), "slmsearch", "--env.taskset.task.run", "@", str(settings)]
    command += ["--model", str(MODEL), "--client.base-url", server, "--client.api-key-var", "NO_SUCH_KEY"]
    command += ["--no-push", "--no-rich", "--output-dir", str(folder), "--run.name", "theirs"]
    home = {"HOME": str(folder)}  # where verifiers keeps its cache and looks for a login
    done = subprocess.run(command, cwd=folder, env={**os.environ, **home}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in (folder / "theirs" / "traces.jsonl").read_text().splitlines()]


def test_both_evaluations_give_every_question_the_same_scores(server: str, world: SmallWorld, tmp_path: Path) -> None:
    config, indexed = world.config, world.indexed
    questions = select_questions(indexed.questions, config.evaluate)
    ours = evaluate_searcher(
        questions,
        indexed.toolbox,
        parse_policy(f"openai:{MODEL}@{server}", config.policy, SearcherEnvironment.controls.baselines, "data"),
        config,
    )
    traces = {}
    for episode in run_their_evaluation(config, server, tmp_path):
        (trace,) = episode["traces"]
        assert (episode["ok"], trace["ok"], trace["errors"]) == (True, True, [])
        traces[trace["task"]["key"]] = trace
    assert len(traces) == len(ours.rows) == NUM_QUESTIONS
    for row, played in zip(ours.rows, ours.episodes, strict=True):
        trace = traces[row.question_id]
        wrote = [node["message"]["content"] for node in trace["nodes"] if node["sampled"]]
        assert wrote == [turn.text for turn in played.turns]
        assert trace["info"]["episode"]["turns"][-1]["answer"] == row.answer
        assert trace["stop_condition"] == row.stop_reason
        assert {name: reward["score"] * reward["weight"] for name, reward in trace["rewards"].items()} == row.reward_parts
        assert sum(reward["score"] * reward["weight"] for reward in trace["rewards"].values()) == row.reward
        theirs = {name.partition("/")[2]: value for name, value in trace["metrics"].items() if name.startswith("answer/")}
        names = ("typed_match", "exact_match", "f1", "correct")
        assert theirs == {**{name: getattr(row, name) for name in names}, "abstained_frac": row.abstained}
    # Right, wrong and two-hop questions were among them, or the agreement would say little.
    assert 0 < ours.metrics["answer/exact_match"] < 1
    assert {row.hops for row in ours.rows} >= {1, 2}
