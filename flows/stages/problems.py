"""What the flows of a planner play on: problems instead of a corpus with its index."""

from flows.stages.artifacts import show_findings
from flows.stages.pipeline import Pipeline
from flows.stages.stages import Data, current_index, describe_failure, validated_corpus
from slmsearch.config import RunConfig, TrackingConfig
from tasks.corpus import ValidationFailed
from tasks.environment import code_digest
from tasks.planner import load_problems_task, validate_problems_task
from tasks.record import findings_table, record_input, record_report

REGISTERED_MODEL = "slmsearch-planner"
"""Name of registered planners where `tracking.registered_model` is left at the searcher's."""
PROBLEM_CODE = ("corpus", "planner")


def of_its_environment(config: RunConfig) -> RunConfig:
    """Return the configuration as its environment needs it."""
    return as_planner(config) if config.environment == "planner" else config


def playing_data(run: Pipeline, current: bool = True) -> Data:
    """Validate, or find, what the configured environment plays on: corpus and index, or problems.

    Args:
        run: run.
        current: make the index the current one.
    """
    if run.config.environment == "planner":
        return Data(validated_problems(run), "")
    return current_index(run, validated_corpus(run), current)


def as_planner(config: RunConfig) -> RunConfig:
    """Turn a configuration into one of the planner, registered under its own name."""
    tracking = config.tracking
    if tracking.registered_model == TrackingConfig().registered_model:
        tracking = tracking.model_copy(update={"registered_model": REGISTERED_MODEL})
    return config.model_copy(update={"environment": "planner", "tracking": tracking})


def validated_problems(run: Pipeline) -> str:
    """Materialise and check the problems; return their digest.

    Raises:
        CorpusError: they cannot be read, or have critical findings.
    """
    config = run.config
    with run.stage("validate") as run_id:
        digest = str(load_problems_task(config)["digest"])
        run.know(data_digest=digest)
        report = validate_problems_task(digest, config.paths.data_dir, code_digest(*PROBLEM_CODE), config)
        record_input(run.run_id, digest, "problems", config)
        record_report(run_id, digest, report, config)
        show_findings(findings_table(report))
        if not report["ok"]:
            raise ValidationFailed(describe_failure(report))
    return digest
