"""Which episodes of a step a person gets to read, and that they survive the file of reports and a kill."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import TrainConfig
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.errors import CheckpointError
from slmsearch.training.callbacks import StepCallback
from slmsearch.training.files import CHECKPOINTS, STEPS, latest_complete_checkpoint
from slmsearch.training.phase_timer import PhaseTimer
from slmsearch.training.reports import append_report, make_report, read_reports, truncate_reports
from slmsearch.training.samples import SAMPLED_STEPS, SampledEpisode, SampleKind, choose_samples, is_sampled
from tests.slmsearch.evaluate.builders import fail, make, play, say, search
from tests.slmsearch.training.through import train_through


def rows_of(*rewards):
    """Rows with these rewards; None has failed."""
    return [fail(f"q{i}") if reward is None else make(f"q{i}", reward=reward) for i, reward in enumerate(rewards)]


def choose(*rewards, group_size=3):
    rows = rows_of(*rewards)
    chosen = choose_samples(rows, [play(question_id=row.question_id) for row in rows], group_size)
    assert all(one.row.question_id == one.episode.question_id for one in chosen)
    return {one.kind.value: int(one.row.question_id[1:]) for one in chosen}


def test_the_ends_of_the_widest_group_and_one_of_a_group_without_variance():
    assert choose(0.4, 0.5, 0.6, 0.0, 1.0, 0.9, 1.0, 1.0, 1.0) == {"best": 4, "worst": 3, "zero_variance": 6}
    assert choose(0.1, 0.2, 0.2) == {"best": 1, "worst": 0}
    assert choose(0.5, 0.5, 0.5) == {"zero_variance": 0}


def test_what_failed_and_groups_that_are_not_whole_do_not_count():
    assert choose(None, 0.2, 0.3, None, None, 5.0) == {"best": 2, "worst": 1}, "one episode alone has nothing to differ from"
    assert choose(None, 0.7, 0.7) == {"zero_variance": 1}
    assert choose(0.5, 0.5, 0.5, 0.0, 1.0) == {"zero_variance": 0}, "another process played the rest of that group"
    assert choose(0.5, 0.5) == choose() == {}


@given(st.integers(1, 5000))
def test_a_run_of_any_length_samples_few_steps_among_them_its_ends(steps):
    sampled = [step for step in range(1, steps + 1) if is_sampled(step, steps)]
    assert sampled[0] == 1 and sampled[-1] == steps
    assert min(steps, SAMPLED_STEPS // 2) <= len(sampled) <= SAMPLED_STEPS


def test_samples_survive_the_file_and_its_cutting_back(tmp_path):
    episode = play(search("mira"), say("lone \ud800 surrogate"))
    sample = SampledEpisode(SampleKind.BEST, make("q1", reward_parts={"correct": 1.0}), episode)
    reports = [replace(make_report(1, {"loss": 1.0}), samples=(sample, sample)), make_report(2, {"loss": 0.5})]
    for report in reports:
        append_report(tmp_path / STEPS, report)
    assert read_reports(tmp_path / STEPS) == reports
    assert truncate_reports(tmp_path / STEPS, 1) == read_reports(tmp_path / STEPS) == reports[:1]


def test_a_damaged_sample_is_an_error_of_the_file(tmp_path):
    for samples in ('[{"kind": "best"}]', '[{"kind": "odd", "row": {}, "episode": {}}]', '[{"kind": "best", "row": {}, "episode": {}}]'):
        (tmp_path / STEPS).write_text(f'{{"step": 1, "metrics": {{}}, "time": 1.0, "samples": {samples}}}\n')
        with pytest.raises(CheckpointError, match="delete that directory"):
            read_reports(tmp_path / STEPS)


def test_only_the_main_process_reports_and_only_at_some_steps():
    rows = rows_of(0.0, 1.0)
    bridge, reports = SimpleNamespace(metrics={}, rows=rows, episodes=[play(question_id=row.question_id) for row in rows]), []
    callback = StepCallback(bridge, reports.append, lambda: False, TrainConfig(group_size=2), PhaseTimer())
    for is_main in (False, True):
        for step in (1, 2, 100):
            state = SimpleNamespace(is_world_process_zero=is_main, global_step=step, max_steps=100)
            callback.on_log(None, state, None, logs={"loss": 0.5})
    assert [(report.step, len(report.samples)) for report in reports] == [(1, 2), (2, 0), (100, 2)]


def test_a_training_leaves_what_it_played_and_the_same_when_it_goes_on(make_job, toolbox, questions):
    job = make_job(steps=4, group_size=8)
    train_through(toolbox, questions, job)
    reports = read_reports(job.directory / STEPS)
    samples = [(report, sample) for report in reports for sample in report.samples]
    assert {sample.kind for _, sample in samples} >= {SampleKind.BEST, SampleKind.WORST}
    assert len(samples) <= 3 * len(reports)
    by_kind = {(report.step, sample.kind): sample for report, sample in samples}
    for report, sample in samples:
        row, turns = sample.row, sample.episode.turns
        assert row.question in {question.question for question in questions}
        assert len(turns) == row.turns and all(turn.text for turn in turns)
        assert sum(row.reward_parts.values()) == pytest.approx(row.reward)
        if sample.kind is SampleKind.BEST:
            worst = by_kind[report.step, SampleKind.WORST]
            assert worst.row.question_id == row.question_id and worst.row.reward < row.reward
    results = {turn.result.text for _, sample in samples for turn in sample.episode.turns if turn.result}
    assert "mira: Mira\ndunmar: Dunmar" in results

    broken = make_job("broken", steps=4, group_size=8)

    class Killed(BaseException):
        pass

    class DyingToolbox(Toolbox):
        def serve(self, calls, views=()):
            if len(read_reports(broken.directory / STEPS)) == 3:
                raise Killed
            return super().serve(calls, views)

    with pytest.raises(Killed):
        train_through(DyingToolbox(toolbox.library, toolbox.index, 4, 1500), questions, broken)
    truncate_reports(broken.directory / STEPS, 2)
    train_through(toolbox, questions, broken, latest_complete_checkpoint(broken.directory / CHECKPOINTS))
    assert told(broken) == told(job)


def told(job):
    """What the samples of all reports say, without times."""
    return [
        (report.step, sample.kind, sample.row.question, sample.row.reward, [(turn.text, turn.result) for turn in sample.episode.turns])
        for report in read_reports(job.directory / STEPS)
        for sample in report.samples
    ]
