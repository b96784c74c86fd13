"""Commands about results of runs: report, plot, lineage, reproduce, the champion, nights."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import FILE, FOLDER, Session, cli, command, ops
from slmsearch.foreign import one_line

if TYPE_CHECKING:
    from slmsearch.lineage.graph import Step
    from slmsearch.lineage.verify import Verified
    from slmsearch.serving.api.feedback import Feedback
    from tasks.lineage import Lineage

TOLD = {
    "source": ("kind", "world.pages", "world.seed", "count", "seed", "limit_pages", "split_seed"),
    "corpus": ("pages", "questions", "source.pages", "source.questions", "source.revision"),
    "index": ("passages", "max_passage_chars", "chunker_version", "recall"),
    "eval": ("policy", "n"),
    "model": ("path",),
    "training": ("steps", "packages.torch", "packages.trl"),
    "adapter": ("sha256",),
    "version": ("aliases", "run"),
    "run": ("stage", "status"),
}
"""Facts shown of each kind; `--json` has all of them."""
MAX_CHARS = 70


@command(cli, "report")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--output", type=FILE, help="File to write; default: reports/<run>.html in the MLflow directory.")
@click.option("--episodes", type=click.IntRange(min=0), help="Most episodes to show in the page; default: 1000.")
@click.option("--figure", type=FILE, metavar="FILE.png", help="Draw the training curves instead, as .png or .svg.")
def report(session: Session, runs: tuple[str, ...], output: Path | None, episodes: int | None, figure: Path | None) -> None:
    """Make one page of a run, or of several side by side.

    The page opens without a network. RUN is an MLflow run id (or its beginning), the name of a flow run, or `latest`. The page is also
    stored in the runs' artifacts in MLflow. --figure draws reward, right answers, tool calls, entropy, KL and held-out reward over the
    training as a picture, with several runs in the same axes, and makes no page.
    """
    from flows.runtime.links import short_path
    from tasks.runs import make_figure, make_page

    if figure is not None:
        if output is not None or episodes is not None:
            raise click.UsageError("--output and --episodes are for the page; leave them out with --figure")
        drawn = make_figure(runs, session.config.paths, session.config.tracking, figure)
        session.finish(drawn, f"{short_path(figure)} ({figure.stat().st_size / 1e3:.0f} kB)")
        return
    made = make_page(runs, session.config.paths, session.config.tracking, output, episodes)
    for warning in made["warnings"]:
        session.say(f"warning: {warning}")
    shown = "\n".join(f"  {run['name']}  {run['run_id'][:8]}  {run['decision']}".rstrip() for run in made["runs"])
    session.finish(made, f"{short_path(Path(made['page']))} ({made['bytes'] / 1e6:.1f} MB), in MLflow as {made['artifact']}\n{shown}")


@command(cli, "lineage")
@click.argument("target")
@click.option("--verify", "again", is_flag=True, help="Hash stored content again and list changes; exit code 1 if any.")
def lineage(session: Session, target: str, again: bool) -> None:
    """Show the recorded inputs and outputs of TARGET.

    Names everything TARGET was made from and everything made from it. TARGET is an adapter's directory, name/version, models:/name@alias, a
    content key of an index version, evaluation or training run, or an MLflow run id.
    """
    from tasks.lineage import read_tracked, trace

    found = trace(read_tracked(session.config.paths, session.config.tracking), target, again)
    session.finish(found.to_dict(), render(found), negative=bool(found.verified and found.verified.changes))


@command(cli, "corrections")
def corrections(session: Session) -> None:
    """List feedback on the service's answers.

    Also shows how it was used. A correct answer becomes a question for the next `slmsearch learn`: it is accepted if the answer stands in
    its section, the question finds that page, and no other question asks the same.
    """
    from slmsearch.serving.api.feedback import FeedbackLog
    from tasks.learn import corrections_learnt

    log = FeedbackLog(session.config.paths.feedback)
    given, states = log.read(), corrections_learnt(session.config.paths.learnt)
    if given.unreadable:
        session.say(f"{given.unreadable} of the lines in {log.path} are no records; a writer was killed")
    records = [{**asdict(record), "learnt": states.get(record.id)} for record in given.records]
    text = "\n\n".join(render_feedback(record, states.get(record.id)) for record in given.records)
    session.finish(
        {"log": str(log.path), "corrections": records, "unreadable": given.unreadable}, text or "nothing was said of an answer yet"
    )


@cli.group()
def dataset() -> None:
    """Make questions of traces that went wrong."""


@command(dataset, "from-traces")
@click.option("--name", default="wrong-answers", metavar="NAME", help="Name of the data set in MLflow; an existing one grows.")
@click.option("--out", type=FILE, metavar="FILE.jsonl", help="Also write those with a right answer to a file, for corpus.questions.")
def from_traces(session: Session, name: str, out: Path | None) -> None:
    """Make a data set of the questions that were answered wrongly.

    Takes the questions of the service whose answer a person called wrong, on the page, by POST /v1/feedback, or in MLflow (`correct` is
    false). The data set is one of MLflow's evaluation data sets; each question names its trace, and has the right answer if one was given.
    """
    from slmsearch.artifacts.files import replace_text
    from tasks.tracking import find_wrong, hash_questions, keep_questions, open_tracker

    if not re.fullmatch(r"[\w.-]+", name):
        raise click.UsageError(f"--name {name!r}: take letters, digits, '.', '_' and '-'")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    tracker = open_tracker(session.config.paths, session.config.tracking)
    wrong = find_wrong(tracker)
    kept, known = keep_questions(tracker, name, wrong), [one for one in wrong if one.answer is not None]
    rows = [{"id": one.trace_id, "question": one.question, "answer": one.answer, "source": "traces"} for one in known]
    if out is not None:
        replace_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    found = {"name": name, "dataset_id": kept, "digest": hash_questions(tracker, kept), "questions": len(wrong), "with_answer": len(known)}
    text = f"{name}: {len(wrong)} questions, {len(known)} with the right answer" + (f"\n{out}" if out else "")
    session.finish({**found, "file": str(out) if out else None}, text)


@command(ops, "reproduce")
@click.argument("version")
@click.option("--out", type=FOLDER, help="Where to run it; default: a new folder, removed when equal.")
def reproduce(session: Session, version: str, out: Path | None) -> None:
    """Repeat the run of a model version and compare.

    Runs the flow with its recorded settings in a data directory of its own.
    """
    from flows.ops.reproduce import render_comparison, reproduce_version

    found = reproduce_version(session.config, version, out, session.say)
    session.finish(asdict(found), render_comparison(found), negative=not found.same)


def render_feedback(given: "Feedback", state: str | None) -> str:
    """Render the feedback on one answer and its use."""
    when = datetime.fromtimestamp(given.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
    rows = [
        ("answered", given.answer or "nothing"),
        ("correct", given.correct_answer),
        ("source", given.source),
        ("within", given.within),
        ("learnt", state),
    ]
    lines = [f"  {name:<8}  {one_line(text)}" for name, text in rows if text]
    return "\n".join([f"{given.verdict:<5}  {when}  {one_line(given.question)}", *lines])


def render(lineage: "Lineage") -> str:
    """Render a lineage."""
    blocks = ["\n".join(_rows(lineage.up))]
    if lineage.down:
        blocks.append("\n".join(["made from it:", *_rows(lineage.down)]))
    if lineage.gaps:
        blocks.append("\n".join(["not known:", *(f"  {gap}" for gap in lineage.gaps)]))
    if lineage.verified is not None:
        blocks.append(_verified(lineage.verified))
    return "\n\n".join(blocks)


def _rows(steps: "Iterable[Step]") -> list[str]:
    rows = []
    for step in steps:
        kind, key = step.name
        facts = step.node.facts if step.node else {}
        told = [f"{name.rpartition('.')[2]} {facts[name][:MAX_CHARS]}" for name in TOLD.get(kind, ()) if facts.get(name)]
        told += [] if step.node or kind == "embedder" else ["not stored here"]
        label = f"{'  ' * step.depth}{kind}{' (' + step.role + ')' if step.role else ''}"
        rows.append(f"{label:<30} {key}  {', '.join(told)}".rstrip())
    return rows


def _verified(verified: "Verified") -> str:
    changes = verified.changes
    head = f"hashed again: {len(verified.checked)} things, {f'{len(changes)} not as recorded:' if changes else 'all as recorded'}"
    unchecked = (f"  not checked: {text}" for text in verified.unchecked)
    return "\n".join([head, *(f"  {change.describe()}" for change in changes), *unchecked])


@command(cli, "promote")
@click.argument("version")
@click.option("--reason", required=True, help="Why; recorded with the version.")
def promote(session: Session, version: str, reason: str) -> None:
    """Make VERSION the champion, by hand.

    VERSION is a number, or name/number. Comparisons are ignored.
    """
    from tasks.promotion import promote_by_hand

    event = promote_by_hand(session.config.paths, session.config.tracking, version, reason)
    before = f"in place of version {event.previous}" if event.previous else "the first one"
    told = f"{event.model}/{event.version} is champion, {before}"
    session.finish(asdict(event), told if event.at else f"{event.model}/{event.version} was champion already")


@command(cli, "rollback")
@click.option("--reason", required=True, help="Why; recorded with both versions.")
def rollback(session: Session, reason: str) -> None:
    """Make the previous champion the champion again."""
    from tasks.promotion import roll_back_by_hand

    event = roll_back_by_hand(session.config.paths, session.config.tracking, reason)
    session.finish(asdict(event), f"{event.model}/{event.version} is champion again, in place of version {event.previous}")


@command(cli, "nights")
@click.option("--accept", metavar="NIGHT", help="Accept a regressed night, by the beginning of its name, as reference.")
@click.option("--reason", help="Why; recorded with the night.")
def nights(session: Session, accept: str | None, reason: str | None) -> None:
    """List the nightly evaluations, newest first.

    Shows state, scores, and what fell.
    """
    from slmsearch.evaluate.nights import load_nights
    from slmsearch.report.night_tables import nights_table
    from tasks.nights import accept_night, nights_dir

    folder = nights_dir(session.config.paths, session.config.tracking)
    if accept is not None:
        from tasks.promotion import require_reason, who

        night = accept_night(folder, accept, require_reason(reason or ""), who())
        session.finish(night.to_dict(), f"night {night.night} is accepted: the next nights are compared with it")
        return
    found, odd = load_nights(folder)
    for line in odd:
        session.say(line)
    text = nights_table(found).to_text() if found else "no night yet; `slmsearch run nightly` makes one"
    session.finish({"nights": [night.to_dict() for night in found], "odd": odd}, text)
