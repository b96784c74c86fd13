"""The flow `nightly`: play the champion anew on the fixed set and on a fresh world, compare, and raise an alarm if it got worse."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from typing import Any

import httpx
from prefect import flow, get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.runtime.automations import ENDED, REGRESSED, REGRESSED_STATE, emit
from flows.runtime.fetching import require_policy
from flows.runtime.settings import loggable, read_environment
from flows.stages.artifacts import escape, show_night
from flows.stages.pipeline import DEFAULTS, Pipeline, leave_out_late, open_pipeline
from flows.stages.policy_choice import choose_policy
from flows.stages.stages import evaluate_policy, prepare_data
from slmsearch.config import NightlyConfig, RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.evaluate.nights import Night, night_from_dict, save_night
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.report.night_tables import describe_night, night_table
from slmsearch.report.tables import trust_table
from tasks.corpus_data import Data
from tasks.nights import describe_make, judge_night_task, name_night, nights_dir
from tasks.promotion import Champion

FRESH_SEEDS = 1_000_000
"""Seed offset of a night's world, added to the day's number: no training and no other measurement uses such seeds."""
QUESTIONS_PER_PAGE = 2.5
"""Questions played of each fresh page, out of four that the world has: a thousand of the 400 pages by default."""
PLAYING = ("corpus.", "retrieval.", "searcher.", "sandbox.", "planner.", "policy.", "reward.", "judge.", "evaluate.", "decision.metric")
"""Settings that decide the result of a night."""
TIMEOUT_S, PAUSES_S, SENT = 10.0, (2.0, 15.0, 0.0), "sent"
"""Time limit for a call of the webhook, and the pause after each, in seconds: it may be restarting."""
WEBHOOK = "SLMSEARCH_NIGHTLY__WEBHOOK"


@flow(name="nightly", persist_result=True, result_serializer="json")
def nightly(config: RunConfig = DEFAULTS) -> Any:
    """Evaluate the champion as every night does, and report what changed if it got worse.

    The flow run of a night that regressed is completed; its state is named `Regressed`.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    if late := leave_out_late():
        return late
    with open_pipeline("nightly", config) as run:
        spec, champion = choose_policy(run.config, run.config.evaluate.policy)
        if spec.policy:
            require_policy(spec.policy, run.config.paths)
        day = tonight()
        settings = {name: value for name, value in loggable(run.config).items() if name.startswith(PLAYING)}
        spec = replace(spec, night=name_night(day.isoformat(), spec, settings, run.config.evaluate))
        data = prepare_data(run)
        keys = {"fixed": evaluate_policy(run, data, spec, "evaluate-fixed")["key"]}
        if run.config.nightly.fresh_pages:
            keys["fresh"] = evaluated_fresh(run, spec, day)
        found = tell(run, judged(run, spec, champion, data, keys, settings))
        result = {"night": found.to_dict(), "state": found.state, **run.ids}
        return Completed(name=REGRESSED_STATE, message=describe_night(found), data=result) if found.state == "regressed" else result


def tonight() -> date:
    """Return the day for which a run was scheduled, UTC: a run that begins late still belongs to its night."""
    scheduled = flow_run.scheduled_start_time if flow_run.id else None
    return (scheduled or datetime.now(UTC)).astimezone(UTC).date()


def evaluated_fresh(run: Pipeline, spec: PolicySpec, day: date) -> str:
    """Make the night's world, index it without making it current, and evaluate on it; return the evaluation's key.

    No training has used the questions of this world, or these problems, of which some differ from trained ones in names only.
    """
    seed, pages = FRESH_SEEDS + day.toordinal(), run.config.nightly.fresh_pages
    questions = int(QUESTIONS_PER_PAGE * pages)
    config = environment_of(run.config).data(run.config).fresh(seed, pages, questions)
    fresh = replace(run, config=config.changed({"evaluate.split": "all", "evaluate.limit": questions}), lineage={})
    key = str(evaluate_policy(fresh, prepare_data(fresh, current=False), spec, "evaluate-fresh")["key"])
    run.note_keys(eval_key_fresh=key)
    return key


def judged(
    run: Pipeline, spec: PolicySpec, champion: Champion | None, data: Data, keys: dict[str, str], settings: Mapping[str, object]
) -> Night:
    """Compare the night with earlier ones; write its record to disk and into MLflow."""
    make = describe_make(data, spec, champion.version if champion else None, settings, run.config)
    with run.stage("judge-night") as run_id:
        found = judge_night_task(spec, keys, make, champion.tags if champion else None, run.ids, run.config)
        run.tracker.record_json(run_id, found, "night.json")
    night = night_from_dict(found)
    run.tracker.set_tags(run.run_id, {"slmsearch.night": spec.night, "slmsearch.state": night.state})
    return night


def tell(run: Pipeline, night: Night) -> Night:
    """Show the night, emit its events, and call the webhook if it regressed; delivery failures are logged and do not fail the run."""
    config, text = run.config, describe_night(night)
    tables = [night_table(night), *([trust_table(run.trust)] if run.trust else [])]
    shown = "\n\n".join(table.to_markdown() for table in tables)
    show_night(shown, text, night.state == "regressed")
    run.describe(escape(text), shown)
    emit(ENDED, config.tracking.registered_model, {"night": night.night, "state": night.state})
    if night.state != "regressed":
        return night
    values = night.to_dict()
    payload = {name: values[name] for name in ("night", "state", "policy", "metric", "against", "changes", "ids")}
    payload |= {"text": text, "falls": [asdict(test) for test in night.falls], "model": config.tracking.registered_model}
    emit(REGRESSED, config.tracking.registered_model, payload)
    get_run_logger().warning("%s", text)
    if address := webhook(config.nightly):
        night = replace(night, alarm=post_alarm(address, payload))
        save_night(nights_dir(config.paths, config.tracking), night)
        if night.alarm != SENT:
            get_run_logger().warning("the webhook was not told: %s", night.alarm)
    return night


def post_alarm(address: str, payload: Mapping[str, object]) -> str:
    """Post an alarm to a webhook as JSON; return `sent`, or the reason of a failure, without the address, which holds a secret.

    `text` in the payload is one sentence, for chats; the rest is for programs.
    """
    if not address.startswith(("http://", "https://")):
        return "failed: nightly.webhook is no address; it begins with http:// or https://"
    outcome = ""
    for pause_s in PAUSES_S:
        try:
            answer = httpx.post(address, json=dict(payload), timeout=TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            outcome = f"failed: {type(error).__name__}"
        else:
            if answer.is_success:
                return SENT
            outcome = f"failed: it answered {answer.status_code}"
            if answer.status_code < 500:  # it will not take the same again
                break
        time.sleep(pause_s)
    return outcome


def webhook(config: NightlyConfig) -> str | None:
    """Return the address of alarms: from the configuration, or this process, since secrets do not travel with a deployment's runs."""
    if config.webhook is not None:
        return config.webhook.get_secret_value() or None
    return read_environment().get(WEBHOOK) or None
