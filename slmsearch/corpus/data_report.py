"""The report on the data of an environment: what was checked, and what was found."""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class DataFinding:
    """Failed check."""

    expectation: str
    table: str
    column: str
    severity: Severity
    failed: int
    """Number of rows that failed."""
    sample_ids: tuple[str, ...]
    """Ids of the first failing rows."""
    message: str


@dataclass(frozen=True, slots=True)
class DataReport:
    """Result of a validation, the same for every environment; also the stored result of its task."""

    digest: str
    checks: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of pages, sections and questions checked."""
    findings: tuple[DataFinding, ...] = ()
    """Findings, critical ones first."""

    @property
    def ok(self) -> bool:
        """True if no finding is critical."""
        return all(finding.severity != "critical" for finding in self.findings)
