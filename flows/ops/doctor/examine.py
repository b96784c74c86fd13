"""All checks over the facts, in order of severity."""

from flows.ops.doctor import leftovers, packages, services
from flows.ops.doctor.facts import Facts, Finding

CHECKS = (*packages.CHECKS, *services.CHECKS, *leftovers.CHECKS)
ORDER = ("error", "warning", "info")
MARKS = {"error": "ERROR  ", "warning": "warning", "info": "note   "}


def examine(facts: Facts) -> list[Finding]:
    """Return everything that is wrong, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return sorted(found, key=lambda finding: ORDER.index(finding.severity))


def render(findings: list[Finding], done: list[str]) -> str:
    """Render findings and what was done about them."""
    rows = [f"{MARKS[finding.severity]}  {finding.check}: {finding.describe()}" for finding in findings]
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in ORDER}
    verdict = f"{len(CHECKS)} checks: {counts['error']} errors, {counts['warning']} warnings"
    return "\n".join([*(f"fixed    {line}" for line in done), *rows, verdict])
