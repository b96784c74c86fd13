"""The content of a page about one run, all of it from stored results."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slmsearch.evaluate.compare import Comparison
from slmsearch.evaluate.store import Evaluation
from slmsearch.report.page.suspects import find_suspects
from slmsearch.report.tables import Trust
from slmsearch.training.reports import StepReport

BEFORE, AFTER = "before", "after"
"""Names of the two evaluations whose comparison decides a training run."""


@dataclass(frozen=True)
class RunResults:
    """One run of a flow."""

    run_id: str
    name: str
    """Name of the run for people."""
    environment: str
    """Name of the environment, `searcher` or `planner`."""
    status: str
    """MLflow's status of the run."""
    started: str
    """Start of the run, ISO 8601, UTC."""
    evaluations: Mapping[str, Evaluation]
    """Name of a policy -> its evaluation, in the order of the tables."""
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    """Name of the policy that `after` is compared with -> that comparison."""
    decision: str = ""
    reason: str = ""
    metric: str = "answer/typed_match"
    """Metric of the decision."""
    alpha: float = 0.05
    """Level of the intervals."""
    trust: Mapping[str, Trust] = field(default_factory=dict)
    """Measures of twins and repeated episodes by policy; empty where they were not played."""
    steps: Sequence[StepReport] = ()
    """Steps of the training run; empty where there was none."""
    judge: Mapping[str, Any] = field(default_factory=dict)
    """State of the judging language model (`JudgeState` as a dictionary); empty with the exact judge."""
    lineage: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings worth a look: dotted name -> value."""
    warnings: tuple[str, ...] = ()
    """Parts that could not be shown, and why."""

    @property
    def compared(self) -> Comparison | None:
        """Comparison of before and after; None where one of them is missing."""
        return self.comparisons.get(BEFORE)

    @property
    def main(self) -> str:
        """Main policy of the run: the trained one, else the last evaluated; empty where none was."""
        return AFTER if AFTER in self.evaluations else next(reversed(list(self.evaluations)), "")

    @functools.cached_property
    def suspects(self) -> dict[str, list[tuple[str, ...]]]:
        """Name of a policy -> the rules that each of its episodes matches."""
        return {name: find_suspects(evaluation) for name, evaluation in self.evaluations.items()}
