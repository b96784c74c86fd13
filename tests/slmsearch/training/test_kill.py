"""Real training through `accelerate launch`, killed in the middle and resumed."""

import pytest

from slmsearch.artifacts.files import file_hash
from slmsearch.errors import TrainingError
from slmsearch.training import launch
from slmsearch.training.files import ACCELERATE, ADAPTER
from tests.slmsearch.training import toy_worker
from tests.slmsearch.training.through import train_through


@pytest.mark.slow
def test_killed_and_resumed_it_ends_with_the_bytes_of_an_uninterrupted_run(make_job, toolbox, questions, one_thread, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = {"steps": 8, "checkpoint_steps": 3}
    whole, broken = make_job("whole", **settings), make_job("broken", **settings)
    train_through(toolbox, questions, whole)

    def launcher(job):
        return ["-m", "accelerate.commands.launch", "--config_file", str(job.directory / ACCELERATE), "-m", toy_worker.__name__]

    monkeypatch.setattr(launch, "launcher", launcher)
    steps: list[int] = []
    with pytest.raises(TrainingError, match=r"killed by SIGKILL.*resumable at step 3"):
        launch.train(broken, lambda report: steps.append(report.step))
    assert steps == [1, 2, 3, 4, 5]
    result = launch.train(broken, lambda report: steps.append(report.step), after_step=5)
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (result["resumed_from"], result["steps"]) == (3, 8)
    assert result["adapter_hash"] == file_hash(whole.directory / ADAPTER / "adapter_model.safetensors")
