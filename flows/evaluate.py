"""The flow `evaluate`: validate, index, evaluate one policy."""

from prefect import flow

from flows.runtime.fetching import require_policy
from flows.stages.artifacts import escape, show_table
from flows.stages.pipeline import DEFAULTS, open_pipeline
from flows.stages.policy_choice import choose_policy
from flows.stages.stages import evaluate_policy, prepare_data
from slmsearch.config import RunConfig
from tasks.evaluate import Evaluated


@flow(name="evaluate", persist_result=True, result_serializer="json")
def evaluate(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Evaluate one policy: `evaluate.policy`, or the champion, or the configured policy before the first promotion.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    with open_pipeline("evaluate", config) as run:
        spec, _ = choose_policy(run.config, run.config.evaluate.policy)
        if spec.policy:
            require_policy(spec.policy, run.config.paths)
        data = prepare_data(run)
        found = evaluate_policy(run, data, spec, f"evaluate-{spec.name}")
        row = {"policy": spec.name, **{name: f"{value:.4g}" for name, value in found["metrics"].items()}}
        row |= {name: f"{slices['all']['value']:.4g}" for name, slices in found.get("trust", {}).items()}
        show_table("evaluations", [row], "Policies on the same questions")
        run.tracker.record_metrics(run.run_id, {f"eval/{name}": value for name, value in found["metrics"].items()})
        run.describe(f"{escape(spec.name)}: {found['metrics']['answer/correct']:.3f} of {found['n']} questions are answered rightly")
        return {"policy": spec.name, **found, **summarise_trust(found), **run.ids}


def summarise_trust(found: Evaluated) -> dict[str, object]:
    """Return the results of an evaluation on twins and of repeated episodes, over all questions, with intervals."""
    shares = {name: slices["all"] for name, slices in found.get("trust", {}).items()}
    spans = {name: {part: share[part] for part in ("value", "low", "high")} for name, share in shares.items()}
    summary: dict[str, object] = {name.removeprefix("answer/"): span for name, span in spans.items() if name.startswith("answer/")}
    if "twins/both_right" in spans:
        twins = {name.removeprefix("twins/"): span for name, span in spans.items() if name.startswith("twins/")}
        summary["twins"] = {"n": shares["twins/both_right"]["n"], **twins}
    return summary
