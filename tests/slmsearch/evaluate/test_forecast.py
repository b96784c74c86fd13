"""Forecasts of what a training brings: pass rates, shares of the errors that it removes, intervals that hold."""

import json
import math
import random
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.evaluate.forecast import (
    FOLDER,
    LEVEL,
    RUNS,
    WORTH,
    MeasuredRun,
    Start,
    Training,
    forecast,
    left_out_errors,
    measure_start,
    name_gains,
    predict_bounds,
    read_runs,
)
from tests.slmsearch.evaluate.builders import make

COUNTS = st.lists(st.integers(0, 5), min_size=4, max_size=7).filter(lambda counts: sum(counts) > 0)


def brute(start: Start, k: int, wanted: set[int]) -> float:
    """Share of all choices of k samples, over the questions, with a number of right ones in `wanted`."""
    shares = []
    for right, count in enumerate(start.counts):
        tries = [sum(chosen) for chosen in combinations([1] * right + [0] * (start.samples - right), k)]
        shares += [mean(one in wanted for one in tries)] * count
    return mean(shares)


@settings(deadline=None, max_examples=25)
@given(COUNTS, st.integers(1, 6))
def test_pass_at_k_and_signal_are_those_of_all_choices_of_samples(counts: list[int], k: int) -> None:
    start = Start(0.5, tuple(counts))
    k = min(k, start.samples)
    assert start.pass_at(k) == pytest.approx(brute(start, k, set(range(1, k + 1))))
    assert start.signal(k) == pytest.approx(brute(start, k, set(range(1, k))))
    assert start.signal(99) == pytest.approx(start.signal(start.samples)), "no more than were sampled"


def test_right_episodes_are_counted_by_question() -> None:
    greedy = [make("a"), make("b", False)]
    sampled = [make(name, bool(right)) for name, rights in (("a", (1, 1, 0)), ("b", (0, 0, 0))) for right in rights]
    start = measure_start(greedy, sampled, 3, "answer/correct")
    assert start == Start(0.5, (1, 0, 1, 0))
    assert (start.samples, start.asked, start.pass_at(3)) == (3, 2, 0.5)


def made_runs(corpora: int, each: int, noise: float, seed: int) -> list[MeasuredRun]:
    """Runs of a world in which a training removes more of the errors the longer it is and the better its start samples."""
    rng, runs = random.Random(seed), []
    for corpus in range(corpora):
        for number in range(each):
            rates = [rng.betavariate(0.6 + 2 * number / each, 1.2) for _ in range(96)]
            rights = [sum(rng.random() < rate for _ in range(16)) for rate in rates]
            start = Start(mean(rate > 0.5 for rate in rates), tuple(rights.count(right) for right in range(17)))
            training = Training(rng.choice((30, 120)), 8, 8, 1e-3, 10**6)
            share = 1 / (1 + math.exp(6 - 8 * start.pass_at(1) - 3 * (training.updates == 120) - rng.gauss(0, noise)))
            gain = share * (1 - start.greedy)
            after = (start.greedy + gain, gain - 0.03, gain + 0.03, start.greedy + gain / 3)
            runs.append(MeasuredRun(f"corpus {corpus}", str(number), start, training, 480, start.greedy, *after, 60.0))
    return runs


def test_a_known_law_is_found_and_its_interval_holds() -> None:
    runs = made_runs(corpora=6, each=8, noise=0.3, seed=1)
    errors = left_out_errors(runs)
    assert len(errors) == len(runs)
    assert mean(abs(error) for _, error in errors) < 0.05, "where the mean gain itself differs by a tenth and more"
    fresh = made_runs(corpora=30, each=4, noise=0.3, seed=2)
    found = [forecast(run.start, run.training, 60.0, runs) for run in fresh]
    inside = mean(one.gain.low <= run.gain <= one.gain.high for one, run in zip(found, fresh, strict=True))
    assert 0.8 <= inside <= 0.99
    assert mean(one.gain.high - one.gain.low for one in found) < 0.3
    assert all(one.worth_it == (one.gain.value >= 0.02) for one in found)
    assert all(one.sft_continued.value < one.gain.value for one in found)


def test_the_interval_is_as_wide_as_the_errors_were() -> None:
    runs = made_runs(corpora=5, each=8, noise=0.5, seed=3)
    bound = predict_bounds(runs)
    inside = mean(abs(error) <= bound * math.sqrt(1 - run.start.greedy) for run, error in left_out_errors(runs))
    assert LEVEL <= inside < LEVEL + 0.1


def test_a_forecast_is_told_in_a_line_and_as_metrics() -> None:
    runs = made_runs(corpora=4, each=5, noise=0.2, seed=4)
    found = forecast(runs[0].start, runs[0].training, 120.0, runs)
    assert found == forecast(runs[0].start, runs[0].training, 120.0, runs), "the same twice"
    assert f"{100 * found.gain.value:+.1f} points" in found.describe()
    assert "2 minutes" in found.describe()
    told = name_gains(found.to_dict())
    assert told["forecast/gain"] == found.gain.value
    assert told["forecast/sft_high"] == found.sft_continued.high


def test_the_trainings_of_an_installation_are_read(tmp_path: Path) -> None:
    assert read_runs(str(tmp_path)) == (), "none was measured"
    place = tmp_path / FOLDER / RUNS
    place.parent.mkdir()
    runs = made_runs(corpora=3, each=2, noise=0.2, seed=5)
    place.write_text(json.dumps([asdict(run) for run in runs]))
    assert read_runs(str(tmp_path)) == tuple(runs)
    place.write_text(json.dumps([asdict(run) for run in runs[:4]]))
    assert read_runs(str(tmp_path)) == (), "of two corpora"
    place.write_text("[{}]")
    with pytest.raises(EvaluationError, match=r"is damaged .* make it again with `slmsearch bench forecast`"):
        read_runs(str(tmp_path))


def test_the_shipped_trainings_hold_what_the_docs_say(tmp_path: Path) -> None:
    runs = read_runs(str(tmp_path), shipped=True)
    assert (len(runs), len({(run.corpus, run.start_name) for run in runs}), len({run.corpus for run in runs})) == (40, 25, 5)
    told = [forecast(run.start, run.training, 60.0, [one for one in runs if one.corpus != run.corpus]).gain for run in runs]
    assert sum(one.low <= run.gain <= one.high for one, run in zip(told, runs, strict=True)) == 36
    worth = [run.gain >= WORTH and run.low > 0 for run in runs]
    assert sum((one.value >= WORTH) == truly for one, truly in zip(told, worth, strict=True)) == 32


def test_a_start_at_the_ceiling_does_not_spoil_the_others() -> None:
    runs = made_runs(corpora=5, each=8, noise=0.3, seed=6)
    bound = predict_bounds(runs)
    spoilt = [replace(run, before=0.93, after=1.0) if number in (3, 11) else run for number, run in enumerate(runs)]
    assert predict_bounds(spoilt) < 1.5 * bound + 0.05


def test_a_start_that_is_never_right_at_once_may_gain() -> None:
    runs = made_runs(corpora=5, each=8, noise=0.1, seed=7)
    found = forecast(replace(runs[0].start, greedy=0.0), replace(runs[0].training, updates=120), 60.0, runs)
    assert found.gain.value > 0.005
    assert 0 <= found.gain.high <= 1


def test_what_was_not_measured_is_said() -> None:
    runs = made_runs(corpora=5, each=8, noise=0.2, seed=8)
    start, training = runs[0].start, runs[0].training
    assert forecast(start, training, 60.0, runs).beyond == ()
    large = forecast(start, replace(training, weights=135 * 10**6), 60.0, runs)
    assert large.beyond == ("size of the model",)
    assert large.gain == forecast(start, training, 60.0, runs).gain, "it is no input"
    assert "no training like this one was measured (size of the model)" in large.describe()
    assert forecast(start, replace(training, learning_rate=1e-4), 60.0, runs).beyond == ("learning rate",)
    assert forecast(start, replace(training, group_size=16), 60.0, runs).beyond == ("group size",)
    assert "number of updates" in forecast(start, replace(training, updates=5000), 60.0, runs).beyond
    with pytest.raises(ConfigError, match=r"forecast\.samples is 4; the trainings were measured with 16"):
        forecast(Start(0.5, (1, 2, 3, 4, 5)), training, 60.0, runs)


def test_a_longer_training_is_expected_to_bring_what_the_longest_brought() -> None:
    runs = read_runs("/nowhere", shipped=True)
    (long,) = (run for run in runs if (run.corpus, run.start_name, run.training.updates) == ("world", "noisy", 120))
    told = [forecast(long.start, replace(long.training, updates=updates), 60, runs) for updates in (120, 1000)]
    assert told[0].gain == told[1].gain and told[0].gain.value > 0.3
    assert (told[0].worth_it, told[1].worth_it) == (True, None) and told[1].beyond == ("number of updates",)
