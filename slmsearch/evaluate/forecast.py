"""Forecast of what reinforcement learning will bring, made before it: from episodes that the start plays on held-out questions.

Reward teaches only where some of a question's episodes are right and some are wrong. So the forecast works on the pass rates of the
questions, not on their mean. Training is taken to add the same amount to the log-odds of every question (the shift): a question that is
never answered hardly moves, one that is answered half of the time moves most. Shifts of trainings that were measured (`RUNS`) are
regressed on what is known before a training: its length, and the share of groups with a signal. The interval comes from the errors of
forecasts for corpora that were left out of the regression (conformal prediction: Vovk, Gammerman, Shafer, 2005; leave-one-corpus-out).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from pydantic import TypeAdapter

from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.foreign import cause_of

FOLDER, RUNS = "forecast", "forecast_runs.json"
"""Folder in the data directory, and the file in it with measured trainings; `slmsearch bench forecast` makes it."""
FEWEST_CORPORA = 3
"""Smallest number of corpora whose trainings a forecast stands on: one is left out at a time."""
LEVEL = 0.9
"""Share of trainings whose gain is to be inside its interval."""
WORTH = 0.02
"""Smallest gain for which a training is worth its time."""
UPDATE_FACTOR = 2.5
"""Duration of a whole training step in units of its rollouts, roughly."""
RIDGE = 1.0
"""Weight of the penalty on the regression's coefficients, whose inputs are standardised."""
SAME = 0.01
"""Standard deviation of an input below which it counts as constant."""
REACH = 12.0
"""Largest shift in log-odds that is looked for: beyond it every pass rate is 0 or 1."""


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

    def shifted(self, shift: float) -> float:
        """Return the mean pass rate where `shift` is added to the log-odds of every question's."""
        rates = ((right + 0.5) / (self.samples + 1) for right in range(self.samples + 1))
        moved = [1 / (1 + math.exp(-(math.log(rate / (1 - rate)) + shift))) for rate in rates]
        return sum(count * rate for count, rate in zip(self.counts, moved, strict=True)) / self.asked

    def shift_to(self, accuracy: float) -> float:
        """Return the shift at which the mean pass rate is `accuracy`, as near as `REACH` allows."""
        from scipy.optimize import brentq

        low, high = self.shifted(-REACH), self.shifted(REACH)
        if not low < accuracy < high:
            return -REACH if accuracy <= low else REACH
        return float(brentq(lambda shift: self.shifted(shift) - accuracy, -REACH, REACH))

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
    worth_it: bool
    """True if the gain is at least `WORTH`."""
    beyond: tuple[str, ...]
    """Names of inputs outside the range of the measured trainings: there the interval is not measured."""
    seconds: float
    """Time that the training will take, in seconds, by the time of the played episodes."""
    start: Start
    training: Training

    def describe(self) -> str:
        """Describe it in one line."""
        grpo, sft = (show_gain(asdict(one)) for one in (self.gain, self.sft_continued))
        greedy, tried = 100 * self.start.greedy, 100 * (self.start.greedy + self.headroom)
        return (
            f"GRPO is expected to bring {grpo}, supervised training {sft} in the same {self.seconds / 60:.0f} minutes or so; of "
            f"{self.start.asked} held-out questions the start answers {greedy:.0f} %, in one of {self.start.samples} tries {tried:.0f} %"
            + (f"; no training like this one was measured ({', '.join(self.beyond)})" if self.beyond else "")
        )

    def to_dict(self) -> dict[str, object]:
        """Convert it to JSON-serialisable values."""
        told: dict[str, object] = TypeAdapter(Forecast).dump_python(self, mode="json")
        return told


def measure_start(greedy: Sequence[EpisodeRow], sampled: Sequence[EpisodeRow], samples: int) -> Start:
    """Count right episodes; failed ones count as wrong.

    Args:
        greedy: a row each question.
        sampled: `samples` rows for each question, one after the other.
        samples: sampled episodes of a question.
    """
    counts = [0] * (samples + 1)
    for first in range(0, len(sampled), samples):
        counts[round(sum(row.correct for row in sampled[first : first + samples]))] += 1
    return Start(mean(row.correct for row in greedy), tuple(counts))


def read_runs(data_dir: str) -> tuple[MeasuredRun, ...]:
    """Read the measured trainings of this installation; none if they are of too few corpora.

    Raises:
        EvaluationError: the file is damaged.
    """
    path = Path(data_dir) / FOLDER / RUNS
    if not path.is_file():
        return ()
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
    gains = {}
    for name in ("gain", "sft_gain"):
        value, half = _predict(_fit(runs, name), start, training), predict_bounds(runs, name)
        gains[name] = Expected(value, max(-start.greedy, value - half), min(1 - start.greedy, value + half))
    headroom = start.pass_at(start.samples) - start.greedy
    beyond = find_beyond(start, training, runs)
    return Forecast(gains["gain"], headroom, gains["sft_gain"], gains["gain"].value >= WORTH, beyond, seconds, start, training)


def find_beyond(start: Start, training: Training, runs: Sequence[MeasuredRun]) -> tuple[str, ...]:
    """Return the names of inputs that lie outside those of the measured trainings by more than a tenth of their range, or a tenth."""
    ranges = zip(*(_inputs(run.start, run.training) for run in runs), strict=True)
    found = []
    for name, value, seen in zip(INPUTS, _inputs(start, training), ranges, strict=True):
        slack = max(0.1, (max(seen) - min(seen)) / 10)
        if not min(seen) - slack <= value <= max(seen) + slack:
            found.append(name)
    rates = [run.training.learning_rate for run in runs]
    if not 0.9 * min(rates) <= training.learning_rate <= 1.1 * max(rates):  # no input: it did not vary
        found.append("learning rate")
    return tuple(found)


def predict_bounds(runs: Sequence[MeasuredRun], name: str = "gain") -> float:
    """Return the error that a forecast from these runs stays within with probability `LEVEL`; `name` is that of the gain."""
    errors = sorted(abs(error) for _, error in left_out_errors(runs, name))
    return errors[min(len(errors), math.ceil(LEVEL * (len(errors) + 1))) - 1]


def left_out_errors(runs: Sequence[MeasuredRun], name: str = "gain") -> list[tuple[MeasuredRun, float]]:
    """Return each run with its gain less the one forecast from the runs on other corpora; `name` is that of the gain."""
    found = []
    for corpus in dict.fromkeys(run.corpus for run in runs):
        fitted = _fit([run for run in runs if run.corpus != corpus], name)
        own = (run for run in runs if run.corpus == corpus)
        found += [(run, float(getattr(run, name)) - _predict(fitted, run.start, run.training)) for run in own]
    return found


@dataclass(frozen=True, slots=True)
class _Fitted:
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float


INPUTS = ("number of episodes", "size of the model", "share of groups with a signal", "headroom")
"""Names of the inputs of the regression."""


def _inputs(start: Start, training: Training) -> tuple[float, ...]:
    signal, headroom = start.signal(training.group_size), start.pass_at(start.samples) - start.greedy
    return (math.log10(training.episodes * max(signal, 0.01)), math.log10(training.weights), signal, headroom)


def _fit(runs: Sequence[MeasuredRun], name: str) -> _Fitted:
    import numpy as np
    from sklearn.linear_model import Ridge

    values = np.array([_inputs(run.start, run.training) for run in runs])
    shifts = [
        run.start.shift_to(_inside(run.before + getattr(run, name), run.n)) - run.start.shift_to(_inside(run.before, run.n)) for run in runs
    ]
    center, scale = values.mean(0), values.std(0)
    scale[scale < SAME] = np.inf  # what did not vary says nothing
    model = Ridge(alpha=RIDGE).fit((values - center) / scale, shifts)
    return _Fitted(tuple(center.tolist()), tuple(scale.tolist()), tuple(model.coef_.tolist()), float(model.intercept_))


def _predict(fitted: _Fitted, start: Start, training: Training) -> float:
    parts = zip(_inputs(start, training), fitted.mean, fitted.scale, fitted.weights, strict=True)
    shift = fitted.bias + sum(weight * (value - center) / scale for value, center, scale, weight in parts)
    greedy = _inside(start.greedy, start.asked)
    return start.shifted(start.shift_to(greedy) + shift) - start.shifted(start.shift_to(greedy))


def _inside(share: float, n: int) -> float:
    """Return a share of n as it is, or half a question from 0 and 1: at the ends log-odds are infinite."""
    return min(max(share, 0.5 / n), 1 - 0.5 / n)


def show_gain(gain: Mapping[str, float]) -> str:
    """Write an expected gain, as a forecast in JSON's form holds it, in percentage points with its interval."""
    return f"{100 * gain['value']:+.1f} points [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def name_gains(told: Mapping[str, object]) -> dict[str, float]:
    """Return the figures of a forecast in JSON's form, as metrics: `forecast/gain`, `forecast/sft_low` and so on."""
    found: dict[str, float] = {}
    for field, name in (("gain", ""), ("sft_continued", "sft_")):
        part = told[field]
        assert isinstance(part, Mapping)
        found |= {f"forecast/{name}{'gain' if key == 'value' else key}": value for key, value in part.items()}
    return found
