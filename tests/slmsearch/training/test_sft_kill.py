"""Supervised training that is killed ends with the bytes of one that is not."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from slmsearch.artifacts.files import file_hash
from slmsearch.config import LoraSection, PolicyConfig, RunConfig, SftConfig
from slmsearch.training import sft_checkpoints, teach
from slmsearch.training.encoding import Encoded
from slmsearch.training.files import MANIFEST, checkpoint_step, list_checkpoints, scratch_of, seal_checkpoint
from slmsearch.training.grpo_settings import make_adapter_config
from slmsearch.training.sft import DemonstrationTrainer, Lesson, train_sft
from slmsearch.training.sft_checkpoints import PROGRESS
from slmsearch.training.streams import repeated
from slmsearch.training.teach import load_student
from tests.slmsearch.training import sft_worker
from tests.slmsearch.training.sft_worker import make_llama, teach_small, write_llama

WEIGHTS = "model.safetensors"


def sealed(directory):
    return [path for path in list_checkpoints(directory) if (path / MANIFEST).is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiny", "adapter"])
def test_killed_and_begun_again_it_leaves_the_bytes_of_a_training_that_was_not(kind, tmp_path, one_thread, monkeypatch, caplog):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = write_llama(tmp_path / "base") if kind == "adapter" else "none"
    teach_small(kind, tmp_path / "whole", model)
    out, scratch = tmp_path / "broken", scratch_of(tmp_path / "broken")
    command = [sys.executable, "-m", sft_worker.__name__, kind, str(out), model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in child.stdout:  # an update after the other
            if len(sealed(scratch)) == 2:
                break
        child.kill()
    assert child.returncode == -9 and not out.exists()
    newest, before = sealed(scratch)[:2]
    told = json.loads((before / PROGRESS).read_text())
    (before / PROGRESS).write_text(json.dumps({**told, "seconds": 1000}))
    (before / MANIFEST).unlink()
    seal_checkpoint(before, checkpoint_step(before))
    (newest / "optimizer.pt").write_bytes(b"half of it")
    updates = list[int]()
    facts = teach_small(kind, out, model, on_phase=lambda what, unit, step, total: updates.append(step))
    step = checkpoint_step(before)
    assert updates[:2] == [step, step + 1], "told where it goes on, then its updates"
    assert [record.message for record in caplog.records if record.name == sft_checkpoints.__name__] == [
        f"{newest} is damaged (optimizer.pt has changed) and is not gone on from",
        f"supervised training goes on from update {step} of {facts['steps']}",
    ]
    assert 1000 < facts["seconds"] < 1300
    assert file_hash(out / WEIGHTS) == file_hash(tmp_path / "whole" / WEIGHTS)
    assert not scratch.exists()


class Killed(Exception):
    """Stands for a kill."""


class Kill(TrainerCallback):
    """Ends a training as it begins the update after so many."""

    def __init__(self, after):
        self._after = after

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self._after:
            raise Killed


@pytest.fixture
def saved_always(monkeypatch):
    monkeypatch.setattr(sft_checkpoints, "SAVE_S", 0)
    monkeypatch.setattr(sft_checkpoints, "SAVES_APART", 0)


def make_lesson(steps=6, dropout=None):
    """Six updates of a Llama: all its weights, or an adapter with dropout, which draws random numbers at every update."""
    model = make_llama(64, pad=0)
    if dropout is not None:
        from peft import get_peft_model

        settings = make_adapter_config(LoraSection(r=4))
        settings.lora_dropout = dropout
        model = get_peft_model(model, settings)
    rows = torch.randint(1, 64, (9, 24), generator=torch.Generator().manual_seed(0)).tolist()
    episodes = [Encoded([*rows[0][:8], *row], [-100] * 12 + [*rows[0][:8], *row][12:], 12) for row in rows]
    settings = SftConfig(steps=steps, batch_size=4, tokens_per_batch=256, learning_rate=1e-2)
    return Lesson(model, SimpleNamespace(pad_token_id=0), settings, lambda: repeated(episodes, 0))


def weights(lesson):
    return {name: weight.detach().clone() for name, weight in lesson.model.named_parameters()}


def train(tmp_path, lesson, killed_after=None, key="key"):
    """Train; return the weights, those there are if it is killed."""
    callbacks = [Kill(killed_after)] if killed_after is not None else []
    try:
        train_sft(lesson, tmp_path / "scratch", callbacks=callbacks, key=key)
    except Killed:
        assert killed_after is not None
    return weights(lesson)


@pytest.mark.parametrize(("dropout", "trees"), [(None, True), (None, False), (0.0, True), (0.3, True), (0.3, False)])
def test_random_numbers_and_the_choice_of_trees_go_on_as_well(dropout, trees, tmp_path, one_thread, saved_always, monkeypatch):
    checked = []

    def check(self, model, part):
        checked.append(part)
        return trees

    monkeypatch.setattr(DemonstrationTrainer, "_check_trees", check)
    whole = train(tmp_path, make_lesson(dropout=dropout), key="")
    for killed_after in (2, 5, 5):
        train(tmp_path, make_lesson(dropout=dropout), killed_after)
    found = train(tmp_path, make_lesson(dropout=dropout))
    assert len(checked) == 2, "at the first update of all, never again"
    assert all(torch.equal(whole[name], found[name]) for name in whole)


def test_two_checkpoints_are_kept_none_of_the_last_update_and_those_of_another_training_go(tmp_path, one_thread, saved_always, caplog):
    train(tmp_path, make_lesson())
    assert [checkpoint_step(path) for path in list_checkpoints(tmp_path / "scratch")] == [5, 4]
    (tmp_path / "scratch" / "checkpoint-6").mkdir()  # what a kill leaves while it is written
    train(tmp_path, make_lesson(), killed_after=0, key="another")
    assert list_checkpoints(tmp_path / "scratch") == [] and caplog.records == []


def test_a_short_training_saves_nothing_and_a_full_disk_ends_none(tmp_path, one_thread, monkeypatch, caplog):
    train(tmp_path, make_lesson())
    assert list_checkpoints(tmp_path / "scratch") == []
    monkeypatch.setattr(sft_checkpoints, "SAVE_S", 0)
    monkeypatch.setattr(sft_checkpoints.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    train(tmp_path, make_lesson())
    assert list_checkpoints(tmp_path / "scratch") == []
    assert "no checkpoint is saved" in caplog.text


def test_saving_takes_a_twentieth_of_the_time_at_most(tmp_path, one_thread, saved_always, monkeypatch):
    clock = iter([0.0, 100.0, 150.0, 221.0, 240.0, 2640.0, 2641.0])
    monkeypatch.setattr(sft_checkpoints, "SAVES_APART", 20)
    monkeypatch.setattr(sft_checkpoints, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    lesson = make_lesson()
    trainer = SimpleNamespace(args=SimpleNamespace(output_dir=str(tmp_path)), model=lesson.model, tokens_per_tree=0, add_callback=print)
    kept, due = sft_checkpoints.SftCheckpoints(trainer, "key"), []
    for step in (1, 2, 3, 4):
        state, control = SimpleNamespace(global_step=step, max_steps=9), SimpleNamespace(should_save=False)
        kept.on_step_end(None, state, control)
        due.append(control.should_save)
        if step == 1:
            (tmp_path / "checkpoint-1").mkdir()
            kept.on_save(None, state, control)
    assert due == [True, False, False, True], "saving took 121 s"


def test_what_is_killed_goes_on_only_as_the_same_training(tmp_path, monkeypatch):
    config, lesson = RunConfig(), make_lesson()
    key = teach._key_of(lesson, config.train.lora)
    assert key == teach._key_of(make_lesson(), config.train.lora)
    other = make_lesson()
    other.model.lm_head.weight.data[0, 0] += 1
    others = [make_lesson(steps=7), other]
    others.append(Lesson(lesson.model, lesson.tokenizer, lesson.settings, lambda: iter([Encoded([1, 2], [-100, 2], 1)])))
    assert len({key, *(teach._key_of(each, config.train.lora) for each in others)}) == 4


def test_a_control_that_is_killed_goes_on_with_the_steps_that_were_measured(tmp_path, one_thread, monkeypatch):
    base, out = write_llama(tmp_path / "base"), tmp_path / "control"
    trained = list[tuple[int, bool]]()

    def train_a_little(lesson, scratch_dir, *args, callbacks=(), key="", **told):
        trained.append((lesson.settings.steps, bool(key)))
        for times in callbacks:
            monkeypatch.setattr(times, "_times", [0.5, 0.5, 0.5, 0.5])
        if trained == [(teach.TRIED_UPDATES, False), (196, True)]:
            raise Killed
        return 90.0

    monkeypatch.setattr(teach, "train_sft", train_a_little)
    config = RunConfig(policy=PolicyConfig(model=base, device="cpu"))
    with pytest.raises(Killed):
        teach.train_control(config, out, 100.0)
    assert scratch_of(out).is_dir()
    facts = teach.train_control(config, out, 100.0)
    assert trained == [(teach.TRIED_UPDATES, False), (196, True), (196, True)]
    assert facts["steps"] == 196 and 90 <= facts["seconds"] < 120
    assert not scratch_of(out).exists()
    shutil.copytree(base, scratch_of(out))  # killed after it was published
    assert teach.train_control(config, out, 100.0) == facts and not scratch_of(out).exists()


def test_a_control_begins_where_reinforcement_begins_and_on_the_same_device(tmp_path, monkeypatch):
    begun = []

    def load(policy, lora):
        begun.append(policy)
        return load_student(policy.model_copy(update={"adapter": None}), lora)

    def look(lesson, *args, **told):
        begun.append(lesson.use_cpu)
        raise Killed

    monkeypatch.setattr(teach, "load_student", load)
    monkeypatch.setattr(teach, "train_sft", look)
    config = RunConfig(policy=PolicyConfig(model=write_llama(tmp_path / "base"), adapter="earlier", device="cpu"))
    with pytest.raises(Killed):
        teach.train_control(config.changed({"control.steps": 5, "sft.lora": True}), tmp_path / "control", 100.0)
    assert begun == [config.policy, True]


def test_the_same_seed_gives_the_same_adapter(tmp_path, one_thread):
    base = write_llama(tmp_path / "base")
    for name in ("one", "other"):
        torch.rand(3)  # what ran before in this process
        teach_small("adapter", tmp_path / name, base)
    assert file_hash(tmp_path / "one" / WEIGHTS) == file_hash(tmp_path / "other" / WEIGHTS)
