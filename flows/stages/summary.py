"""Outputs of a finished run for people and machines: `latest.json`, Prefect's tables, the flow's return value.

An error in tables, charts or the report page does not lose a run's results: it is logged and named in the summary's `warnings`; the
training, the decision and the numbers stand.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.exceptions import TerminationSignal

from flows.runtime.api import find_up
from flows.runtime.links import latest_name, mlflow_run_url
from flows.stages.artifacts import escape, show_comparison, show_report, show_table
from flows.stages.pipeline import Pipeline
from slmsearch.artifacts.files import replace_text
from slmsearch.config import DecisionConfig, PathsConfig
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.searcher_environment import RETRIEVE_THEN_ANSWER
from slmsearch.evaluate.compare import replay
from slmsearch.foreign import cause_of
from slmsearch.report.tables import comparison_table, describe_comparison, difference
from tasks.evaluate import Compared, Evaluated
from tasks.runs import report_page_task, report_task
from tasks.train import Trained

TRAINED = ("steps", "seconds", "spent", "card", "hash", "version", "output")
"""Fields of the training that the summary holds."""
DIFFERENCE = ("mean", "low", "high", "p")


class ControlEvaluated(Evaluated):
    """Evaluation of the SFT control, and its training."""

    steps: int
    training_s: float


@dataclass(frozen=True)
class BesideSearch:
    """Baselines of a run on real pages: its first model without searching, or without training."""

    untrained: Evaluated
    """The untrained model, on fewer questions."""
    closed_book: Evaluated
    """The untrained model from memory, on fewer questions."""
    reader: ControlEvaluated
    """The reader, trained to answer at once from one search."""
    comparison: Compared
    """Comparison of the reader with GRPO."""
    gain: Compared
    """Comparison of the untrained model with GRPO, on those fewer questions: the promoted policy is the start with its adapter."""
    few_shot: Evaluated | None
    """The untrained model with worked examples, on fewer questions; None if it cannot be shown them."""
    few_shot_gain: Compared | None
    """Comparison of that with GRPO."""

    @property
    def fair_gain(self) -> Compared:
        """Comparison of GRPO with the better untrained baseline, with worked examples or without."""
        return max((gain for gain in (self.gain, self.few_shot_gain) if gain), key=lambda gain: gain["before"])

    def describe(self) -> str:
        """Describe that comparison in one sentence."""
        found, least = self.fair_gain, self.gain["before"]
        better = found is self.few_shot_gain
        untrained = f"with worked examples ({least:.3f} without)" if better else "without worked examples"
        return (
            f"Untrained, {untrained}, {found['metric']} is {found['before']:.3f} on {found['n']} of these questions, trained "
            f"{found['after']:.3f}: {difference(*(found['difference'][part] for part in DIFFERENCE))}."
        )


@dataclass(frozen=True)
class Outcome:
    """Results of the stages of a `train-and-eval`."""

    before: Evaluated
    after: Evaluated
    baselines: Mapping[str, Evaluated]
    trained: Trained
    control: ControlEvaluated | None
    """The SFT control; None if it is not configured."""
    comparison: Compared
    gain: Compared | None
    """Comparison of the environment's reference with GRPO; None if it has none."""
    rl_adds: Compared | None
    """Comparison of the SFT control with GRPO; None without a control."""
    decision: Mapping[str, str]
    beside_search: BesideSearch | None = None
    """Baselines of a run on real pages."""
    forecast: Mapping[str, Any] | None = None
    """Expected result of the training; None without a forecast."""


def conclude(run: Pipeline, outcome: Outcome) -> dict[str, object]:
    """Write the summary of a finished run to `latest.json` (`latest-<name>.json` of other environments) and to both trackers."""
    with run.stage("report"):
        summary = summarise_run(run, outcome)
        show_comparison(shown := render_comparison(run, outcome))
        run.tracker.record_metrics(run.run_id, {f"eval/{name}": value for name, value in outcome.after["metrics"].items()})
        found = outcome.comparison
        figures = {"before": found["before"], "after": found["after"], "difference": found["difference"]["mean"]}
        figures |= {name: found["difference"][name] for name in ("low", "high")}
        run.tracker.record_metrics(run.run_id, {f"compare/{name}": value for name, value in figures.items()})
        run.tracker.record_json(run.run_id, summary, "summary.json")
        leave_reports(run, summary)
        run.describe(describe_decision(outcome), shown, report="report/report.html", accuracy="figures/accuracy.svg")
    names = [latest_name(environment_of(run.config).name), *(["latest-real.json"] if outcome.beside_search else [])]
    for name in names:
        replace_text(Path(run.config.paths.mlruns_dir) / name, json.dumps(summary, indent=2) + "\n")
    return summary


def summarise_run(run: Pipeline, outcome: Outcome) -> dict[str, object]:
    """Return the summary of a run for machines."""
    policies: dict[str, Evaluated] = {"before": outcome.before, "after": outcome.after, **outcome.baselines}
    baselines = {name: figures_of(found) for name, found in outcome.baselines.items()}
    reference = environment_of(run.config).controls.reference
    summary: dict[str, object] = {
        "environment": environment_of(run.config).name,
        "n": outcome.comparison["n"],
        "metric": outcome.comparison["metric"],
        "before": figures_of(outcome.before),
        "after": figures_of(outcome.after),
        "difference": _difference(outcome.comparison),
        **outcome.decision,
        "slices": {"before": outcome.before["slices"], "after": outcome.after["slices"]},
        "baselines": baselines,
        "training": {name: value for name, value in outcome.trained.items() if name in TRAINED},
        "seconds": run.seconds,
        "lineage": run.lineage,
        **run.ids,
    }
    if RETRIEVE_THEN_ANSWER in baselines:
        summary["retrieve_then_answer"] = baselines[RETRIEVE_THEN_ANSWER]
    if outcome.gain:
        summary[reference.replace("-", "_")] = baselines[reference]
        summary["controls"] = {name: metrics for name, metrics in baselines.items() if name != reference}
        summary["gain"] = _difference(outcome.gain)
    if outcome.control and outcome.rl_adds:
        policies["sft-control"] = outcome.control
        summary["control"] = {**figures_of(outcome.control), "seconds": outcome.control["training_s"], "steps": outcome.control["steps"]}
        summary["rl_adds"] = _difference(outcome.rl_adds)
    if outcome.beside_search:
        beside = outcome.beside_search
        shown = {"few_shot": beside.few_shot} if beside.few_shot else {}
        others = {"untrained": beside.untrained, **shown, "closed_book": beside.closed_book, "reader": beside.reader}
        policies |= others
        summary |= {name: figures_of(found) for name, found in others.items()} | {"start": figures_of(outcome.before)}
        summary["difference_reader"] = _difference(beside.comparison)
        summary |= {"difference_untrained": _difference(beside.fair_gain), "beside_untrained": beside.describe()}
        if outcome.control and outcome.rl_adds:
            summary |= {"sft_continued": figures_of(outcome.control), "difference_sft": _difference(outcome.rl_adds)}
    if outcome.forecast:
        summary["forecast"] = outcome.forecast
    if run.trust:
        summary["trust"] = run.trust
    summary["evaluations"] = {name: found["key"] for name, found in policies.items()}
    return summary


def figures_of(found: Evaluated) -> dict[str, object]:
    """Return a policy's number of questions, its metrics, and the same by slice."""
    return {"n": found["n"], **found["metrics"], "by": found["slices"]}


def render_comparison(run: Pipeline, outcome: Outcome) -> str:
    """Render before, after and the decision as Markdown."""
    beside = [escape(outcome.beside_search.describe())] if outcome.beside_search else []
    table = render_evaluations(run.config.paths, run.config.decision, outcome.before, outcome.after)
    return "\n\n".join([table, describe_decision(outcome), *beside])


def describe_decision(outcome: Outcome) -> str:
    """Describe in a line of Markdown what was decided and why."""
    return f"**{outcome.decision['decision']}**: {escape(outcome.decision['reason'])}"


def render_evaluations(paths: PathsConfig, decision: DecisionConfig, before: Evaluated, after: Evaluated) -> str:
    """Render two evaluations side by side as Markdown."""
    comparison = replay(paths.evals / before["key"], paths.evals / after["key"], decision)
    return f"{comparison_table(comparison).to_markdown()}\n\n{escape(describe_comparison(comparison))}"


def _difference(comparison: Compared) -> dict[str, float]:
    return {part: comparison["difference"][part] for part in DIFFERENCE}


def leave_reports(run: Pipeline, summary: dict[str, object]) -> None:
    """Draw charts and tables of a recorded run, make its report page, and link both.

    The summary gets `report` and `warnings`, and is written again.
    """
    warnings = list[str]()
    summary["warnings"] = warnings
    with tolerated("tables and figures", warnings):
        show_table("evaluations", report_task(run.run_id, run.config.paths, run.config.tracking), "Policies on n questions")
    with tolerated("report page", warnings):
        made = report_page_task([run.run_id], run.config.paths, run.config.tracking)
        warnings += made["warnings"]
        summary["report"] = {name: made[name] for name in ("page", "artifact", "bytes")}
        place = mlflow_run_url(run.config.tracking, run.tracker.experiment_id, run.run_id, find_up(run.config.paths))
        show_report(f"{place}/artifacts/{made['artifact']}", run.run_id)
    run.tracker.record_json(run.run_id, summary, "summary.json")


@contextmanager
def tolerated(what: str, warnings: list[str]) -> Iterator[None]:
    """Turn an error into a warning that names the missing part; errors caused by a stop request are raised."""
    stop = None
    try:
        yield
    except Exception as error:
        stop = find_stop(error)
        if stop is None:
            message = f"{what}: {type(error).__name__}: {cause_of(error)}; make it again with `slmsearch report latest`"
            warnings.append(message)
            get_run_logger().warning(message, exc_info=True)
    if stop is not None:
        raise stop


def find_stop(error: BaseException) -> BaseException | None:
    """Return the stop signal that caused an error; None if none did.

    A C library that is interrupted during its import turns it into an `ImportError`.
    """
    while isinstance(error, Exception):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return None
        error = cause
    return error if isinstance(error, TerminationSignal | KeyboardInterrupt) else None
