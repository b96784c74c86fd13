"""Additions of `slmsearch learn` to a training run: questions that follow the pages, and steps that follow from a budget."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, cast

from filelock import FileLock, Timeout
from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.artifacts.files import read_json, replace_json, replace_text
from slmsearch.config import PathsConfig, RunConfig
from slmsearch.corpus.splits import assign_splits
from slmsearch.corpus.store import read_manifest, read_questions
from slmsearch.errors import CorpusError, TrainingError
from slmsearch.keys import content_key
from slmsearch.made_questions.renew import ACCEPTED, NOTHING, Correction, Earlier, print_pages, renew_questions
from slmsearch.models.hashes import model_hash
from slmsearch.training.budget import Speed, plan_start, plan_training
from tasks.child import end_child, in_child
from tasks.corpus_data import Data
from tasks.progress import Progress

QUESTIONS, PRINTS, CORRECTIONS, PAGE_SPLITS = "questions.jsonl", "pages.json", "corrections.json", "splits.json"
"""Files in the folder of a learnt corpus: questions with splits, states of pages at that time, results of corrections; splits of pages by
id and by content, also of pages that are gone."""
ASKED = "asked.json"
"""File: the run that made questions last, what it made, and the sections that its time did not reach."""
BEGINNINGS, SETTINGS = "beginnings.json", "settings.yaml"
"""Files: the champion that a training on some data began with, and the settings to ask the searcher with."""
MAX_QUESTIONS, MAX_TWO_HOP = 5000, 800
"""Maximum number of questions: more take longer than they teach."""
WRITING_FRAC = 0.2
"""Share of a budget in which a trained model writes questions."""


class Asked(TypedDict):
    """Questions, and statistics of how they were made."""

    path: str
    count: int
    kept: int
    """Number of questions taken over from before."""
    corrections: dict[str, str]
    """Result by id of the feedback: `accepted`, or the reason of a refusal."""
    left_test: int
    """Number of questions moved to training because a person corrected an answer about their page."""
    unasked: int
    """Number of sections that the language model did not reach; the next run asks about them."""


def learnt_dir(paths: PathsConfig, pages: str | None) -> Path:
    """Return the folder of what is learnt from a source of pages."""
    pages = pages or "world"
    name = re.sub(r"[^a-z0-9]+", "-", Path(pages).stem.lower()).strip("-")[:40] or "pages"
    return paths.learnt / f"{name}-{content_key(pages=pages)[:6]}"


@contextmanager
def held(folder: Path, pages: str | None) -> Iterator[None]:
    """Lock the folder of what is learnt from some pages; the kernel frees the lock when the process ends.

    Raises:
        TrainingError: another process learns from these pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        command = f"slmsearch learn {pages or 'these pages'}"
        raise TrainingError(f"another `{command}` is running; wait for it, or end it and give the command again") from error
    try:
        yield
    finally:
        lock.release()


@task(name="questions", cache_policy=NO_CACHE)
def ask_task(data: Data, run_id: str, config: RunConfig) -> Asked:
    """Make questions about what is new, changed or was not reached, add corrections, and write all of them with their splits.

    A resumed run keeps the questions that it made before it was killed. If `corpus.questions` names a source, its questions are used, and
    none is made.

    Args:
        data: corpus and index of the pages.
        run_id: MLflow run of the flow, by which a resumed run is known.
        config: settings of the run.

    Raises:
        CorpusError: no question can be made.
    """
    with Progress("questions", "pages") as progress:
        asked: Asked = in_child(ask, data, run_id, config, progress=progress)
    return asked


def ask(data: Data, run_id: str, config: RunConfig, progress: Callable[[int, int], None]) -> Asked:
    """Do the work of `ask_task` in this process."""
    from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
    from slmsearch.environments.writer.trained_writer import make_question_writer
    from slmsearch.made_questions.make import NONE_MADE, Filters

    folder, settings, writer = learnt_dir(config.paths, config.corpus.pages), config.learn, None
    ends = time.monotonic() + WRITING_FRAC * settings.budget_s if settings.budget_s else math.inf
    if not config.corpus.questions:
        writer = make_question_writer(config, ends=ends)
    toolbox = open_indexed_corpus(config, data.digest, data.index_key).toolbox
    filters = Filters(toolbox.library, toolbox.index, config.retrieval.top_k, MAX_QUESTIONS)
    models = {name: model and model_hash(model) for name, model in (("writer", settings.writer), ("reader", settings.reader))}
    if config.judge.kind != "exact" and not settings.writer and settings.questions != "gaps":  # the judge's model writes them
        models["judge"] = f"{config.judge.kind} {config.judge.model}"
    prints, earlier = print_pages(toolbox.library, {"questions": settings.questions, **models}), NOTHING
    last = read_json(folder / ASKED)
    if last.get("run") == run_id and read_json(folder / PRINTS) == prints:
        return cast("Asked", last["asked"])
    written = (folder / QUESTIONS).read_text(encoding="utf-8") if (folder / PRINTS).is_file() else ""
    lines = [line for line in written.split("\n") if line]  # an answer may hold other ends of lines
    if config.corpus.questions:
        given = list(read_questions(config.paths.corpora / data.digest))
        if not read_manifest(config.paths.corpora / data.digest).splits_given:  # those of before are kept
            before = [json.loads(line) for line in lines]
            own = {str(row["id"]): str(row["split"]) for row in before if not row["page_ids"]}
            given = [(question, own.get(question.id, split)) for question, split in given]
            of_page = {page: str(row["split"]) for row in before for page in row["page_ids"]}
            earlier_splits = {**read_json(folder / PAGE_SPLITS), **of_page}
            follows = assign_splits([question for question, _ in given if question.page_ids], known=earlier_splits)
            given = [(one, follows[one.id] if one.page_ids else split) for one, split in given if not one.page_ids or one.id in follows]
        earlier = Earlier([{**question.row(), "split": split} for question, split in given], prints)
    elif lines:
        unasked = frozenset(last.get("unasked", ()))
        earlier = Earlier([json.loads(line) for line in lines], read_json(folder / PRINTS), read_json(folder / PAGE_SPLITS), unasked)
    two_hop = 0 if config.corpus.questions else MAX_TWO_HOP
    corrected = _corrections(config.corpus.pages, config.paths)
    renewed = renew_questions(filters, prints, earlier, corrected, two_hop, writer, progress, settings.questions)
    if not renewed.rows:
        dropped = ", ".join(f"{count} {why}" for why, count in renewed.made.dropped.items()) or "nothing was drafted"
        raise CorpusError(NONE_MADE.format(pages=config.corpus.pages, why=dropped))
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / QUESTIONS, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in renewed.rows))
    corrections = dict([*renewed.corrections.items()][::-1])
    replace_json(folder / CORRECTIONS, corrections)
    of_pages = {str(page): str(row["split"]) for row in renewed.rows for page in row["page_ids"]}
    of_prints = {prints[page]: split for page, split in of_pages.items() if page in prints}
    replace_json(folder / PAGE_SPLITS, {**read_json(folder / PAGE_SPLITS), **of_pages, **of_prints})
    left = renewed.made.unasked
    counts = {"count": len(renewed.rows), "kept": renewed.kept, "left_test": renewed.left_test, "unasked": len(left)}
    asked = cast("Asked", {"path": str(folder / QUESTIONS), "corrections": corrections, **counts})
    replace_json(folder / ASKED, {"run": run_id, "asked": asked, "unasked": left})
    replace_json(folder / PRINTS, prints)  # last: pages are done when their questions are
    return asked


def _corrections(pages: str | None, paths: PathsConfig) -> list[Correction]:
    """Return the corrections of answers from these pages, the newest first."""
    from slmsearch.serving.api.feedback import FeedbackLog

    mine = Path(pages or "").resolve()
    given = [one for one in FeedbackLog(paths.feedback).read().records if one.correct_answer and not one.within]
    own = [one for one in given if one.pages is None or Path(one.pages).resolve() == mine]
    return [Correction(one.id, one.question, one.correct_answer or "", one.source) for one in reversed(own)]


def corrections_learnt(learnt: Path) -> dict[str, str]:
    """Return the results of corrections at the last learning: by id of the feedback `accepted`, or the reason of a refusal.

    If a correction was tried on pages of several folders, the one that accepted it counts.
    """
    states: dict[str, str] = {}
    for path in sorted(learnt.glob(f"*/{CORRECTIONS}")):
        states |= {name: state for name, state in read_json(path).items() if states.get(name) != ACCEPTED}
    return states


@task(name="plan", cache_policy=NO_CACHE)
def plan_task(key: str, digest: str, decide: str, ends: float, config: RunConfig, **known: float) -> dict[str, int]:
    """Decide settings by the remaining time, or find the decision of an interrupted run under that key.

    Args:
        key: content key of the work that the steps are for.
        digest: corpus of the run.
        decide: `start`, or `training` once the start is evaluated.
        ends: value of `time.monotonic` at which the whole run must end.
        config: settings of the run.
        known: for the start `questions` in the evaluated split; for the training `played_s`, the seconds that a question took.

    Raises:
        ConfigError: no time is left for training.
    """
    plans = learnt_dir(config.paths, config.corpus.pages) / f"steps-{key}.json"
    if not (found := read_json(plans).get(decide)):
        if decide == "start":
            speed = Speed(**in_child("slmsearch.training.teach:measure_speed", config, digest))
            end_child()  # the model that was tried
            found = {**plan_start(ends - time.monotonic(), speed, int(known["questions"]), config.sft)}
        else:
            found = plan_training(ends - time.monotonic(), known["played_s"], config.evaluate.limit, config.train)
        replace_json(plans, {**read_json(plans), decide: found})
    return cast("dict[str, int]", found)
