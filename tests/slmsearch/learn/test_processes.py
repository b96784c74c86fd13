"""Two training processes on the CPU, started by `accelerate launch`, against one.

Rows sample from their own streams of draws, so both play the same episodes as long as their weights agree; sums in another order
make them part after some steps.
"""

import json

import pytest
from safetensors.torch import load_file

from slmsearch.learn import launch, process
from slmsearch.learn.files import ACCELERATE, ADAPTER, STEPS
from slmsearch.learn.reports import read_reports
from slmsearch.learn.training import train_through
from tests.slmsearch.learn import toy_worker


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(make_job, toolbox, questions, one_thread, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(
        process,
        "launcher",
        lambda job: ["-m", "accelerate.commands.launch", "--config_file", str(job.directory / ACCELERATE), "-m", toy_worker.__name__],
    )
    one, two = make_job("one", steps=2), make_job("two", steps=2, num_processes=2)
    train_through(toolbox, questions, one)
    (two.directory / "died.json").write_text(json.dumps(0))  # the toy worker is to live
    launch.train(two, lambda report: None)

    def curves(job):
        names = ("reward/mean", "episode/tool_calls", "stop/answered", "group/zero_advantage_frac", "policy/entropy")
        return [[report.metrics[name] for name in names] for report in read_reports(job.directory / STEPS)]

    for alone, together in zip(curves(one), curves(two), strict=True):
        assert together == pytest.approx(alone, abs=1e-3)
    weights = [load_file(job.directory / ADAPTER / "adapter_model.safetensors") for job in (one, two)]
    # Where a gradient is almost nothing, Adam makes a whole step out of the sign of its rounding error: means are compared.
    for name, weight in weights[0].items():
        if "lora_B" in name:
            assert float((weight - weights[1][name]).abs().mean()) < 0.05 * float(weight.abs().mean()), name
