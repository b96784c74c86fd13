"""The stages of flows: each opens its MLflow run, calls its tasks, and adds to the lineage."""

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from flows.runtime.device import device
from flows.runtime.settings import recordable
from flows.stages.artifacts import show_table
from flows.stages.pipeline import Pipeline
from flows.stages.sharding import demonstrate_in_shards, play_in_shards
from slmsearch.corpus.data_report import DataReport
from slmsearch.corpus.hub import is_on_hub
from slmsearch.corpus.store import read_manifest
from slmsearch.environments.registry import environment_of
from slmsearch.errors import InvalidDataError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_key
from slmsearch.evaluate.shards import remove_shards
from slmsearch.evaluate.store import has_evaluation
from slmsearch.evaluate.trust import SAMPLED
from slmsearch.models.hashes import model_hash, read_start
from slmsearch.retrieval.versions import current_key, is_complete, set_current
from slmsearch.training.gold_parts import GoldParts
from slmsearch.training.job import control_key, make_job, start_key
from tasks.caching import fresh, retried, touches_network
from tasks.corpus_data import Data, build_index_task, load_corpus_task, validate_task
from tasks.environment import code_digest
from tasks.evaluate import Compared, Evaluated, compare_task, evaluate_task, questions_of, trust_task
from tasks.promotion import register_task
from tasks.record import findings_table, record_evaluation_task, record_report
from tasks.retention import training_of
from tasks.runs import TRUST_FILE
from tasks.tracking import PREFIX, record_questions
from tasks.train import Control, Trained, lay_out_task, train_control_task, train_start_task, train_task

NOT_IN_NAMES = re.compile(r"[^\w.:-]+")
"""Pattern of characters that MLflow does not allow in names; names of models may have them."""
INDEX_CODE = ("corpus", "retrieval")
PLAY_CODE = ("corpus", "retrieval", "models", "sampling", "judge", "episodes", "environments", "evaluate")


def validate_data(run: Pipeline, pages: str | None = None) -> str:
    """Materialise and check the data of the environment, or the pages of a corpus with the configured questions; return their digest.

    Raises:
        CorpusError: they cannot be read, or have critical findings.
    """
    config, source = run.config, environment_of(run.config).data(run.config)
    with run.stage("validate") as run_id:
        digest, skipped = load_corpus_task.with_options(**retried(any(map(is_on_hub, source.sources().values()))))(config, pages)
        run.note_keys(data_digest=digest)
        if origin := read_manifest(config.paths.corpora / digest).origin:
            run.note_keys(texts=f"{origin['attribution']}, {origin['licence']}")
        report = validate_task(digest, config.paths.data_dir, code_digest("environments", *source.code), config)
        report = replace(report, findings=(*report.findings, *skipped))
        run.record_input(run.run_id, digest, source.label)
        record_report(run.tracker, run_id, report)
        show_table("validation-findings", findings_table(report), "What validation found")
        if not report.ok:
            raise InvalidDataError(describe_failure(report))
    return digest


def prepare_data(run: Pipeline, current: bool = True, pages: str | None = None) -> Data:
    """Validate or find the data of the configured environment, and its index if it has one; `pages` as in `validate_data`."""
    digest = validate_data(run, pages)
    key = environment_of(run.config).data(run.config).index_key(digest)
    if not key:
        run.note_keys(index_key="")
        return Data(digest)
    return build_current_index(run, digest, key, current)


def describe_failure(report: DataReport) -> str:
    """Name the critical findings of a validation and their first rows in one line."""
    critical = [finding for finding in report.findings if finding.severity == "critical"]
    found = "; ".join(f"{finding.message} ({', '.join(finding.sample_ids[:3])})" for finding in critical[:5])
    return f"validation failed: {found}; fix these rows, `slmsearch validate` shows all findings"


def build_current_index(run: Pipeline, digest: str, key: str, current: bool = True) -> Data:
    """Build the index version of the corpus or find it, and make it current unless it is for this run alone."""
    config = run.config
    with run.stage("index", key) as run_id:
        build = fresh(build_index_task, is_complete(config.paths.index / key))
        build = build.with_options(**retried(bool(config.retrieval.embedder.base_url)))
        built = build(key, config.paths.data_dir, code_digest(*INDEX_CODE), digest, config.paths, config.retrieval, current)
        if current and current_key(config.paths.index) != key:  # a stored result was found
            set_current(config.paths.index, key)
        run.note_keys(index_key=key)
        run.tracker.record_params(run_id, {f"index.{name}": value for name, value in built.items()})
    return Data(digest, key)


def evaluate_policy(run: Pipeline, data: Data, spec: PolicySpec, stage: str) -> Evaluated:
    """Evaluate a policy or look its evaluation up; one with a model also on twins, and sampled, as configured."""
    wanted = run.config.evaluate
    whole = evaluate_once(_playing(run, "whole"), data, spec, stage)
    twins = [view for view in wanted.views if view != "whole"] if spec.policy else []
    keys = {str(view): evaluate_once(_playing(run, view), data, spec, f"{stage}-{view}")["key"] for view in twins}
    if spec.policy and wanted.samples > 1:
        keys[SAMPLED] = evaluate_once(_playing(run, "whole", wanted.samples), data, spec, f"{stage}-{SAMPLED}")["key"]
    if keys:
        whole["trust"] = trust_task(spec.name, whole["key"], keys, run.config.paths.evals, run.config.decision)
        name = NOT_IN_NAMES.sub("-", stage)
        run.trust[name.removeprefix("evaluate-")] = whole["trust"]
        with run.stage(f"{name}-trust", whole["key"]) as run_id:
            run.tracker.record_json(run.run_id, run.trust, TRUST_FILE)
            run.tracker.record_metrics(run_id, {name: slices["all"]["value"] for name, slices in whole["trust"].items()})
            run.tracker.set_tags(run_id, {"slmsearch.policy": spec.name, "slmsearch.eval_key": whole["key"]})
    return whole


def _playing(run: Pipeline, view: str, samples: int = 1) -> Pipeline:
    return replace(run, config=run.config.changed({"evaluate.views": (view,), "evaluate.samples": samples}))


def evaluate_once(run: Pipeline, data: Data, spec: PolicySpec, stage: str) -> Evaluated:
    """Evaluate a policy as the settings say, or look its evaluation up; `evaluate_policy` adds twins and sampled episodes."""
    config, stage = run.config, NOT_IN_NAMES.sub("-", stage)
    questions = questions_of(data.digest, config.paths, config.evaluate)
    key = eval_key(questions, data.index_key, spec, config, data.digest)
    computes_here = spec.policy is not None and not spec.policy.base_url
    with run.stage(stage, key) as run_id, ExitStack() as held:
        if spec.policy is not None and (trained := training_of(config.paths, spec.policy.adapter or spec.policy.model).key):
            run.tracker.set_tags(run_id, {f"{PREFIX}train_key": trained})  # housekeeping keeps it meanwhile
        plain = config.evaluate.views == ("whole",) and config.evaluate.samples == 1
        if computes_here and plain and config.evaluate.shards > 1 and not has_evaluation(config.paths.evals, key):
            play_in_shards(run, key, spec, data)  # what follows finds it stored
        elif computes_here:
            held.enter_context(device(config.train))
        play = fresh(evaluate_task, has_evaluation(config.paths.evals, key))
        play = play.with_options(**retried(touches_network(config) or bool(spec.policy and spec.policy.base_url)))
        result = play(key, config.paths.data_dir, code_digest(*PLAY_CODE), spec, data, config)
        run.record_input(run_id, data.digest, "evaluation")
        record_questions(run.tracker, run_id, config.evaluate.split, questions)
        if spec.policy is not None:
            record_prompt(run, run_id)
        model = spec.policy.adapter or spec.policy.model if spec.policy and not spec.policy.base_url and plain else None
        record_evaluation_task(run_id, spec.name, key, model, config.judge, config.paths, config.tracking)
        run.tracker.set_tags(run_id, {"slmsearch.policy": spec.name, "slmsearch.eval_key": key})
    run.note_keys(**{f"eval_key_{stage.removeprefix('evaluate-')}": key})
    return result


def record_prompt(run: Pipeline, run_id: str) -> None:
    """Link a stage to the prompt with which its episodes open; content keys hold the text itself."""
    environment = environment_of(run.config)
    name = f"slmsearch-{environment.name}-prompt"  # prompts and registered models share their names
    version = run.tracker.record_prompt(run_id, NOT_IN_NAMES.sub("-", name.replace(":", "-")), environment.opening("{{question}}"))
    run.tracker.set_tags(run_id, {"slmsearch.prompt_version": version})


def train_adapter(run: Pipeline, data: Data) -> Trained:
    """Train with GRPO, resume a killed run, and register the adapter."""
    config = run.config
    job = make_job(config, data.digest, data.index_key)
    with run.stage("train", job.train_key) as run_id:
        run.record_input(run_id, data.digest, "training")
        record_prompt(run, run_id)
        with device(config.train):
            result = train_task(data.digest, data.index_key, run_id, config)
        run.note_keys(train_key=job.train_key, base_hash=model_hash(config.policy.model), adapter_hash=result["hash"])
        result["version"] = register_task(run_id, result["adapter"], result["hash"], run.lineage, config, recordable(config))
        run.note_keys(model_version=result["version"])
        card = {f"train.card.{phase}.{name}": value for phase, use in result.get("card", {}).items() for name, value in use.items()}
        seconds = {f"train.seconds.{name}": value for name, value in result["spent"].items()}
        run.tracker.record_params(run_id, {"train.seconds": result["seconds"], **seconds, **card})
    return result


def start_from_examples(run: Pipeline, data: Data) -> Pipeline:
    """Train the supervised start, if configured, on the configured model and adapter; return the run with it as its model."""
    key = start_key(run.config, data.digest)
    if key is None:
        return run
    config = run.config
    sources = environment_of(config).teaching(config).start_sources()
    with run.stage("train-sft", key) as run_id, ExitStack() as held:
        is_new = read_start(str(config.paths.training / f"sft-{key}")) is None
        # The model's own episodes decide which gold is shown beside them.
        gold = GoldParts(config, data.digest).key() if config.evaluate.shards > 1 and "gold" in sources and "own" not in sources else None
        if gold and is_new:
            demonstrate_in_shards(run, gold, data)
        held.enter_context(device(config.train))
        start = train_start_task(key, sources, data.digest, run_id, config)
        if gold:
            remove_shards(config.paths.evals, gold)
        run.tracker.record_params(run_id, {f"sft.{name}": value for name, value in start.items()})
    run.note_keys(sft_key=key)
    return replace(run, config=config.changed({"policy.model": start["model"], "policy.adapter": None}))


def lay_out_training(run: Pipeline, data: Data) -> str:
    """Arrange the finished training as one directory; return it."""
    config = run.config
    with run.stage("lay-out"):
        folder = Path(config.paths.data_dir) / environment_of(config).data.output
        return lay_out_task(make_job(config, data.digest, data.index_key), folder)


def train_sft_control(run: Pipeline, data: Data, seconds: float, name: str, training: str) -> Control:
    """Train the run's model by supervision for the time that the training of a key took, if no steps are set."""
    key = control_key(run.config, model_hash(run.config.policy.model), training)
    with run.stage(f"train-{name}", key) as run_id, device(run.config.train):
        result = train_control_task(key, seconds, data.digest, run_id, run.config)
        run.tracker.record_params(run_id, {"control.seconds": result["seconds"]})
    run.note_keys(**{f"{name}_key": key})
    return result


def compare_evaluations(run: Pipeline, name: str, before: Evaluated, after: Evaluated, shared: bool = False) -> Compared:
    """Compare two evaluations of this run question by question; `shared` limits it to the questions that both have."""
    with run.stage(name) as run_id:
        comparison = compare_task(name, before["key"], after["key"], run.config.paths.evals, run.config.decision, shared)
        run.tracker.record_json(run_id, comparison, "comparison.json")
        difference = {f"slmsearch.difference_{part}": f"{value:.4f}" for part, value in comparison["difference"].items()}
        run.tracker.set_tags(run_id, {"slmsearch.decision": comparison["decision"], "slmsearch.reason": comparison["reason"], **difference})
    return comparison
