"""The stages that flows are made of: each opens its MLflow run, calls its tasks, and adds to the lineage."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from flows.ops.device import device
from flows.stages.artifacts import show_findings
from flows.stages.pipeline import Pipeline
from flows.stages.sharding import play_in_shards
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.store import has_evaluation
from slmsearch.learn.control import control_key
from tasks.caching import fresh, retried, touches_network
from tasks.corpus import ValidationFailed, is_remote, load_corpus_task, validate_task
from tasks.environment import code_digest
from tasks.evaluate import compare_task, evaluate_task, name_evaluation
from tasks.index import build_index_task
from tasks.paths import evals_dir, has_index, make_current, name_index
from tasks.record import findings_table, record_evaluation_task, record_input, record_report
from tasks.register import base_hash, register_task
from tasks.train import train_control_task, train_task, training_job


@dataclass(frozen=True)
class Data:
    """What a policy plays on."""

    digest: str
    """Of the corpus."""
    index_key: str


NOT_IN_NAMES = re.compile(r"[^\w.:-]+")
"""What MLflow takes in no name; models may be called anything."""
CORPUS_CODE = ("corpus",)
INDEX_CODE = ("corpus", "retrieval")
PLAY_CODE = ("corpus", "retrieval", "searcher", "planner", "generate", "judge", "evaluate")


def validated_corpus(run: Pipeline) -> str:
    """Materialise and check the corpus; return its digest.

    Raises:
        CorpusError: it cannot be read, or has critical findings.
    """
    config = run.config
    with run.stage("validate") as run_id:
        corpus = load_corpus_task.with_options(**retried(is_remote(config.corpus)))(config)
        digest = str(corpus["digest"])
        run.know(data_digest=digest)
        report = validate_task(digest, config.paths.data_dir, code_digest(*CORPUS_CODE), config)
        report = {**report, "findings": [*report["findings"], *corpus["findings"]]}
        record_input(run.run_id, digest, "corpus", config)
        record_report(run_id, digest, report, config)
        show_findings(findings_table(report))
        if not report["ok"]:
            raise ValidationFailed(describe_failure(report))
    return digest


def describe_failure(report: dict[str, Any]) -> str:
    """Name the critical findings of a validation and their first rows in one line."""
    critical = [finding for finding in report["findings"] if finding["severity"] == "critical"]
    found = "; ".join(f"{finding['message']} ({', '.join(map(str, finding['sample_ids'][:3]))})" for finding in critical[:5])
    return f"validation failed: {found}; fix these rows, `slmsearch validate` shows all findings"


def current_index(run: Pipeline, digest: str, current: bool = True) -> Data:
    """Build the index version of the corpus or find it, and make it current unless it is for this run alone."""
    config = run.config
    key = name_index(digest, config)
    with run.stage("index", key) as run_id:
        build = fresh(build_index_task, has_index(key, config)).with_options(**retried(bool(config.retrieval.embedder.base_url)))
        built = build(key, config.paths.data_dir, code_digest(*INDEX_CODE), digest, config, current)
        if current:
            make_current(key, config)
        run.know(index_key=key)
        run.tracker.record_params(run_id, {f"index.{name}": value for name, value in built.items()})
    return Data(digest, key)


def evaluated(run: Pipeline, data: Data, spec: PolicySpec, stage: str) -> dict[str, Any]:
    """Evaluate a policy or look its evaluation up; return key, n, metrics, slices and seconds."""
    config, stage = run.config, NOT_IN_NAMES.sub("-", stage)
    key = name_evaluation(spec, data.digest, data.index_key, config)
    computes_here = spec.policy is not None and not spec.policy.base_url
    with run.stage(stage, key) as run_id, ExitStack() as held:
        if computes_here and config.evaluate.shards > 1 and not has_evaluation(evals_dir(config), key):
            play_in_shards(key, spec, data.digest, data.index_key, config)  # what follows finds it stored
        elif computes_here:
            held.enter_context(device(config))
        play = fresh(evaluate_task, has_evaluation(evals_dir(config), key))
        play = play.with_options(**retried(touches_network(config) or bool(spec.policy and spec.policy.base_url)))
        result = play(key, config.paths.data_dir, code_digest(*PLAY_CODE), spec.name, spec.policy, data.digest, data.index_key, config,
            spec.plans_of, spec.night)  # fmt: skip
        record_input(run_id, data.digest, "evaluation", config)
        record_evaluation_task(run_id, spec.name, key, config)
        run.tracker.set_tags(run_id, {"slmsearch.policy": spec.name, "slmsearch.eval_key": key})
    run.know(**{f"eval_key_{stage.removeprefix('evaluate-')}": key})
    return result


def trained_adapter(run: Pipeline, data: Data) -> dict[str, Any]:
    """Train with GRPO, going on where a killed run stopped; return adapter, hash, version, steps and seconds."""
    config = run.config
    job = training_job(data.digest, data.index_key, config)
    with run.stage("train", job.train_key) as run_id:
        record_input(run_id, data.digest, "training", config)
        with device(config):
            result = train_task(data.digest, data.index_key, run_id, config)
        run.know(train_key=job.train_key, base_hash=base_hash(config.policy), adapter_hash=result["hash"])
        result["version"] = register_task(run_id, result["adapter"], result["hash"], run.lineage, config)
        run.know(model_version=result["version"])
        run.tracker.record_params(
            run_id, {"train.seconds": result["seconds"], **{f"train.seconds.{name}": value for name, value in result["spent"].items()}}
        )
    return result


def sft_control(run: Pipeline) -> dict[str, Any]:
    """Continue supervised training from the same checkpoint; return the model's directory, steps and seconds."""
    key = control_key(run.config, base_hash(run.config.policy))
    with run.stage("train-control", key) as run_id, device(run.config):
        result = train_control_task(key, run_id, run.config)
        run.tracker.record_params(run_id, {"control.seconds": result["seconds"]})
    run.know(control_key=key)
    return result


def compared(run: Pipeline, name: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Compare two evaluations of this run question by question."""
    with run.stage(name) as run_id:
        comparison = compare_task(name, before["key"], after["key"], run.config)
        run.tracker.record_json(run_id, comparison, "comparison.json")
        difference = {f"slmsearch.difference_{part}": f"{value:.4f}" for part, value in comparison["difference"].items()}
        run.tracker.set_tags(run_id, {"slmsearch.decision": comparison["decision"], "slmsearch.reason": comparison["reason"], **difference})
    return comparison
