"""Forecast of what reinforcement learning will bring, made before it: from episodes that the start plays on held-out questions.

A training is described by the share of the start's errors that it removes. That share is near none where no sampled episode finds the
answer, near all where most do, and between them it depends on the length: one answer has to overtake another before a greedy episode
gives it. A Gaussian process (Rasmussen, Williams, 2006) is fitted to the shares of trainings that were measured (`RUNS`), over the number
of updates, pass@1 and pass@k. The interval comes from the errors of forecasts for corpora that were left out of the fit (conformal
prediction: Vovk, Gammerman, Shafer, 2005; leave-one-corpus-out).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from pydantic import TypeAdapter

from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError, EvaluationError, TrainingError
from slmsearch.evaluate.metrics import metric_values
from slmsearch.foreign import cause_of

FOLDER, RUNS = "forecast", "forecast_runs.json"
"""Folder in the data directory, and the file in it with measured trainings; `slmsearch bench forecast` makes it."""
FEWEST_CORPORA = 3
"""Smallest number of corpora whose trainings a forecast stands on: one is left out at a time."""
LEVEL = 0.9
"""Share of trainings whose gain is to be inside its interval."""
WORTH = 0.02
"""Smallest gain for which a training is worth its time."""
UNMEASURED = "no training like this one was measured ({})"
"""Doubt about a forecast, with the names of the inputs that lie outside."""
UPDATE_FACTOR = 2.5
"""Duration of a whole training step in units of its rollouts, roughly."""
SAME = 0.01
"""Standard deviation of an input below which it counts as constant."""
SPREAD, REACH, NOISE = 0.15, 1.0, 0.02
"""Variance of the shares, length in standard deviations of the inputs, and variance of a measured share, of the Gaussian process."""


class NoForecastError(TrainingError):
    """Error of a forecast that cannot be made."""


@dataclass(frozen=True, slots=True)
class Start:
    """A policy before its training, by held-out questions that it played once greedily and several times at temperature 1."""

    greedy: float
    """Share of questions answered rightly."""
    counts: tuple[int, ...]
    """Number of questions by how many of their sampled episodes are right, from 0 to all."""

    @property
    def samples(self) -> int:
        """Return the number of sampled episodes of a question."""
        return len(self.counts) - 1

    @property
    def asked(self) -> int:
        """Return the number of questions."""
        return sum(self.counts)

    def pass_at(self, k: int) -> float:
        """Return the unbiased estimate of pass@k (Chen et al., arXiv 2107.03374): any of k sampled episodes is right."""
        return 1 - self._mean(lambda right: math.comb(self.samples - right, k) / math.comb(self.samples, k))

    def signal(self, group_size: int) -> float:
        """Return the share of groups of `group_size` episodes, at most `samples`, of which some are right and some wrong."""
        k = min(group_size, self.samples)
        ways = math.comb(self.samples, k)
        return 1 - self._mean(lambda right: (math.comb(right, k) + math.comb(self.samples - right, k)) / ways)

    def _mean(self, of_right: Callable[[int], float]) -> float:
        return sum(count * of_right(right) for right, count in enumerate(self.counts)) / self.asked


@dataclass(frozen=True, slots=True)
class Training:
    """Length and settings of a training, as far as they are known before."""

    updates: int
    questions: int
    """Questions of an update."""
    group_size: int
    learning_rate: float
    weights: int
    """Number of weights of the model, in all."""
    environment: str = "searcher"
    """Name of the environment."""

    @property
    def episodes(self) -> int:
        """Return the number of sampled episodes."""
        return self.updates * self.questions * self.group_size


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A training with its start and its gain."""

    corpus: str
    start_name: str
    start: Start
    training: Training
    n: int
    """Number of test questions."""
    before: float
    """Accuracy of the start on them."""
    after: float
    """Accuracy after the training."""
    low: float
    high: float
    """95 % interval of their difference, by page."""
    sft_after: float
    """Accuracy after supervised training that went on for as long."""
    seconds: float
    """Time of the training, in seconds."""

    @property
    def gain(self) -> float:
        """Return the difference that the training made."""
        return self.after - self.before

    @property
    def sft_gain(self) -> float:
        """Return the difference that supervised training made."""
        return self.sft_after - self.before


@dataclass(frozen=True, slots=True)
class Expected:
    """A gain in accuracy, with the interval that holds it with probability `LEVEL`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected result of a training."""

    gain: Expected
    headroom: float
    """pass@k of all sampled episodes less greedy accuracy."""
    sft_continued: Expected
    """Gain of supervised training that goes on for as long."""
    worth_it: bool | None
    """True if the gain is at least `WORTH`; None if no training like it was measured."""
    beyond: tuple[str, ...]
    """Names of inputs outside the range of the measured trainings: there the interval is not measured."""
    seconds: float
    """Time that the training will take, in seconds, by the time of the played episodes."""
    signal_frac: float
    """Share of groups with right and wrong episodes: the others teach nothing."""
    start: Start
    training: Training

    def describe(self) -> str:
        """Describe it in one line."""
        grpo, sft = (show_gain(asdict(one)) for one in (self.gain, self.sft_continued))
        greedy, tried = 100 * self.start.greedy, 100 * (self.start.greedy + self.headroom)
        return (
            f"GRPO is expected to bring {grpo}, supervised training {sft} in the same {show_time(self.seconds)} or so; of "
            f"{self.start.asked} held-out questions the start answers {greedy:.0f} %, in one of {self.start.samples} tries {tried:.0f} %"
            + (f"; {UNMEASURED.format(', '.join(self.beyond))}" if self.beyond else "")
        )

    def to_dict(self) -> dict[str, object]:
        """Convert it to JSON-serialisable values."""
        told: dict[str, object] = TypeAdapter(Forecast).dump_python(self, mode="json")
        return told


def measure_start(greedy: Sequence[EpisodeRow], sampled: Sequence[EpisodeRow], samples: int, metric: str) -> Start:
    """Count right episodes; failed ones count as wrong.

    Args:
        greedy: a row each question.
        sampled: `samples` rows for each question, one after the other.
        samples: sampled episodes of a question.
        metric: one of `BINARY_METRICS`, that by which the training will be judged.
    """
    counts, right = [0] * (samples + 1), metric_values(sampled, metric)
    for first in range(0, len(sampled), samples):
        counts[round(sum(right[first : first + samples]))] += 1
    return Start(mean(metric_values(greedy, metric)), tuple(counts))


def read_runs(data_dir: str, shipped: bool = False) -> tuple[MeasuredRun, ...]:
    """Read the measured trainings of this installation, or with `shipped` those that came with the package if it has none.

    None are returned if they are of too few corpora.

    Raises:
        EvaluationError: the file is damaged.
    """
    path = Path(data_dir) / FOLDER / RUNS
    if not path.is_file():
        if not shipped:
            return ()
        path = Path(__file__).with_name(RUNS)
    try:
        found = TypeAdapter(tuple[MeasuredRun, ...]).validate_json(path.read_bytes())
    except ValueError as error:
        raise EvaluationError(f"{path} is damaged ({cause_of(error)}); make it again with `slmsearch bench forecast`") from error
    return found if len({run.corpus for run in found}) >= FEWEST_CORPORA else ()


def forecast(start: Start, training: Training, seconds: float, runs: Sequence[MeasuredRun]) -> Forecast:
    """Forecast the gain of a training, and that of supervised training in its place.

    Args:
        start: policy before it.
        training: what decides it.
        seconds: time that it will take.
        runs: measured trainings, of several corpora.

    Raises:
        ConfigError: they were measured with another number of samples.
    """
    if {run.start.samples for run in runs} != {start.samples}:
        raise ConfigError(f"forecast.samples is {start.samples}; the trainings were measured with {runs[0].start.samples}: set it to that")
    gains, slack = {}, 2 * math.sqrt(max(start.greedy * (1 - start.greedy), 1 / start.asked) / start.asked)  # the start's own error
    for name in ("gain", "sft_gain"):
        value, half = _predict(_fit(runs, name), start, training), predict_bounds(runs, name) * _scale(start)
        gains[name] = Expected(value, max(-1.0, -start.greedy - slack, value - half), min(1.0, 1 - start.greedy + slack, value + half))
    headroom, signal = start.pass_at(start.samples) - start.greedy, start.signal(training.group_size)
    beyond = find_beyond(start, training, runs)
    worth_it = None if beyond else gains["gain"].value >= WORTH
    return Forecast(gains["gain"], headroom, gains["sft_gain"], worth_it, beyond, seconds, signal, start, training)


def find_beyond(start: Start, training: Training, runs: Sequence[MeasuredRun]) -> tuple[str, ...]:
    """Return the names of inputs that lie outside those of the measured trainings by more than a tenth of their range, or a tenth."""
    ranges = zip(*(_inputs(run.start, run.training) for run in runs), strict=True)
    found = []
    for name, value, seen in zip(INPUTS, _inputs(start, training), ranges, strict=True):
        slack = max(0.1, (max(seen) - min(seen)) / 10)
        if not min(seen) - slack <= value <= max(seen) + slack:
            found.append(name)
    return (*found, *find_other_settings(training, runs))


def find_other_settings(training: Training, runs: Sequence[MeasuredRun]) -> tuple[str, ...]:
    """Return the names of settings in which a training differs from all measured ones by more than a tenth."""
    measured = {field: [getattr(run.training, field) for run in runs] for field in SETTINGS}
    return tuple(
        name for field, name in SETTINGS.items() if not 0.9 * min(measured[field]) <= getattr(training, field) <= 1.1 * max(measured[field])
    )


def predict_bounds(runs: Sequence[MeasuredRun], name: str = "gain") -> float:
    """Return the error, in units of `_scale`, that a forecast from these runs stays within with probability `LEVEL`."""
    errors = sorted(abs(error) / _scale(run.start) for run, error in left_out_errors(runs, name))
    return errors[min(len(errors), math.ceil(LEVEL * (len(errors) + 1))) - 1]


def left_out_errors(runs: Sequence[MeasuredRun], name: str = "gain") -> list[tuple[MeasuredRun, float]]:
    """Return each run with its gain less the one forecast from the runs on other corpora; `name` is that of the gain."""
    found = []
    for corpus in dict.fromkeys(run.corpus for run in runs):
        fitted = _fit([run for run in runs if run.corpus != corpus], name)
        own = (run for run in runs if run.corpus == corpus)
        found += [(run, float(getattr(run, name)) - _predict(fitted, run.start, run.training)) for run in own]
    return found


def _scale(start: Start) -> float:
    """Return how large errors are expected to be, relatively: they grow with the square root of the share that can be gained."""
    return math.sqrt(max(1 - start.greedy, 1 / start.asked))


INPUTS = ("number of updates", "pass@1", "pass@k")
"""Names of the inputs of the fit."""
SETTINGS = {
    "learning_rate": "learning rate",
    "weights": "size of the model",
    "group_size": "group size",
    "questions": "questions an update",
}
"""Fields of a training that are expected to be as they were measured, and their names."""


def _inputs(start: Start, training: Training) -> tuple[float, ...]:
    return (math.log10(training.updates), start.pass_at(1), start.pass_at(start.samples))


def _fit(runs: Sequence[MeasuredRun], name: str) -> Callable[[tuple[float, ...]], float]:
    """Fit the share of the errors that trainings removed; return the share that inputs let expect."""
    import numpy as np
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    values = np.array([_inputs(run.start, run.training) for run in runs])
    shares = [min(max(getattr(run, name) / max(1 - run.before, 1 / run.n), -1.0), 1.0) for run in runs]
    center, scale = values.mean(0), values.std(0)
    scale[scale < SAME] = np.inf  # what did not vary says nothing
    kernel = ConstantKernel(SPREAD, "fixed") * RBF(REACH, "fixed") + WhiteKernel(NOISE, "fixed")
    model = GaussianProcessRegressor(kernel).fit((values - center) / scale, shares)
    shortest, longest = values[:, 0].min(), values[:, 0].max()

    def predict(inputs: tuple[float, ...]) -> float:
        updates, *rest = inputs  # of a longer training no more is known than of the longest; the process would forecast nothing at all
        known = np.array([min(max(updates, shortest), longest), *rest])
        return float(np.clip(model.predict([(known - center) / scale])[0], -1, 1))

    return predict


def _predict(fitted: Callable[[tuple[float, ...]], float], start: Start, training: Training) -> float:
    return max(fitted(_inputs(start, training)) * (1 - start.greedy), -start.greedy)


def show_gain(gain: Mapping[str, float]) -> str:
    """Write an expected gain, as a forecast in JSON's form holds it, in percentage points with its interval."""
    return f"{100 * gain['value']:+.1f} points [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def show_time(seconds: float) -> str:
    """Write a duration for people."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def name_gains(told: Mapping[str, object]) -> dict[str, float]:
    """Return the figures of a forecast in JSON's form as metrics: `forecast/gain`, `forecast/sft_low`, `forecast/beyond` (0 or 1) ..."""
    found = {"forecast/beyond": float(bool(told["beyond"]))}
    for field, name in (("gain", ""), ("sft_continued", "sft_")):
        part = told[field]
        assert isinstance(part, Mapping)
        found |= {f"forecast/{name}{'gain' if key == 'value' else key}": value for key, value in part.items()}
    return found
