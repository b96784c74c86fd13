"""GRPO through TRL's own vLLM code, started as a user starts it: a training process of its own, the adapter handed over as an adapter."""

import json
import subprocess
import sys
from pathlib import Path

from slmsearch.training.files import LOG, STEPS
from slmsearch.training.reports import read_reports

STEPS_TRAINED = 3
SETTINGS = {
    "policy.device": "cpu",
    "corpus.world.pages": "40",
    "searcher.max_turn_tokens": "24",
    "searcher.max_episode_tokens": "96",
    "searcher.max_turns": "3",
    "reward.kind": "random",  # a random model is never right
    "train.preflight": "record",
    "train.monitor.held_out": "0",
    "train.vllm.mode": "colocate",
    "train.steps": str(STEPS_TRAINED),
    "train.questions_per_step": "2",
    "train.group_size": "4",
    "train.learning_rate": "0.03",
    "train.temperature": "0.7",
}


def test_three_steps_sample_from_the_adapter_as_it_is(gqa_model: Path, tmp_path: Path) -> None:
    words = "Search the pages of the encyclopedia before you answer . " * 30  # 840 tokens, of a context of 1,024
    places = {"paths.data_dir": str(tmp_path / "data"), "paths.mlruns_dir": str(tmp_path / "mlruns")}
    given = {**SETTINGS, **places, "policy.model": str(gqa_model), "searcher.system_prompt": words}
    flags = [part for name, value in given.items() for part in (f"--{name}", value)]
    done = subprocess.run([sys.executable, "-m", "flows", "train", "--json", *flags], capture_output=True, text=True)
    (directory,) = (tmp_path / "data" / "training").iterdir()
    assert done.returncode == 0, done.stderr[-2000:] + (directory / LOG).read_text(encoding="utf-8")[-2000:]
    assert json.loads(done.stdout)["steps"] == STEPS_TRAINED
    reports = [report.metrics for report in read_reports(directory / STEPS)]
    assert len(reports) == STEPS_TRAINED
    # What vLLM says of each sampled token and what the trainer computes: merged weights or an adapter of the step before would show.
    assert max(abs(metrics["policy/kl_sampler"]) for metrics in reports) < 1e-4
    assert min(metrics["optim/grad_norm"] for metrics in reports) > 0
