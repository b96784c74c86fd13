"""The flow `learn`: from documents to a trained searcher within a time limit, and again when the documents changed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from prefect import flow, get_run_logger

from flows.runtime.fetching import require_model, require_writer
from flows.runtime.settings import recordable, resolve_paths
from flows.stages.pipeline import DEFAULTS, Pipeline, open_pipeline
from flows.stages.stages import evaluate_policy, prepare_data
from flows.train import train_in
from slmsearch.artifacts.files import read_json, replace_json, replace_text
from slmsearch.config import DecisionConfig, PathsConfig, PolicyConfig, RunConfig
from slmsearch.corpus.store import read_manifest
from slmsearch.environments.searcher.twins import UNKNOWABLE
from slmsearch.errors import ConfigError, CorpusError, ModelError
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec
from slmsearch.intervals import wilson_interval
from slmsearch.keys import content_key
from slmsearch.models.hashes import read_base, trained_policy
from slmsearch.models.known import name_of
from slmsearch.training.files import ADAPTER
from tasks.corpus_data import Data
from tasks.evaluate import Evaluated
from tasks.learn import BEGINNINGS, QUESTIONS, SETTINGS, Asked, ask_task, held, learnt_dir, plan_task
from tasks.promotion import Champion, find_champion

TWINS_ASKED = 50
"""Number of questions whose twins are asked, two each."""
ASKED_ALONE = 8
"""Number of questions played one at a time, to measure the time of one."""


@flow(name="learn", persist_result=True, result_serializer="json")
def learn(config: RunConfig = DEFAULTS) -> dict[str, object]:
    """Make questions about the configured pages, train a searcher on them from the champion or the first policy, promote or hold.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    if (split := config.evaluate.split) != "test":
        raise ConfigError(f"evaluate.split is {split}: learn measures on pages that it does not train on, split test")
    config = resolve_paths(config, Path.cwd())
    folder = learnt_dir(config.paths, config.corpus.pages)
    mine = config.corpus.questions == str(folder / QUESTIONS)  # as its settings say, which are for the other commands
    questions = None if mine else config.corpus.questions
    config = config.changed({"tracking.registered_model": f"slmsearch-{folder.name}", "corpus.questions": questions})
    with held(folder, config.corpus.pages), open_pipeline("learn", config, trains=True) as run:
        first = choose_first(run.config.policy, run.config.learn.adapter, run.config.paths)
        run, data, asked = make_questions(run)
        champion = find_beginning(run, data, folder / BEGINNINGS)
        key = content_key(run=run.key, data=data.digest)
        planned: dict[str, int] = {}

        def plan(run: Pipeline, decide: str, **known: float) -> Pipeline:
            budget_s = run.config.learn.budget_s
            if not budget_s:
                return run
            with run.stage(f"plan-{decide}", key) as run_id:
                found = plan_task(key, data.digest, decide, run.began + budget_s, run.config, **known)
                run.tracker.record_params(run_id, found)
            get_run_logger().info("planned: %s", ", ".join(f"{name} {value}" for name, value in found.items()))
            planned.update(found)
            return replace(run, config=run.config.changed(found))

        def decide(run: Pipeline, before: Evaluated) -> Pipeline:
            one_by_one = replace(run, config=run.config.changed({"evaluate.limit": ASKED_ALONE, "evaluate.batch_size": 1}))
            alone.append(evaluate_policy(one_by_one, data, PolicySpec(UNTRAINED, run.config.policy), "evaluate-alone"))
            return plan(run, "training", played_s=before["seconds"] / before["n"])

        alone: list[Evaluated] = []
        counts = read_manifest(run.config.paths.corpora / data.digest).questions
        if not counts["train"] or not counts["test"]:
            train, test = counts["train"], counts["test"]
            raise CorpusError(
                f"of {sum(counts.values())} questions {train} are to train on and {test} to test by, and those of a page stay together: add"
                " documents, so that there are questions about two pages at least"
            )
        count = counts["test"]
        run = plan(run, "start", questions=count)
        summary: Mapping[str, Any] = train_in(run, data, champion or first, decide)
        learnt = {
            "right": count_right(summary, run.config.decision),
            "unknown": ask_twins(run, data, summary["lineage"]["train_key"]),
            "question_s": round(alone[0]["seconds"] / alone[0]["n"], 2),
            "questions": {**asked, "corrections": dict(Counter(asked["corrections"].values()))},
            "planned": planned,
            "began_with_champion": champion is not None,
            "settings": str(folder / SETTINGS),
        }
        settings = recordable(run.config.changed({**planned, "learn.budget_s": 0.0}), only_changed=True, beneath="learn")
        replace_text(folder / SETTINGS, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
        run.tracker.record_json(run.run_id, learnt, "learnt.json")
        return {**summary, "learnt": learnt}


def make_questions(run: Pipeline) -> tuple[Pipeline, Data, Asked]:
    """Index the pages, make the missing questions, and return the run with them, the data and a report on the questions."""
    require_writer(run.config.learn, run.config.paths)
    data = prepare_data(run)
    with run.stage("questions") as run_id:
        asked = ask_task(data, run.run_id, run.config)
        run.tracker.record_params(run_id, {name: asked[name] for name in ("count", "kept", "left_test", "unasked")})
        run.tracker.record_json(run_id, asked["corrections"], "corrections.json")
    run = replace(run, config=run.config.changed({"corpus.questions": asked["path"]}))
    return run, prepare_data(run, pages=data.digest), asked


def count_right(summary: Mapping[str, Any], decision: DecisionConfig) -> dict[str, float]:
    """Return the share of right answers after the training, with its 95 % interval."""
    n, value = summary["n"], summary["after"][decision.metric]
    low, high = wilson_interval(round(n * value), n, decision.alpha)
    return {"value": value, "low": low, "high": high, "n": n}


def ask_twins(run: Pipeline, data: Data, train_key: str) -> dict[str, float] | None:
    """Return how often the trained policy abstains on unanswerable twins of some questions, with the 95 % interval.

    None if no question has a twin, or if the policy writes programs, which see the whole corpus.
    """
    if run.config.searcher.programs:
        return None
    config, views = run.config, ("whole", *UNKNOWABLE)
    few = config.changed({"evaluate.limit": min(TWINS_ASKED, config.evaluate.limit or TWINS_ASKED), "evaluate.views": views})
    trained = PolicySpec(TRAINED, trained_policy(config.policy, str(config.paths.training / train_key / ADAPTER)))
    found = evaluate_policy(replace(run, config=few), data, trained, "evaluate-twins")
    return found["trust"].get("twins/unknown_right", {}).get("all")


def choose_first(policy: PolicyConfig, adapter: str | None, paths: PathsConfig) -> PolicyConfig:
    """Return the configured policy, with `learn.adapter` if that belongs to its model and no other adapter is configured.

    Raises:
        ModelError: `learn.adapter` names no adapter.
    """
    if adapter is None or policy.adapter:
        return policy
    require_model(adapter, "learn.adapter", paths, "adapter_config.json")
    same = name_of(read_base(adapter) or "") == name_of(policy.model)
    return policy.model_copy(update={"adapter": adapter}) if same else policy


def find_beginning(run: Pipeline, data: Data, beginnings: Path) -> PolicyConfig | None:
    """Return the champion's policy if it learnt from other pages or questions.

    The same pages and questions give the same result again, so that a run can be repeated.
    """
    known = read_json(beginnings)
    if data.digest in known:
        tags, model = known[data.digest], run.config.tracking.registered_model
        champion = Champion(run.tracker, model, tags) if tags else None
    else:
        champion = find_champion(run.config.paths, run.config.tracking)
    replace_json(beginnings, {**known, data.digest: champion and champion.tags})
    try:
        return champion.policy(run.config.policy) if champion else None
    except ModelError as error:
        get_run_logger().warning("beginning with %s: %s", run.config.policy.model, error)
        return None
