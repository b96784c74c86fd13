"""What a page shows of one run, all of it from stored results."""

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
"""Names of the two evaluations that a training run is judged by."""


@dataclass(frozen=True)
class RunResults:
    """One run of a flow."""

    run_id: str
    name: str
    """As people call it."""
    environment: str
    """`searcher` or `planner`."""
    status: str
    """MLflow's word for how it ended."""
    started: str
    """ISO 8601, UTC."""
    evaluations: Mapping[str, Evaluation]
    """Name of a policy -> its evaluation, in the order of the tables."""
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    """Name of what `after` is compared with -> that comparison."""
    decision: str = ""
    reason: str = ""
    metric: str = "answer/typed_match"
    """What is decided on."""
    alpha: float = 0.05
    """Level of the intervals."""
    trust: Mapping[str, Trust] = field(default_factory=dict)
    """What twins and repeated episodes say of policies; empty where they were not played."""
    steps: Sequence[StepReport] = ()
    """Of the training run; empty where there was none."""
    judge: Mapping[str, Any] = field(default_factory=dict)
    """What was known of the language model that judged (`JudgeState` as a dictionary); empty with the exact judge."""
    lineage: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings worth a look: dotted name -> value."""
    warnings: tuple[str, ...] = ()
    """What could not be shown, and why."""

    @property
    def compared(self) -> Comparison | None:
        """Before against after; None where one of them is missing."""
        return self.comparisons.get(BEFORE)

    @property
    def main(self) -> str:
        """The policy the run is about: the trained one, else the last evaluated; empty where none was."""
        return AFTER if AFTER in self.evaluations else next(reversed(list(self.evaluations)), "")

    @functools.cached_property
    def suspects(self) -> dict[str, list[tuple[str, ...]]]:
        """Name of a policy -> the rules that each of its episodes matches."""
        return {name: find_suspects(evaluation) for name, evaluation in self.evaluations.items()}
