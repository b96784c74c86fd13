"""What phases take of a card, with a stand-in for its probes: there is none here."""

import json
import threading

import pytest

from slmsearch.training import card as module
from slmsearch.training import training_run as training
from slmsearch.training.card import CardWatch, busy_reader, sampling_busy, watching_card
from slmsearch.training.files import MANIFEST, STEPS
from slmsearch.training.memory import GIB
from slmsearch.training.phase_timer import OTHER, SAMPLING, UPDATE, PhaseTimer
from slmsearch.training.reports import read_reports
from tests.slmsearch.training.through import train_through


class Probe:
    """A card that says what a test lets it say."""

    def __init__(self):
        self.peaks, self.busy = (0.0, 0.0), 0.5

    def take_peaks(self):
        taken, self.peaks = self.peaks, (0.0, 0.0)
        return taken


def test_each_phase_has_its_own_peak_and_share():
    probe = Probe()
    probe.peaks = (9 * GIB, 9 * GIB)  # before anybody watched
    watch = CardWatch(probe.take_peaks)
    timer = PhaseTimer(card=watch)
    with timer.on(UPDATE):
        probe.peaks = (2 * GIB, 3 * GIB)
        with timer.on(SAMPLING):
            probe.peaks = (5 * GIB, 6 * GIB)
            watch.sample(lambda: 0.25)
            watch.sample(lambda: 0.75)
        watch.sample(lambda: 1.0)
        probe.peaks = (1 * GIB, 6.5 * GIB)
    assert watch.read() == {
        OTHER: {"allocated_gib": 0.0, "reserved_gib": 0.0},
        UPDATE: {"allocated_gib": 2.0, "reserved_gib": 6.5, "busy_frac": 1.0},
        SAMPLING: {"allocated_gib": 5.0, "reserved_gib": 6.0, "busy_frac": 0.5},
    }
    assert watch.metrics()["card/sampling_busy_frac"] == 0.5
    assert "card/other_busy_frac" not in watch.metrics(), "not sampled is not idle"


def test_what_is_measured_across_a_change_of_the_phase_counts_for_none():
    watch = CardWatch(Probe().take_peaks)
    timer = PhaseTimer(card=watch)

    def across():
        timer.begin(UPDATE)
        return 0.9

    watch.sample(across)
    assert all("busy_frac" not in use for use in watch.read().values())


def test_a_thread_samples_until_the_end(monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    watch, twice = CardWatch(Probe().take_peaks), threading.Semaphore(0)
    watch.turn(UPDATE)

    def read_busy():
        twice.release()
        return 0.6

    with sampling_busy(watch, read_busy):
        assert twice.acquire(timeout=60) and twice.acquire(timeout=60)
    assert watch.read()[UPDATE]["busy_frac"] == 0.6
    assert not [thread for thread in threading.enumerate() if thread.name == "card"]


def test_a_driver_that_refuses_is_said_once_and_leaves_the_figure_out(monkeypatch, caplog):
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    watch, asked = CardWatch(Probe().take_peaks), threading.Semaphore(0)

    def refuse():
        asked.release()
        raise RuntimeError("driver says no")

    watch.turn(UPDATE)
    with sampling_busy(watch, refuse):
        assert asked.acquire(timeout=60)
    assert [record.getMessage().count("driver says no") for record in caplog.records] == [1]
    assert "busy_frac" not in watch.read()[UPDATE]


def test_without_a_way_to_see_it_the_figure_is_left_out(monkeypatch, caplog):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert busy_reader() is None
    with sampling_busy(CardWatch(Probe().take_peaks), None):
        pass
    assert "nvidia-smi" in caplog.text


def test_nvidia_smi_is_asked_for_the_card_that_is_used(monkeypatch, tmp_path):
    script = tmp_path / "nvidia-smi"
    script.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\necho 37\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(module.torch.cuda, "get_device_properties", lambda index: type("Card", (), {"uuid": "ab-1"}))
    read_busy = busy_reader()
    assert read_busy is not None and read_busy() == pytest.approx(0.37)
    assert (tmp_path / "asked").read_text().split()[:2] == ["--id=GPU-ab-1", "--query-gpu=utilization.gpu"]


def test_a_cpu_is_not_watched():
    with watching_card(use_cpu=True) as watch:
        assert watch is None


@pytest.mark.parametrize("there", [True, False])
def test_a_run_says_what_its_phases_took(make_job, toolbox, questions, monkeypatch, there):
    if there:
        probe = Probe()
        probe.take_peaks = lambda: (GIB, 2 * GIB)
        monkeypatch.setattr(module, "EVERY_S", 0.001)
        monkeypatch.setattr(training, "watching_card", lambda use_cpu: sampling_busy(CardWatch(probe.take_peaks), lambda: 0.5))
    job = make_job(steps=2)
    train_through(toolbox, questions, job)
    manifest, last = json.loads((job.directory / MANIFEST).read_text()), read_reports(job.directory / STEPS)[-1].metrics
    assert ("card" in manifest) == there and any(name.startswith("card/") for name in last) == there
    if there:
        assert {SAMPLING, UPDATE, OTHER} <= set(manifest["card"])
        assert manifest["card"][UPDATE]["reserved_gib"] == 2.0
        assert last["card/update_allocated_gib"] == 1.0
