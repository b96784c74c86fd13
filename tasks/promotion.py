"""Registered adapters and the champion: register, promote by a flow's decision or by hand, roll back."""

import getpass
import re
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from slmsearch.config import PathsConfig, PolicyConfig, RunConfig, TrackingConfig
from slmsearch.errors import ConfigError, ModelError, PromotionError
from slmsearch.models.hashes import model_hash, read_start, trained_policy
from tasks.tracking import ADAPTER_HASH, BASE_MODEL, PREFIX, PromotionEvent, Tracker, move_champion, open_tracker, roll_back

EVALUATED_AFTER = f"{PREFIX}eval_key_after"
"""Tag of a flow's run with the evaluation of the trained policy."""


@task(name="register", cache_policy=NO_CACHE)
def register_task(
    run_id: str, adapter: str, adapter_hash: str, lineage: dict[str, str], config: RunConfig, settings: dict[str, object]
) -> str:
    """Register an adapter's directory under its hash and return its version; the keys of its inputs become tags of the version.

    One that searches an index is stored as a model that MLflow can serve, with `settings`: those of the run, without secrets.
    """
    tags = {f"slmsearch.{name}": value for name, value in lineage.items()}
    tags |= {ADAPTER_HASH: adapter_hash, BASE_MODEL: config.policy.model, "slmsearch.base_hash": model_hash(config.policy.model)}
    beside = None
    if lineage.get("index_key"):
        from tasks.tracking.searcher_model import write_model  # pandas and MLflow's models take a second

        beside = partial(write_model, settings=settings, lineage=lineage)
    tracker = open_tracker(config.paths, config.tracking)
    return tracker.register_adapter(run_id, Path(adapter), config.tracking.registered_model, tags, beside)


@dataclass(frozen=True)
class Champion:
    """The promoted version of a registered model."""

    tracker: Tracker
    model: str
    """Registered model."""
    tags: dict[str, str]
    """Tags of the version, and its number as `version`."""

    @property
    def version(self) -> str:
        """Number of the version."""
        return self.tags["version"]

    @property
    def label(self) -> str:
        """Label for people: model and version."""
        return f"{self.model}/{self.version}"

    @property
    def documents(self) -> tuple[str, str] | None:
        """Corpus and index of refreshed documents that it answers from; None: those of its evaluation, which are newer, or the only ones.

        Raises:
            ModelError: the record is damaged.
        """
        recorded = self.tracker.documents(self.model)
        if not recorded:
            return None
        try:
            digest, key, at_s = recorded.split()
            return (digest, key) if float(at_s) >= self.tracker.began_s(self.model, self.version) else None
        except ValueError as error:
            raise ModelError(f"the tag slmsearch.documents of {self.model} is damaged ({recorded!r}); delete it and refresh") from error

    def policy(self, configured: PolicyConfig) -> PolicyConfig:
        """Return a policy with the champion's adapter, on the supervised start of its run if that began with the policy's model.

        Raises:
            ModelError: the champion was trained on another base model.
        """
        model = self.find_base(configured.model)
        if model is None:
            raise ModelError(
                f"champion {self.version} of {self.model} was trained on {self.tags.get(BASE_MODEL, '')}; set policy.model to that"
            )
        adapter = self.tracker.fetch_adapter(self.model, self.version)
        return trained_policy(configured.model_copy(update={"model": model}), str(adapter))

    def find_base(self, model: str) -> str | None:
        """Return the base of the adapter: a model, or the supervised start that began with it; None if it was trained on another model."""
        base = self.tags.get(BASE_MODEL, "")
        if read_start(base) == model:
            model = base
        return model if self.tags.get("slmsearch.base_hash", "") == model_hash(model) else None


def find_champion(paths: PathsConfig, tracking: TrackingConfig) -> Champion | None:
    """Return the champion of the registered model, None before the first promotion."""
    tracker, model = open_tracker(paths, tracking), tracking.registered_model
    tags = tracker.champion(model)
    return Champion(tracker, model, tags) if tags else None


@task(name="promote", cache_policy=NO_CACHE)
def promote_task(
    version: str, expected: str | None, why: str, eval_key: str, run_id: str, paths: PathsConfig, tracking: TrackingConfig
) -> str | None:
    """Move the alias `champion` to a version, if it has not moved since the decision; return its version afterwards.

    Args:
        version: new champion.
        expected: champion at the time of the decision, None if there was none.
        why: the decision's reason.
        eval_key: evaluation that it rests on.
        run_id: MLflow run that decided.
        paths: directories of the run.
        tracking: where versions are kept.

    Raises:
        PromotionError: the run that decided has ended.
    """
    tracker, model = open_tracker(paths, tracking), tracking.registered_model
    event = PromotionEvent(model, version, "promote", why, who(), eval_key=eval_key)
    try:
        move_champion(tracker, event, expected, run_id)
    except PromotionError:
        champion = find_champion(paths, tracking)
        if champion is None or champion.version in (expected, version):  # no other promotion came first
            raise
        return champion.version
    return version


@task(name="serve-documents", cache_policy=NO_CACHE)
def serve_documents_task(digest: str, key: str, at_s: float, expected: str, paths: PathsConfig, tracking: TrackingConfig) -> None:
    """Let the champion of the registered model answer from a corpus and its index, as does every later one whose training began before.

    Args:
        digest: corpus.
        key: index.
        at_s: time at which the documents were read, in seconds since the epoch.
        expected: record of the model's documents when that began.
        paths: directories of the run.
        tracking: where models are kept.

    Raises:
        PromotionError: another run has recorded other documents meanwhile.
    """
    tracker, model = open_tracker(paths, tracking), tracking.registered_model
    wanted = f"{digest} {key}"
    if not tracker.set_documents(model, f"{wanted} {at_s:.3f}", expected) and not tracker.documents(model).startswith(f"{wanted} "):
        raise PromotionError(f"the documents of {model} were refreshed by another run meanwhile; run it again if they changed since")


def promote_by_hand(paths: PathsConfig, tracking: TrackingConfig, version: str, reason: str) -> PromotionEvent:
    """Promote a version, given as its number or name/number, against any comparison; the reason is recorded.

    Raises:
        ConfigError: the version or the reason is empty.
        ModelError: there is no such version.
        PromotionError: another process promoted at the same time.
    """
    model, number = _parse_version(version, tracking.registered_model)
    tracker, reason = open_tracker(paths, tracking), require_reason(reason)
    current = (tracker.champion(model) or {}).get("version")
    event = PromotionEvent(model, number, "promote", reason, who(), eval_key=promotion_evaluation(tracker, model, number))
    return move_champion(tracker, event, current)


def roll_back_by_hand(paths: PathsConfig, tracking: TrackingConfig, reason: str) -> PromotionEvent:
    """Make the previous champion the champion again.

    Raises:
        ConfigError: the reason is empty.
        PromotionError: there is none.
    """
    return roll_back(open_tracker(paths, tracking), tracking.registered_model, require_reason(reason), who())


def promotion_evaluation(tracker: Tracker, model: str, number: str) -> str:
    """Return the evaluation of a version by the run that made it; empty if there is none."""
    run = tracker.maker_run(model, number)
    return (run and tracker.find_tag(run, EVALUATED_AFTER)) or ""


def _parse_version(text: str, model: str) -> tuple[str, str]:
    name, slash, number = text.strip().rpartition("/")
    if not re.fullmatch(r"[1-9]\d*", number) or (slash and not name):
        raise ConfigError(f"{text!r} is no version; give its number, or name/number such as {model}/3")
    return name or model, number


def require_reason(reason: str) -> str:
    """Return a reason in one line.

    Raises:
        ConfigError: it is empty.
    """
    if not reason.strip():
        raise ConfigError("--reason is empty; say in a few words why, it is recorded with the version")
    return " ".join(reason.split())


def who() -> str:
    """Name the person at this machine, and the flow run that acts for them."""
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    return f"{person}, flow run {flow_run.name}" if flow_run.id else person
