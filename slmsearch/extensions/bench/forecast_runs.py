"""Short trainings of many kinds, with what was known before each and what came of it: the table that a forecast stands on.

Starts of different quality are trained on different corpora, for a short and a long time. Every training is a whole `train-and-eval` in a
process of its own, recorded in MLflow; one whose result is there is not repeated, so a killed measurement goes on where it was.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import TypeAdapter

from slmsearch.artifacts.files import read_json, replace_json, replace_text
from slmsearch.errors import ConfigError, TrainingError
from slmsearch.evaluate.forecast import LEVEL, RUNS, WORTH, MeasuredRun, Start, Training, forecast, show_gain
from slmsearch.extensions.bench.result import Result, Say
from slmsearch.keys import content_key
from slmsearch.report.tables import Table, points

TINY, CLEAN = "tiny-searcher", "tiny-searcher-clean"
STARTS: Mapping[str, tuple[str, ...]] = {
    "noisy": (),
    "clean": (),
    "noisy, an eighth": ("bootstrap", "--sft.steps", "1000"),
    "noisy, then expert": ("sft", "--policy.model", TINY, "--sft.recipe", "expert", "--sft.steps", "150", "--sft.learning_rate", "5e-4"),
    "noisy, then expert, fast": ("sft", "--policy.model", TINY, "--sft.recipe", "expert", "--sft.steps", "300"),
}
"""Start -> the command that makes it; the first two are shipped."""
CORPORA: Mapping[str, tuple[tuple[str, ...], int]] = {
    "world": ((), 0),
    "large world": (("--corpus.world.pages", "4000", "--corpus.world.questions_per_page", "2", "--corpus.world.seed", "21"), 0),
    "small world": (("--corpus.world.pages", "400", "--corpus.world.questions_per_page", "12", "--corpus.world.seed", "22"), 0),
    "one hop": (("--corpus.world.seed", "23"), 1),
    "two hops": (("--corpus.world.seed", "24"), 2),
}
"""Corpus -> its settings, and the hops of the questions that it keeps (0: all)."""
LENGTHS = (40, 120)
"""Updates of the short and the long trainings."""
EXPERT = ("clean", "noisy, then expert", "noisy, then expert, fast")
"""Starts that the expert demonstrator taught last; it also teaches those that go on by supervision."""
LONG = ("noisy", "noisy, an eighth", "noisy, then expert")
"""Starts that are also trained long."""
COMMON = (
    "--forecast.questions", "96", "--evaluate.limit", "480", "--evaluate.baselines", "[]", "--tracking.experiment", "forecast",
    "--tracking.registered_model", "forecast", "--decision.min_questions", "100",
)  # fmt: skip

RunCommand = Callable[[Sequence[str]], Mapping[str, Any]]
"""Function that runs a command of this project in a process of its own and returns its JSON result."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """One training of the table."""

    start: str
    corpus: str
    updates: int

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.start}-{self.corpus}-{self.updates}".replace(",", "").replace(" ", "-")

    @property
    def flags(self) -> list[str]:
        """Return the settings of its training, but for the places of its start and of its questions."""
        taught = ["--sft.recipe", "expert"] if self.start in EXPERT else []
        return [*COMMON, *CORPORA[self.corpus][0], "--train.steps", str(self.updates), *taught]


def table_runs() -> Iterator[TableRun]:
    """Return the trainings of the table, the short ones first."""
    for updates in LENGTHS:
        yield from (TableRun(start, corpus, updates) for corpus in CORPORA for start in STARTS if updates == LENGTHS[0] or start in LONG)


def measure_runs(run: RunCommand, folder: Path, settings: Sequence[str], say: Say) -> Result:
    """Train every run of the table that has no result yet; return the table and how well a forecast from it holds.

    Args:
        run: runs a command.
        folder: where starts, questions and results are kept.
        settings: flags that the commands get besides; with others, every run is another one.
        say: receives a line before each training.

    Raises:
        ConfigError: the settings name a corpus or a policy.
    """
    if own := [name for name in settings if re.match(r"--(corpus|policy)\.", name)]:
        raise ConfigError(f"{', '.join(own)}: the trainings have starts and corpora of their own; leave it out")
    table, folder = folder / RUNS, folder / "made" / content_key(settings=[*settings])[:8]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    todo, found = list(table_runs()), list[MeasuredRun]()
    for number, wanted in enumerate(todo, 1):
        place = folder / "runs" / f"{wanted.name}-{content_key(flags=wanted.flags)[:8]}.json"
        if not place.is_file():
            say(f"training {number} of {len(todo)}: {wanted.start}, {wanted.corpus}, {wanted.updates} updates")
            replace_json(place, asdict(_train(wanted, run, folder)))
        found.append(TypeAdapter(MeasuredRun).validate_python(read_json(place)))
    replace_text(table, json.dumps([asdict(one) for one in found], indent=0) + "\n")
    return summarise(found, table)


def _train(wanted: TableRun, run: RunCommand, folder: Path) -> MeasuredRun:
    place = ["--policy.model", _make_start(wanted.start, run, folder), *_questions_of(wanted.corpus, run, folder)]
    summary = run(["run", "train-and-eval", "--here", *wanted.flags, *place])
    told, metric, difference = summary["forecast"], summary["metric"], summary["difference"]
    if not told:
        raise TrainingError(f"the start of the run on {wanted.corpus} was not recorded: it has too few held-out questions")
    before = summary["before"][metric]
    return MeasuredRun(
        wanted.corpus,
        wanted.start,
        TypeAdapter(Start).validate_python(told["start"]),
        TypeAdapter(Training).validate_python(told["training"]),
        summary["n"],
        before,
        before + difference["mean"],
        difference["low"],
        difference["high"],
        summary["control"][metric],
        summary["training"]["seconds"],
    )


def _make_start(name: str, run: RunCommand, folder: Path) -> str:
    if not STARTS[name]:
        return CLEAN if name == "clean" else TINY
    out = folder / "starts" / name.replace(",", "").replace(" ", "-")
    if not (out / "config.json").is_file():
        command, *flags = STARTS[name]
        run([command, "--out", str(out), *flags])
    return str(out)


def _questions_of(name: str, run: RunCommand, folder: Path) -> list[str]:
    """Return the flags of a corpus that keeps only some of its questions, made if it is not there."""
    flags, hops = CORPORA[name]
    if not hops:
        return []
    out = folder / "corpora" / name.replace(" ", "-")
    questions = out / "kept.jsonl"
    if not questions.is_file():
        run(["world", "--out", str(out), *flags])
        lines = (out / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        replace_text(questions, "".join(line for line in lines if json.loads(line)["hops"] == hops))
    return ["--corpus.pages", str(out / "pages.jsonl"), "--corpus.questions", str(questions)]


def summarise(runs: Sequence[MeasuredRun], place: Path) -> Result:
    """Measure how well forecasts for corpora that were left out hold: coverage, decisions, and what each rule would have cost."""
    told = [forecast(run.start, run.training, run.seconds, [other for other in runs if other.corpus != run.corpus]).gain for run in runs]
    inside = {run.corpus: list[bool]() for run in runs}
    for one, run in zip(told, runs, strict=True):
        inside[run.corpus].append(one.low <= run.gain <= one.high)
    truly = [run.gain >= WORTH and run.low > 0 for run in runs]
    said = [one.value >= WORTH for one in told]
    hours = sum(run.seconds for run in runs) / 3600
    spent = sum(run.seconds for run, yes in zip(runs, said, strict=True) if yes) / 3600
    values = {
        "runs": len(runs),
        "starts": len({(run.corpus, run.start_name) for run in runs}),
        "level": LEVEL,
        "covered_frac": mean(right for rights in inside.values() for right in rights),
        "covered_frac_by_corpus": {corpus: mean(rights) for corpus, rights in inside.items()},
        "half_width": mean((one.high - one.low) / 2 for one in told),
        "right_decisions_frac": mean(a == b for a, b in zip(truly, said, strict=True)),
        "worth_it_frac": mean(truly),
        "hours_always": hours,
        "hours_forecast": spent,
        "gain_always": mean(run.gain for run in runs),
        "gain_forecast": mean(run.gain * yes for run, yes in zip(runs, said, strict=True)),
        "mean_error": mean(abs(run.gain - one.value) for one, run in zip(told, runs, strict=True)),
        "table": str(place),
    }
    rows = [
        (run.corpus, run.start_name, str(run.training.updates), points(run.start.greedy), points(run.start.pass_at(run.start.samples)),
         show_gain(asdict(one)), f"{points(run.gain)} [{points(run.low)}, {points(run.high)}]", points(run.sft_gain))
        for run, one in zip(runs, told, strict=True)
    ]  # fmt: skip
    heads = ("corpus", "start", "updates", "greedy", "pass@k", "forecast without its corpus", "gain", "SFT continued")
    return Result(values, [Table(heads, tuple(rows))], [f"{name}: {value}" for name, value in values.items()])
