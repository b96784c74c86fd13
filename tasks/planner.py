"""The planner's own effects: problems, supervised training, the output directory."""

import time
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from slmsearch.config import RunConfig
from slmsearch.corpus.store import load_corpus, load_questions, read_manifest
from slmsearch.learn.examples import EXAMPLES, read_examples
from slmsearch.learn.job import make_job
from slmsearch.planner.checks import check_problems
from slmsearch.planner.sources import build_problems
from tasks.caching import cached
from tasks.child import in_child
from tasks.paths import corpora_dir, training_dir
from tasks.progress import Progress
from tasks.tracking import open_tracker


@task(name="load-problems", cache_policy=NO_CACHE)
def load_problems_task(config: RunConfig) -> dict[str, Any]:
    """Materialise problems and splits, or find them, and return digest and counts."""
    digest = build_problems(config.planner, corpora_dir(config))
    return {"digest": digest, "problems": read_manifest(corpora_dir(config) / digest).questions}


@task(name="validate", **cached("config"))
def validate_problems_task(digest: str, data_dir: str, code: str, config: RunConfig) -> dict[str, Any]:
    """Check problems and return what was found.

    Args:
        digest: problems.
        data_dir: where they lie.
        code: digest of the code that checks.
        config: run.
    """
    return check_problems(load_corpus(corpora_dir(config), digest).questions)


@task(name="train-planner-sft", cache_policy=NO_CACHE)
def plan_sft_task(key: str, digest: str, run_id: str, config: RunConfig) -> dict[str, Any]:
    """Train the start on plans, or look it up.

    Args:
        key: content key of the start.
        digest: problems; the model's own plans are of these.
        run_id: MLflow run of the curves.
        config: run.
    """
    tracker, out = open_tracker(config), training_dir(config, f"sft-{key}")
    done = tracker.last_step(run_id)
    with Progress("planner SFT", "steps") as progress:

        def on_log(step: int, metrics: dict[str, float]) -> None:
            progress(step, max(step, config.sft.steps))
            if step > done and "loss" in metrics:
                tracker.record_steps(run_id, [(step, {"loss": metrics["loss"]}, time.time())])

        questions = load_questions(corpora_dir(config), digest).get(config.train.split, [])
        facts: dict[str, Any] = in_child("slmsearch.learn.plan_sft:train_plan_sft", config, questions, out, on_log=on_log)
    return {"model": str(out), **facts}


@task(name="lay-out", cache_policy=NO_CACHE)
def lay_out_task(digest: str, run_id: str, config: RunConfig) -> str:
    """Lay the finished training run out as one directory, and record the examples of its batches; return the directory."""
    from slmsearch.learn.layout import lay_out

    job = make_job(config, digest, "")
    examples = read_examples(job.directory / EXAMPLES)
    open_tracker(config).record_table(run_id, examples, "examples.json")
    out = Path(config.paths.data_dir) / "planner"
    return str(lay_out(job, out))
