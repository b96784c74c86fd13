"""The command that looks at the installation: doctor."""

from dataclasses import asdict

import click

from flows.cli import exits
from flows.cli.session import Session, command


def register(cli: click.Group) -> None:
    """Add the commands of this module to the command line."""
    cli.add_command(doctor)


_group = click.Group()


@command(_group, "doctor")
@click.option("--fix", is_flag=True, help="Do what is safe: nothing is lost by it.")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
def doctor(session: Session, fix: bool, strict: bool) -> None:
    """Look for what will break a run or let others in: versions, servers, limits, pools, disk, leftovers; each with its remedy.

    Exit code 1 where anything is an error. Training itself is checked by its own pre-flight.
    """
    from flows.ops.doctor.collect import look
    from flows.ops.doctor.examine import examine, render
    from flows.ops.doctor.fix import fix_findings

    facts = look(session.config)
    findings, done = examine(facts), list[str]()
    if fix:
        done = fix_findings(findings, facts, session.config)
        findings = examine(look(session.config))
    session.finish({"findings": [asdict(finding) for finding in findings], "fixed": done}, render(findings, done))
    failing = ("error", "warning") if strict else ("error",)
    if any(finding.severity in failing for finding in findings):
        raise SystemExit(exits.NEGATIVE)
