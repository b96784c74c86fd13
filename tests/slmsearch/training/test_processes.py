"""Two training processes on the CPU, started by `accelerate launch`, against one.

Rows sample from their own streams of draws, so both play the same episodes as long as their weights agree; sums in another order
make them part after some steps.
"""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from slmsearch.training import launch
from slmsearch.training.files import ACCELERATE, ADAPTER, STEPS
from slmsearch.training.reports import read_reports
from tests.slmsearch.training import toy_worker, uneven_worker
from tests.slmsearch.training.through import train_through


def launch_with(worker, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(
        launch,
        "launcher",
        lambda job: ["-m", "accelerate.commands.launch", "--config_file", str(job.directory / ACCELERATE), "-m", worker.__name__],
    )


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(make_job, toolbox, questions, one_thread, monkeypatch):
    launch_with(toy_worker, monkeypatch)
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


@pytest.mark.slow
def test_uneven_work_ends_with_the_gradients_of_one_process(make_job, grouped_dir, one_thread, monkeypatch):
    """One process makes two passes over its blocks where the other makes one: they must not wait for each other in between."""
    launch_with(uneven_worker, monkeypatch)
    settings = {"steps": 3, "questions_per_step": 8, "group_size": 8, "checkpoint_steps": 3, "learning_rate": 1e-4, "preflight": "record"}
    jobs = [make_job("one", **settings), make_job("two", **settings, num_processes=2)]
    policy = jobs[0].config.policy.model_copy(update={"model": str(grouped_dir)})
    one, two = (replace(job, config=job.config.model_copy(update={"policy": policy})) for job in jobs)
    uneven_worker.run(one)
    launch.train(two, lambda report: None)
    for step in range(3):
        alone, together = (torch.load(job.directory / f"gradient-{step}.pt") for job in (one, two))
        whole = torch.cat([gradient.flatten() for gradient in alone.values()])
        apart = whole - torch.cat([together[name].flatten() for name in alone])
        assert whole.norm() > 1e-3
        assert apart.norm() <= 1e-5 * whole.norm(), step
