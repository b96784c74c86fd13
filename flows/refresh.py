"""The flow `refresh`: index the documents as they are now, and let the champion answer from them if nothing was lost."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.states import Completed

from flows.runtime.automations import HELD_BACK, HELD_BACK_STATE, emit
from flows.runtime.device import device
from flows.stages.artifacts import escape, show_refresh
from flows.stages.calibrating import calibrate_again
from flows.stages.pipeline import DEFAULTS, Pipeline, leave_out_late, open_pipeline
from flows.stages.policy_choice import SearcherChoice
from flows.stages.stages import prepare_data
from slmsearch.config import RunConfig
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import CorpusError
from slmsearch.serving.api import playing
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.documents import refresh as versions
from slmsearch.serving.documents.gate import judge_replay
from slmsearch.serving.documents.listing import list_documents
from slmsearch.serving.documents.refresh import Refreshed, Version
from tasks.child import in_child
from tasks.promotion import find_champion, serve_documents_task
from tasks.tracking import CHAMPION

FILE = "refresh.json"


@flow(name="refresh", persist_result=True, result_serializer="json")
def refresh(config: RunConfig = DEFAULTS) -> Any:
    """Make a version of the documents as they are now; the champion answers from it if it answers as many questions as before.

    A version that lost something is held back: the flow run is completed, its state is named `HeldBack`. Pages whose files were deleted
    are withdrawn all the same.

    Args:
        config: settings that differ from the defaults, by section; docs/configuration.md explains each.
    """
    began_s, told = time.time(), "nothing to refresh: "
    if late := leave_out_late():
        return late
    if config.corpus.pages is None:
        return _leave(f"{told}corpus.pages names no documents")
    if not isinstance(environment_of(config), SearcherEnvironment):
        return _leave(f"{told}environment {config.environment} is no searcher")
    with open_pipeline("refresh", config) as run:
        config, model = run.config, run.config.tracking.registered_model
        if find_champion(config.paths, config.tracking) is None:
            return {**_leave(f"{told}{model} has no champion yet"), **run.ids}
        choice, recorded = SearcherChoice(config, CHAMPION, get_run_logger().info), run.tracker.documents(model)
        before, is_lost = choice.find_here()
        now = replace(run, config=config.changed({"corpus.questions": None}))  # those of pages that are gone would be refused
        prepare_data(now, current=False)
        with run.stage("compare") as run_id, device(config.train):
            made, reasons = _compare(now, before)
            version = _withdraw(now, before, made) if reasons else made.version
            served = replace(before, corpus_digest=version.digest, index_key=version.key)
            failure = None
            if is_lost or version.key != before.index_key:
                failure = calibrate_again(choice, served)
                serve_documents_task(version.digest, version.key, began_s, recorded, config.paths, config.tracking)
            state = "held back" if reasons else "refreshed" if made.edit else "unchanged"
            found: dict[str, object] = {"state": state, "edit": str(made.edit), "reasons": list(reasons)}
            found |= {"skipped": [asdict(item) for item in made.skipped]}
            found |= {"data_digest": served.corpus_digest, "index_key": served.index_key}
            run.tracker.record_json(run_id, found | {"pages": asdict(made.edit)}, FILE)
            run.tracker.set_tags(run.run_id, {"slmsearch.state": state})
        line = "; ".join((f"documents {state}: {made.edit}", *reasons, *([f"no promise: {failure}"] if failure else ())))
        show_refresh(line)
        run.describe(escape(line))
        result = {"message": line, **found, **run.ids}
        if not reasons:
            get_run_logger().info("%s", line)
            return result
        get_run_logger().warning("%s", line)
        emit(HELD_BACK, model, found, "documents")
        return Completed(name=HELD_BACK_STATE, message=line, data=result)


def _leave(message: str) -> dict[str, object]:
    get_run_logger().info("%s", message)
    return {"message": message, "state": "unchanged"}


def _compare(run: Pipeline, before: ServedPolicy) -> tuple[Refreshed, tuple[str, ...]]:
    """Return the version of the documents as they are now, and why it is held back: by its texts, or by the champion's answers.

    Raises:
        CorpusError: they are other documents.
    """
    digest, key, config = before.corpus_digest or "", before.index_key or "", run.config
    known = before.measured_on or digest
    made = in_child(versions.refresh, config.paths, config.corpus, config.retrieval, Version(digest, key), known)
    pages, now = (versions.read_by_id(config.paths.corpora / one) for one in (digest, made.version.digest))
    texts = {page.content for page in now.values()}
    lost = sum(pages[name].content not in texts for name in made.edit.removed)  # others were moved
    if 2 * lost > len(pages):
        raise CorpusError(
            f"of the {len(pages)} pages that {before.version} answers from, {lost} are not in {config.corpus.pages}: "
            "set corpus.pages to its documents, or train on these"
        )
    if not made.edit or made.losses or not made.replayed:
        return made, made.losses
    in_child(playing.load, replace(before, config=config, corpus_digest=made.version.digest, index_key=made.version.key))
    pairs = in_child(playing.replay, made.replayed, digest, key)
    return made, tuple(judge_replay([was for was, _ in pairs], [is_now for _, is_now in pairs]))


def _withdraw(run: Pipeline, before: ServedPolicy, made: Refreshed) -> Version:
    """Return the version of before without the pages whose files were deleted since; that itself if none was."""
    config, digest = run.config, before.corpus_digest or ""
    listing = list_documents(Path(str(config.corpus.pages)))
    files = {page.id: str(page.metadata.get("path", "")) for page in versions.read_by_id(config.paths.corpora / digest).values()}
    is_gone = {name: not listing.holds(file) if listing and file else name in made.edit.removed for name, file in files.items()}
    gone = [name for name, is_so in is_gone.items() if is_so]
    if not gone:
        return Version(digest, before.index_key or "")
    return in_child(versions.build_without, config.paths, config.corpus, config.retrieval, digest, gone)
