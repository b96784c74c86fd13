"""The process that starts training, with a training process that holds no model."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from slmsearch.errors import JudgeError, TrainingError
from slmsearch.processes import watchdog
from slmsearch.training import launch
from slmsearch.training.files import ADAPTER, CHECKPOINTS, JOB, LOCK, LOG, STEPS, seal_checkpoint
from slmsearch.training.job import read_manifest
from slmsearch.training.launch import find_cause, launcher, train
from slmsearch.training.reports import read_reports
from tests.slmsearch.training import fake_worker
from tests.slmsearch.training.fake_worker import DIE, FINISH, RAISE, TELL, WAIT

ROOT = Path(__file__).parents[3]


OTHERS = set()


@pytest.fixture(autouse=True)
def nobody_elses_children():
    OTHERS.clear()
    OTHERS.update(child.pid for child in psutil.Process().children())


@pytest.fixture
def model_path():
    return "no-model"


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """The fake worker, without `accelerate launch` in between: that takes seconds to import torch."""
    monkeypatch.setattr(launch, "launcher", lambda job: ["-m", fake_worker.__name__])


def steps_of(job, **options):
    steps = []
    result = train(job, lambda report: steps.append(report.step), **options)
    return result, steps


def test_train_report_finish_and_look_up(make_job):
    job = make_job(seed=FINISH)
    judge = job.config.judge.model_copy(update={"api_key": SecretStr("s3cret")})
    job = replace(job, config=job.config.model_copy(update={"judge": judge}))
    result, steps = steps_of(job)
    assert steps == [1, 2, 3, 4]
    assert (result["steps"], result["resumed_from"]) == (4, 0)
    assert (job.directory / ADAPTER / "adapter_model.safetensors").read_text() == "weights"
    seen = (job.directory / "seen.json").read_text()
    assert json.loads(seen)["judge_key"] == "s3cret"
    assert not any("s3cret" in path.read_text() for path in (job.directory / JOB, job.directory / LOG))
    again, repeated = steps_of(job, after_step=2)
    assert again == result and repeated == [3, 4]
    assert (job.directory / "seen.json").read_text() == seen  # no second process


def test_a_damaged_adapter_is_no_result(make_job):
    job = make_job(seed=FINISH)
    train(job, lambda report: None)
    (job.directory / ADAPTER / "adapter_model.safetensors").write_text("other")
    assert read_manifest(job.directory) is None


@pytest.mark.parametrize(
    ("seed", "kind", "words"),
    [
        (RAISE, TrainingError, "RuntimeError: the loss went up the wall; resumable at step 2; log: "),
        (TELL, JudgeError, "judge is gone: start it; resumable at step 2; log: "),
        (DIE, TrainingError, "killed by SIGKILL: out of memory?"),
    ],
)
def test_a_failure_is_told_in_one_line_and_resumed(make_job, seed, kind, words):
    job = make_job(seed=seed)
    with pytest.raises(kind) as caught:
        train(job, lambda report: None)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    (job.directory / CHECKPOINTS / "checkpoint-3").mkdir()  # half written: no manifest
    calm = job.config.model_copy(update={"train": job.config.train.model_copy(update={"seed": FINISH})})
    result, steps = steps_of(replace(job, config=calm))
    assert steps == [1, 2, 3, 4] == [report.step for report in read_reports(job.directory / STEPS)]
    assert result["resumed_from"] == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(make_job, caplog, damage):
    job = make_job(seed=RAISE)
    with pytest.raises(TrainingError):
        train(job, lambda report: None)
    checkpoint = job.directory / CHECKPOINTS / "checkpoint-3"
    checkpoint.mkdir()
    for name in ("adapter_model.safetensors", "trainer_state.json", "optimizer.pt"):
        (checkpoint / name).write_bytes(b"whole content")
    seal_checkpoint(checkpoint, 3)
    name, content = {
        "cut": ("adapter_model.safetensors", b"whole"),
        "flipped": ("adapter_model.safetensors", b"whole_content"),
        "empty": ("trainer_state.json", b""),
        "missing": ("optimizer.pt", None),
    }[damage]
    (checkpoint / name).unlink()
    if content is not None:
        (checkpoint / name).write_bytes(content)
    calm = job.config.model_copy(update={"train": job.config.train.model_copy(update={"seed": FINISH})})
    result, steps = steps_of(replace(job, config=calm))
    assert steps == [1, 2, 3, 4] and result["resumed_from"] == 2
    (said,) = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert "checkpoint-3 is damaged" in said and name in said and said.endswith("training goes on from step 2")


def test_an_interrupt_stops_the_child_and_says_where_it_goes_on(make_job, caplog):
    job = make_job(seed=WAIT)

    def interrupt(report):
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(job, interrupt)
    assert caught.value.__notes__ == [caplog.messages[-1]]
    assert "resumable at step 3" in caplog.messages[-1]
    assert not is_alive(worker_pid(job))


def test_who_comes_second_waits_for_the_first_and_looks_its_result_up(make_job, monkeypatch):
    job = make_job(seed=FINISH)
    begun, waits, first = threading.Event(), threading.Event(), []

    def go_slowly(report):
        begun.set()
        assert waits.wait(60)

    thread = threading.Thread(target=lambda: first.append(train(job, go_slowly)))
    thread.start()
    told = []
    monkeypatch.setattr(launch.logger, "warning", lambda *message: (told.append(message[0] % message[1:]), waits.set()))
    assert begun.wait(60)
    second, steps = steps_of(job)
    thread.join()
    assert [second] == first
    assert steps == list(range(1, second["steps"] + 1))
    assert told == [f"process {os.getpid()} is training the same in {job.directory}: waiting for its end"]


def test_who_waits_goes_on_where_a_killed_one_stopped(make_job, monkeypatch):
    job = make_job(seed=FINISH)
    hold = "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(job.directory / LOCK)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline()
    monkeypatch.setattr(launch.logger, "warning", lambda *message: holder.kill())
    result, steps = steps_of(job)
    assert holder.wait(30) == -signal.SIGKILL
    assert steps == list(range(1, result["steps"] + 1))


def test_a_file_system_without_locks_is_said(make_job, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(launch.fcntl, "flock", refuse)
    with pytest.raises(TrainingError, match=r"cannot be locked .*No locks available.*set paths.data_dir"):
        train(make_job(seed=FINISH), lambda report: None)


@pytest.mark.usefixtures("unforked")
@pytest.mark.parametrize(("number", "accelerate"), [(signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGTERM, False)])
def test_no_orphan_is_left(make_job, number, accelerate):
    job = make_job(seed=WAIT)
    launcher = ["-m", "accelerate.commands.launch", "--cpu"] if accelerate else []
    (job.directory / JOB).write_text(job.to_json())
    program = f"""
        import sys
        from pathlib import Path
        from slmsearch.training import launch
        from slmsearch.training.job import TrainJob
        launch.launcher = lambda job: [*{launcher}, "-m", {fake_worker.__name__!r}]
        launch.train(TrainJob.from_json(Path(sys.argv[1]).read_text()), lambda report: print(report.step, flush=True))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(job.directory / JOB)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        while parent.stdout.readline() != "3\n":
            assert parent.poll() is None
        pid = worker_pid(job)
        assert is_alive(pid)
        parent.send_signal(number)
        said = parent.stderr.read()
    assert wait_until(lambda: not is_alive(pid), seconds=5)
    assert parent.returncode == (143 if number == signal.SIGTERM else -9)
    assert ("resumable at step 3" in said) == (number == signal.SIGTERM)


def test_the_cause_is_found_in_a_log():
    log = textwrap.dedent("""\
        Traceback (most recent call last):
          File "x.py", line 1
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.
        Traceback (most recent call last):
        subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.
        """)
    cause = find_cause(log)
    assert cause.startswith("the training process failed: torch.OutOfMemoryError: CUDA out of memory.")
    assert cause.endswith("; `slmsearch preflight` says which setting takes most")
    assert find_cause("hello\n") == "the training process failed without a word"


def test_the_environment_of_a_training_process():
    make = watchdog.make_environment
    one = make({"CUDA_VISIBLE_DEVICES": "3,1", "PYTHONPATH": "/b", "A": "old"}, {"A": "new"}, 1, "/a")
    assert (one["CUDA_VISIBLE_DEVICES"], one["PYTHONPATH"], one["A"]) == ("3", f"/a{os.pathsep}/b", "new")
    assert int(one["OMP_NUM_THREADS"]) >= 1
    assert make({}, {}, 1, "/a")["CUDA_VISIBLE_DEVICES"] == "0"
    two = make({"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "3,1"}, {}, 2, "/a")
    assert (two["OMP_NUM_THREADS"], two["CUDA_VISIBLE_DEVICES"]) == ("7", "3,1")


def test_started_by_accelerate(make_job):
    assert launcher(make_job())[:2] == ["-m", "accelerate.commands.launch"]


def worker_pid(job):
    return json.loads((job.directory / "seen.json").read_text())["pid"]


def children():
    """Those of this test: servers that other tests share may be children, too."""
    return [child.pid for child in psutil.Process().children() if child.pid not in OTHERS]


def is_alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(happened, seconds):
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()
