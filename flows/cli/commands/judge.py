"""Commands about judges: `slmsearch judge ...`."""

from flows.cli.session import Session, cli, command


@cli.group("judge")
def judge() -> None:
    """Measure the language model that judges answers."""


@command(judge, "qualify")
def qualify(session: Session) -> None:
    """Put the calibration set to the judge; exit code 1 if it does not pass.

    Training takes no language model as judge that has not passed with the prompt in use.
    """
    from slmsearch.errors import ConfigError
    from slmsearch.judge.qualify import qualify as measure
    from slmsearch.judge.qualify import summarise_qualification
    from slmsearch.report.judge import render_qualification
    from tasks.progress import Progress
    from tasks.record import record_qualification

    config = session.config
    if config.judge.kind == "exact":
        raise ConfigError("the exact judge needs no qualification; choose one with --judge.kind ollama or openai")
    with Progress("judge qualify", "cases") as progress:
        measured = measure(config.judge, config.paths.data_dir, progress)
    summary = summarise_qualification(measured)
    run_id = record_qualification(measured, summary, config)
    session.finish({**summary, "mlflow_run_id": run_id}, render_qualification(summary), negative=not summary["passed"])
