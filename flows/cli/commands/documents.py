"""Commands for a user's own documents: show how they are read, ask a question, write questions to train on."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import ENGINE, FILE, Session, cli, command, option
from slmsearch.foreign import one_line

if TYPE_CHECKING:
    from slmsearch.made_questions.make import MadeQuestions
    from slmsearch.report.documents import SeenPage


@command(cli, "ask")
@click.argument("question")
@click.option("--policy", help="champion, untrained, retrieve-then-answer, a known name, a path, a Hub id, or openai:MODEL@URL.")
@ENGINE
def ask(session: Session, question: str, policy: str | None, engine: str) -> None:
    """Ask one question and show turns, answer and sources.

    The champion answers; before the first promotion the configured model does. Exit code 1 if there is no answer.
    """
    from flows.cli import asking
    from flows.stages.policy_choice import SearcherChoice

    text = one_line(question)
    if not text:
        raise click.UsageError("the question is empty")
    spec, _ = SearcherChoice(session.config, policy, session.say, engine).choose()
    indexed = asking.open_indexed_corpus(session)
    session.say(f"{text}\n")
    episode = asking.ask(text, spec, indexed, session)
    result = {"question": text, "policy": spec.name, **asking.describe_episode(episode, indexed.toolbox.library)}
    result |= {"data_digest": indexed.corpus_digest, "index_key": indexed.index_key}
    session.finish(result, "\n" + asking.render_end(episode, indexed.toolbox.library), negative=episode.answer is None)


@command(cli, "pages")
@click.argument("folder", type=click.Path())
def pages(session: Session, folder: str) -> None:
    """Show how your documents are read.

    Lists pages, suspicious ones first, and what was skipped or dropped and why. FOLDER is a folder of documents, or a file of pages. With
    --json it prints one object a page, a line each: id, title, path, metadata, sections.
    """
    session.override(corpus__pages=str(Path(folder).absolute()))
    seen, text = look_at_documents(session)
    session.finish_rows((page.row() for page in seen), text)


def look_at_documents(session: Session, most: int | None = None) -> "tuple[list[SeenPage], str]":
    """Read the configured pages, report skipped files, and return the pages and the notes about them."""
    from flows.cli.commands.corpus import render_findings
    from slmsearch.corpus.expectations import find_skipped
    from slmsearch.corpus.sources import load_pages
    from slmsearch.corpus.store import SOURCES
    from slmsearch.report.documents import SHOWN, look_at_pages, render_pages
    from tasks.progress import Progress

    with Progress("pages", "files") as progress:
        reading = load_pages(session.config.corpus, session.config.paths.corpora / SOURCES, progress)
    if reading.skipped:
        session.say(render_findings(find_skipped(reading.skipped)))
    seen = look_at_pages(reading.pages, reading.dropped)
    return seen, render_pages(reading, seen, SHOWN if most is None else most)


@command(cli, "questions")
@click.option("--from-corpus", is_flag=True, required=True, help="Make them from the configured pages, the only source yet.")
@click.option("--out", type=FILE, required=True, help="JSON lines file to write.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="Most questions to write; 0 writes all.")
@option("--two-hop", type=click.IntRange(min=0), default=0, help="Most further questions over two pages, one of which names the other.")
@option("--seed", type=int, default=0, help="Another seed takes other sentences and gaps.")
@option("--writer", help="Model that learnt to ask (learn.writer), in place of gaps.")
def questions(session: Session, from_corpus: bool, out: Path, limit: int, two_hop: int, seed: int, writer: str | None) -> None:
    """Write questions about your own pages.

    The questions are for training and measuring. Without a model they are sentences with a gap. A writer, or the judge's model
    if judge.kind is ollama or openai, replaces them; learn.questions mixes both. The command keeps a question if the index finds its
    section and the section holds its answer; a writer's question must also be answered as intended by a reader of its section.
    Exit code 1 if the result is not valid.
    """
    from flows.cli.commands.corpus import checked_corpus, render_findings
    from slmsearch.artifacts.files import replace_text
    from slmsearch.errors import CorpusError
    from slmsearch.made_questions.make import NONE_MADE

    session.override(corpus__questions="null", learn__writer=writer)
    made = _make_questions(session, limit, two_hop, seed)
    counts = {"made": made.made, "kept": made.kept, "dropped": made.dropped, **({"faults": made.faults} if made.faults else {})}
    told = [f"{name:<8}{', '.join(f'{n} {what}' for what, n in found.items()) or 'none'}" for name, found in counts.items()]
    if not made.rows:
        raise CorpusError(NONE_MADE.format(pages="these pages", why="; ".join(told)))
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.rows))
    report, _ = checked_corpus(session.config.corpus.changed({"questions": str(out.absolute())}), session.config.paths.corpora)
    session.say(render_findings(report.findings))
    result = {"out": str(out), "count": len(made.rows), **{name: getattr(made, name) for name in ("made", "kept", "dropped", "faults")}}
    result |= {"valid": report.ok, "findings": [asdict(finding) for finding in report.findings]}
    text = [*told, f"{len(made.rows)} questions in {out}: {'valid' if report.ok else 'not valid'}"]
    pages = f"--corpus.pages {shlex.quote(given)} " if (given := session.config.corpus.pages) else ""
    text += [f"next    slmsearch evaluate --policy retrieve-then-answer {pages}--corpus.questions {shlex.quote(str(out))}"]
    session.finish(result, "\n".join(text), negative=not report.ok)


def _make_questions(session: Session, limit: int, two_hop: int, seed: int) -> "MadeQuestions":
    """Make questions about the configured pages, of the configured kinds."""
    from flows.cli.asking import open_indexed_corpus
    from flows.runtime.fetching import require_writer
    from slmsearch.environments.writer.trained_writer import make_question_writer
    from slmsearch.made_questions.links import add_two_hop
    from slmsearch.made_questions.make import Filters, make_questions
    from tasks.progress import Progress

    config = session.config
    require_writer(config.learn, config.paths)
    writer = make_question_writer(config, seed)
    toolbox = open_indexed_corpus(session).toolbox
    filters = Filters(toolbox.library, toolbox.index, config.retrieval.top_k, limit)
    with Progress("questions", "pages") as progress:
        made = make_questions(filters, seed, writer, progress, kinds=config.learn.questions)
    if two_hop:
        with Progress("questions over two pages"):
            made = add_two_hop(made, filters, seed, two_hop)
    return made
