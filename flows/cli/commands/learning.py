"""Commands about policies: evaluate, train, bootstrap, compare."""

import re
import subprocess
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import FOLDER, LIVE, MISSING, Session, cli, command, option
from slmsearch.foreign import visible
from slmsearch.processes.processor import multiplies_bfloat16

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slmsearch.episodes.playable import Check


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only to type checkers
    """Parameter type for durations: `45s`, `30m`, `2h`; a bare number counts minutes."""

    name = "time"

    def convert(self, value: "str | float", param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no time; write 45s, 30m or 2h", param, ctx)
        return float(found[1]) * {"s": 1, "": 60, "m": 60, "h": 3600}[found[2]]


LARGER = ((22_000, "Qwen/Qwen2.5-3B-Instruct"), (11_000, "Qwen/Qwen2.5-1.5B-Instruct"))
"""GPU memory in MiB, and the model that `learn` takes at that size by default; none of it is measured."""
SHOWN_PAGES = 8
"""Pages that `learn` lists first."""


def largest_model() -> str | None:
    """Return the model for the GPU of this machine; None without a GPU, or if its memory is small."""
    try:
        shown = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        memory = int(shown.stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return next((model for least, model in LARGER if memory >= least), None)


@command(cli, "learn")
@click.argument("pages", type=click.Path())
@click.option("--budget", type=Duration(), help="Planned time, no hard limit; 0 uses the configured steps. [default: 30m]")
@click.option("--model", help="Model to train. [default: smollm2-135m-instruct; by memory on a GPU]")
@LIVE
def learn(session: Session, pages: str, budget: float | None, model: str | None, live: bool) -> None:
    """Train a searcher on your own documents.

    PAGES is a folder of documents, or a file of pages. The command makes questions about them, measures the untrained model, trains,
    compares, and promotes an improvement. Run it again after documents change, or after people correct answers: it continues from the
    champion. It runs on the worker of `slmsearch up` if one is up; with --live it runs in this process.
    """
    from flows.cli.commands.documents import look_at_documents
    from flows.cli.text import render_learnt

    own, suited = not session.may_set("policy.model"), dict[str, object]()
    if model is None and own and (model := largest_model()):
        suited = {"policy.dtype": "bfloat16", "train.gradient_checkpointing": True}
    elif own and multiplies_bfloat16():
        suited = {"policy.dtype": "bfloat16"}
    session.override(**{name.replace(".", "__"): value for name, value in suited.items() if not session.may_set(name)})
    session.begin_with("learn")
    session.override(corpus__pages=str(Path(pages).absolute()), learn__budget_s=budget, policy__model=model)
    session.say_where()
    session.say(look_at_documents(session, SHOWN_PAGES)[1])
    result = session.run("learn", here=False, live=live)
    session.finish(result, render_learnt(result, session.config.paths, session.config.decision), result.get("decision") == "reject")


@command(cli, "evaluate")
@click.option("--policy", help="champion, untrained, random, retrieve-then-answer, a known name, a path, a Hub id, or openai:MODEL@URL.")
@option("--split", choices=["train", "validation", "test", "all"], help="Questions to take.")
@click.option("--limit", type=click.IntRange(min=0), help="Take a seeded sample of this many questions; 0 takes all.")
@click.option("--twins", is_flag=True, help="Also evaluate unanswerable variants and report abstention.")
@click.option("--withdraw", is_flag=True, help="Also hide or replace the evidence and report changed answers.")
@click.option("--samples", type=click.IntRange(min=1), help="Also sample this many episodes a question: pass@k, majority@k.")
@click.option("--shots", type=click.IntRange(min=0), help="Show this many worked examples before each question.")
def evaluate(
    session: Session,
    policy: str | None,
    split: str | None,
    limit: int | None,
    twins: bool,
    withdraw: bool,
    samples: int | None,
    shots: int | None,
) -> None:
    """Evaluate one policy, by default the champion."""
    from flows.cli.text import render_evaluation

    asked = {"withdrawn": twins or withdraw, "renamed": twins, "replaced": withdraw}
    views = f"[whole, {', '.join(view for view, wanted in asked.items() if wanted)}]" if any(asked.values()) else None
    session.override(evaluate__policy=policy, evaluate__split=split, evaluate__limit=limit, evaluate__views=views)
    session.override(evaluate__samples=samples, evaluate__shots=shots)
    result = session.run("evaluate")
    session.finish(result, render_evaluation(result["policy"], result["key"], session.config.paths, result.get("trust")))


@command(cli, "train")
@LIVE
def train(session: Session, live: bool) -> None:
    """Train an adapter with GRPO, or resume a killed run.

    It compares and promotes nothing.
    """
    result = session.run("train", live=live)
    text = f"adapter {result['adapter']}\nversion {result['version']}, {result['steps']} steps in {result['seconds']:.0f} s"
    session.finish(result, f"{text}\nnext    {session.retype('evaluate', '--policy', result['adapter'])}")


@command(cli, "bootstrap")
@click.argument("environment", required=False)
@click.option("--out", type=FOLDER, help="Default: models/tiny-<ENVIRONMENT> in the data directory.")
def bootstrap(session: Session, environment: str | None, out: Path | None) -> None:
    """Train a tokenizer and a tiny model from scratch.

    Trains them for an environment (searcher, planner; default: the configured one) on generated data, in minutes on two cores.
    """
    from slmsearch.artifacts.directories import require_replaceable
    from slmsearch.environments.registry import environment_of
    from slmsearch.training.bootstrap import bootstrap as make
    from tasks.progress import Progress

    session.override(environment=environment)
    config = session.config
    if out is not None:
        require_replaceable(out)
    name = f"tiny-{environment_of(config).name}"
    target = out or Path(config.paths.data_dir) / "models" / (f"{name}-clean" if config.sft.recipe == "expert" else name)
    with Progress("bootstrap", "steps") as progress:
        facts = make(config, target, on_phase=progress.phase)
    text = f"{target}: {facts['parameters']:,} parameters, {facts['seconds'] / 60:.1f} minutes"
    session.finish({"model": str(target), **facts}, text)


@command(cli, "compare")
@click.argument("before")
@click.argument("after")
def compare(session: Session, before: str, after: str) -> None:
    """Compare two evaluations by question and decide.

    BEFORE and AFTER are evaluation keys, MLflow run ids, directories or rows.jsonl files. The command decides anew from the stored rows.
    Exit code 1 for `reject`.
    """
    from flows.cli.text import render_comparison
    from slmsearch.evaluate.compare import replay

    paths = [find_rows(session, name) for name in (before, after)]
    comparison = replay(paths[0], paths[1], session.config.decision)
    found = {**comparison.to_dict(), "before_rows": str(paths[0]), "after_rows": str(paths[1])}
    session.finish(found, render_comparison(comparison), negative=comparison.decision == "reject")


def find_rows(session: Session, name: str) -> Path:
    """Find the stored rows of an evaluation by key, path, or MLflow run.

    Raises:
        EvaluationError: no rows are stored under that name.
    """
    from slmsearch.errors import EvaluationError

    evals = session.config.paths.evals
    for path in (Path(name), evals / name):
        if path.exists():
            return path
    key = None
    if len(name) == 32:  # hexadecimal digits of an MLflow run id
        from tasks.tracking import open_tracker

        key = open_tracker(session.config.paths, session.config.tracking).find_tag(name, "slmsearch.eval_key")
    if key is None or not (evals / key).exists():
        raise EvaluationError(f"no evaluation {name!r}; give a key under {evals}, the MLflow run of an evaluation, or a rows.jsonl")
    return evals / key


@command(cli, "sft")
@option(
    "--from",
    "sources",
    choices=["demonstrations", "gold", "own", "beside"],
    default=["demonstrations"],
    multiple=True,
    help="Examples: episodes of generated worlds, episodes along the gold sections of the corpus, the model's own right episodes, or "
    "episodes along the gold sections of `sft.beside`. "
    "Repeat the option to mix them; `gold` after `own` holds only questions that the model never got right.",
)
@click.option("--out", type=FOLDER, required=True, help="Model directory to write.")
def sft(session: Session, sources: tuple[str, ...], out: Path) -> None:
    """Teach the policy's model to play from examples.

    Examples are scripted episodes, or the model's own right ones.
    """
    taught(session, sources, out)


def taught(session: Session, sources: "Sequence[str]", out: Path) -> None:
    """Teach the policy's model from examples of some sources, and report the result."""
    from flows.runtime.fetching import require_policy
    from slmsearch.artifacts.directories import require_replaceable
    from slmsearch.training.teach import train_start
    from tasks.progress import Progress

    require_replaceable(out)
    config = session.config
    require_policy(config.policy, config.paths)
    with Progress("SFT", "steps") as progress:
        facts = train_start(config, sources, out, session.say, partial(_tell_scores, session), progress.phase)
    session.finish({"model": str(out), **facts}, f"{out}: {facts['steps']} steps in {facts['seconds'] / 60:.1f} min")


def _tell_scores(session: Session, step: int, logs: dict[str, float]) -> None:
    if "held_out/correct" in logs:
        right, passed, k = logs["held_out/correct"], logs["held_out/pass_at_k"], session.config.evaluate.samples
        session.say(f"update {step}: held-out questions {right:.0%} right, {passed:.0%} in any of {k} samples")


@command(cli, "forecast")
@click.option("--history", is_flag=True, help="Show earlier forecasts beside what came of them.")
def forecast(session: Session, history: bool) -> None:
    """Forecast what GRPO would bring, before it is trained.

    Makes the supervised start, if one is configured, plays held-out questions with it, and compares with trainings that were measured. Exit
    code 1 if the training is not worth its time, 3 if that cannot be told.
    """
    from flows.cli.text import render_forecast, render_history

    if history:
        from tasks.forecasts import past_forecasts

        found = past_forecasts(session.config.paths, session.config.tracking)
        session.finish(found, render_history(found))
        return
    result = session.run("forecast")
    session.finish(result, render_forecast(result), negative=result["worth_it"] is False)
    if result["worth_it"] is None:
        raise SystemExit(MISSING)


@command(cli, "preflight")
def preflight(session: Session) -> None:
    """Check whether training could succeed.

    Checks memory, disk, tools, template, mask, judge and index, and plays a few episodes.
    """
    from flows.runtime.fetching import require_policy
    from slmsearch.training.preflight import preflight_here

    def tell(check: "Check") -> None:
        mark = click.style("ok  ", fg="green") if check.passed else click.style("FAIL", fg="red")
        remedy = "" if check.passed else f"\n     {check.remedy}"
        click.echo(f"{mark} {visible(f'{check.name:<14} {check.found}{remedy}')}", err=True)

    def show(tokens: "Iterable[tuple[str, bool]]") -> None:
        text = "".join(
            click.style(visible(text), fg="green" if trained else None, dim=None if trained else True) for text, trained in tokens
        )
        click.echo(f"one episode, what is trained on in green:\n{text}", err=True)

    require_policy(session.config.policy, session.config.paths)
    checks = preflight_here(session.config, tell, show)
    failed = [check for check in checks if not check.passed]
    result = {"passed": not failed, "checks": [asdict(check) for check in checks]}
    text = f"pre-flight failed: {failed[0].name}; {failed[0].remedy}" if failed else "ready to train"
    session.finish(result, text, negative=bool(failed))
