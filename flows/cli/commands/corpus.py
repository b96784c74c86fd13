"""Commands about data and index versions: setup, world, validate, index, search, retrieval-report."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import FOLDER, Session, cli, command, option
from slmsearch.foreign import one_line

if TYPE_CHECKING:
    from slmsearch.config import CorpusConfig, PathsConfig, RetrievalConfig
    from slmsearch.corpus.data_report import DataFinding, DataReport
    from slmsearch.corpus.documents.skipped import Skipped
    from slmsearch.corpus.library import Library
    from slmsearch.corpus.questions import Question
    from slmsearch.retrieval.search import SearchIndex
    from slmsearch.retrieval.versions import IndexManifest


SHOWN_IDS = 5
"""Failing rows named on the terminal; the MLflow and Prefect tables of a flow run hold the rest."""


@command(cli, "setup")
@click.option("--data-dir", help="Where corpora, models and index versions go; also DATA_DIR.")
@click.option("--skip-index", is_flag=True, help="Only fetch and validate.")
@click.option("--sandbox-only", is_flag=True, help="Only prepare the sandbox for model-written programs.")
def setup(session: Session, data_dir: str | None, skip_index: bool, sandbox_only: bool) -> None:
    """Fetch the sources, validate them, build the index."""
    if sandbox_only:
        told = "Nothing to prepare: `slmsearch sandbox up` starts it, `slmsearch sandbox test` tries its layers."
        session.finish({"sandbox": None}, told)
        return
    session.override(paths__data_dir=data_dir)
    report, skipped = checked_corpus(session.config.corpus, session.config.paths.corpora)
    session.say(render_findings(report.findings))
    result: dict[str, object] = {"data_digest": report.digest, "valid": report.ok}
    result |= {"findings": [asdict(finding) for finding in report.findings], "skipped": skipped}
    lines = [f"corpus  {report.digest} in {Path(session.config.paths.data_dir) / 'corpora' / report.digest}"]
    if report.ok and not skip_index:
        built = built_index(report.digest, session.config.paths, session.config.retrieval)
        result["index"] = asdict(built)
        lines.append(f"index   {built.key}: {built.pages} pages, {built.passages} passages")
        lines.append(f"next    {session.retype('search', 'a query')}; {session.retype('run', 'train-and-eval')}")
    session.finish(result, "\n".join(lines), negative=not report.ok)


@command(cli, "world")
@click.option("--pages", type=click.IntRange(min=40), help="Pages to write.")
@click.option("--seed", type=int, help="Seed of names, facts, wording and questions.")
@click.option("--out", type=FOLDER, required=True, help="Folder to write to.")
def world(session: Session, pages: int | None, seed: int | None, out: Path) -> None:
    """Write a fictional encyclopedia and its questions.

    The files are pages.jsonl and questions.jsonl.
    """
    from slmsearch.corpus.world import write_world
    from tasks.progress import Progress

    session.override(corpus__world__pages=pages, corpus__world__seed=seed)
    wanted = session.config.corpus.world
    with Progress("world", "pages") as progress:
        write_world(wanted, out, progress)
    paths = {name: str(out / f"{name}.jsonl") for name in ("pages", "questions")}
    flags = shlex.join(word for name, path in paths.items() for word in (f"--corpus.{name}", path))
    text = f"{wanted.pages} pages of seed {wanted.seed} in {out}\nnext    slmsearch validate {flags}"
    session.finish({"num_pages": wanted.pages, "seed": wanted.seed, **paths}, text)


@command(cli, "validate")
def validate(session: Session) -> None:
    """Check pages and questions.

    Exit code 1 if there is a critical finding.
    """
    report, skipped = checked_corpus(session.config.corpus, session.config.paths.corpora)
    text = f"{render_findings(report.findings)}\ncorpus {report.digest}: {'valid' if report.ok else 'not valid'}"
    session.finish({"data_digest": report.digest, "ok": report.ok, **asdict(report), "skipped": skipped}, text, negative=not report.ok)


@cli.group()
def index() -> None:
    """Build, check, copy and list index versions."""


@command(index, "build")
def index_build(session: Session) -> None:
    """Build the index version of the configured corpus.

    Reuses a version that exists, and makes it the current one.
    """
    from slmsearch.corpus.expectations import find_skipped
    from slmsearch.corpus.store import build_corpus
    from tasks.progress import Progress

    skipped: list[Skipped] = []
    with Progress("corpus", "files") as progress:
        digest = build_corpus(session.config.corpus, session.config.paths.corpora, skipped, progress)
    if skipped:
        session.say(render_findings(find_skipped(skipped)))
    built = built_index(digest, session.config.paths, session.config.retrieval)
    text = f"index {built.key}: {built.pages} pages, {built.passages} passages, recall {built.recall:.3f}"
    session.finish({**asdict(built), "skipped": [asdict(item) for item in skipped]}, text)


@command(index, "list")
def index_list(session: Session) -> None:
    """List index versions and mark the current one."""
    from slmsearch.retrieval.versions import current_key, list_versions

    current = current_key(session.config.paths.index)
    facts = ("key", "pages", "passages", "embedder_id", "embedded", "base", "recall")
    found = [{**{name: getattr(v, name) for name in facts}, "current": v.key == current} for v in list_versions(session.config.paths.index)]
    counts = "{key}  {pages:>8} pages {passages:>8} passages  {embedder_id}"
    rows = [("* " if version["current"] else "  ") + counts.format(**version) for version in found]
    session.finish({"versions": found, "current": current}, "\n".join(rows) or "no index version yet; slmsearch index build")


@command(cli, "search")
@click.argument("query")
@click.option("--top-k", type=click.IntRange(1, 50), help="Pages to show.")
@click.option("--index", "key", help="Index version; default: that of the configured corpus, else the current one.")
@option("--ranking", choices=["hybrid", "dense", "lexical"], help="Ranking; default: retrieval.ranking.")
@click.option("--within", default="", help="Only pages whose id begins with this, such as `guides/`.")
def search(session: Session, query: str, top_k: int | None, key: str | None, ranking: str | None, within: str) -> None:
    """Search the index as the searcher's first tool does."""
    from slmsearch.retrieval.search import open_index

    session.override(retrieval__top_k=top_k, retrieval__ranking=ranking)
    config = session.config
    # Bytes that are no UTF-8 come from the shell as halves of surrogate pairs, which no tokenizer takes.
    query = query.encode("utf-8", "replace").decode()
    opened = open_index(config.paths.index, key or _configured_index(session), config.retrieval)
    hits = opened.search([query], config.retrieval.top_k, within=within)[0]
    rows = [f"{hit.score:.3f}  {one_line(hit.page_id)}: {one_line(hit.title)}  ({one_line(hit.section_id)})" for hit in hits]
    session.finish({"query": query, "index_key": opened.key, "hits": [asdict(hit) for hit in hits]}, "\n".join(rows) or "no pages found")


def checked_corpus(corpus: "CorpusConfig", corpora: Path) -> "tuple[DataReport, list[dict[str, object]]]":
    """Materialise and check a corpus; return the report and all files that were skipped."""
    from slmsearch.corpus.expectations import find_skipped, validate_corpus
    from slmsearch.corpus.store import build_corpus
    from tasks.progress import Progress

    skipped: list[Skipped] = []
    with Progress("corpus", "files") as progress:
        digest = build_corpus(corpus, corpora, skipped, progress)
    report = validate_corpus(corpora / digest)
    return replace(report, findings=(*report.findings, *find_skipped(skipped))), [asdict(item) for item in skipped]


def built_index(digest: str, paths: "PathsConfig", retrieval: "RetrievalConfig") -> "IndexManifest":
    """Build or find the index version of a corpus."""
    from slmsearch.retrieval.build import build_index
    from slmsearch.retrieval.versions import read_version
    from tasks.progress import Progress

    with Progress("index", "passages") as progress:
        key = build_index(paths.corpora / digest, paths.index, retrieval, progress)
    return read_version(paths.index, key)


def render_findings(findings: "Sequence[DataFinding]") -> str:
    """Render findings as lines, critical ones first."""
    order = ("critical", "warning", "info")
    lines = []
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        ids = ", ".join(one_line(str(found)) for found in finding.sample_ids[:SHOWN_IDS])
        more = f" and {finding.failed - SHOWN_IDS} more" if finding.failed > SHOWN_IDS else ""
        count = f"{finding.failed} file{'s'[: finding.failed > 1]} " if finding.column == "file" else ""
        lines.append(f"{finding.severity:<9} {finding.table}: {count}{finding.message}" + (f"  [{ids}{more}]" if ids else ""))
    return "\n".join(lines) or "no findings"


def current_index(home: Path) -> str:
    """Return the key of the current index version.

    Raises:
        IndexUnusableError: no version is current.
    """
    from slmsearch.errors import IndexUnusableError
    from slmsearch.retrieval.versions import current_key

    current = current_key(home)
    if current is None:
        raise IndexUnusableError(f"no index version in {home}; build one with `slmsearch setup` or `slmsearch index build`")
    return current


def _configured_index(session: Session) -> str:
    from slmsearch.config import CorpusConfig
    from slmsearch.corpus.store import build_corpus
    from slmsearch.environments.searcher.indexed_corpus import name_index

    config = session.config
    if config.corpus == CorpusConfig():
        return current_index(config.paths.index)
    return name_index(build_corpus(config.corpus, config.paths.corpora), config.paths, config.retrieval)


@command(index, "verify")
@click.argument("keys", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Check all versions; default: the current one.")
def verify(session: Session, keys: tuple[str, ...], every: bool) -> None:
    """Check the files and the graph of index versions.

    Compares files with their manifest and Chroma's graph with brute force. Exit code 1 if a version is damaged.
    """
    from slmsearch.errors import IndexUnusableError
    from slmsearch.retrieval.upkeep import verify_version
    from slmsearch.retrieval.versions import list_versions

    config, home = session.config, session.config.paths.index
    stored = [version.key for version in list_versions(home)] if every else []
    found: list[dict[str, object]] = []
    lines = []
    for key in stored or keys or [current_index(home)]:
        try:
            recall = verify_version(home, key, config.retrieval)
            found.append({"key": key, "ok": True, "recall": recall})
            lines.append(f"ok       {key}  recall {recall:.3f}")
        except IndexUnusableError as error:
            found.append({"key": key, "ok": False, "error": str(error)})
            lines.append(f"damaged  {error}")
    session.finish({"versions": found}, "\n".join(lines), negative=not all(row["ok"] for row in found))


@command(index, "rollback")
@click.argument("key", required=False)
def rollback(session: Session, key: str | None) -> None:
    """Make the previous index version, or KEY, current."""
    from slmsearch.retrieval.upkeep import roll_back

    before, after = roll_back(session.config.paths.index, key)
    session.finish({"before": before, "current": after}, f"current index version: {after} (before: {before or 'none'})")


@command(index, "push")
@click.argument("url")
@click.argument("key", required=False)
def push(session: Session, url: str, key: str | None) -> None:
    """Copy an index version to URL.

    KEY defaults to the current version. URL is a folder or an address that fsspec opens, such as s3://bucket/indexes.
    """
    from slmsearch.retrieval.upkeep import push_version

    home = session.config.paths.index
    key = key or current_index(home)
    new = push_version(home, key, url)
    session.finish({"key": key, "url": url, "copied": new}, f"{key} {'copied to' if new else 'is already at'} {url}")


@command(index, "pull")
@click.argument("url")
@click.argument("key")
def pull(session: Session, url: str, key: str) -> None:
    """Copy index version KEY from URL, check it, use it.

    The copy becomes the current version.
    """
    from slmsearch.retrieval.upkeep import pull_version
    from slmsearch.retrieval.versions import set_current

    home = session.config.paths.index
    new = pull_version(home, key, url)
    set_current(home, key)
    session.finish({"key": key, "url": url, "copied": new}, f"{key} {'copied from ' + url if new else 'was here already'}; it is current")


@command(cli, "retrieval-report")
@option("--split", choices=["all", "train", "validation", "test"], default="all", help="Questions to search for.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="Size of a random sample of them; 0 takes all.")
def report(session: Session, split: str, limit: int) -> None:
    """Measure where search finds gold pages and sections.

    Compares BM25, embeddings, and both fused; logs to MLflow. For questions with several gold pages it also reports how often search finds
    all of them. For each form of the model's search (searcher.shows) it reports how often the first one, with the question's own words,
    shows all gold pages, the text of all gold sections, and the answer. Figures come by number of hops, source and kind of question, each
    with its number of questions. Questions without an answer are left out and counted.
    """
    from slmsearch.environments.searcher.tools import Toolbox
    from slmsearch.evaluate.retrieval import FORMS, RETRIEVERS, measure_ranks, measure_shown, summarise_ranks, summarise_shown
    from slmsearch.keys import content_key
    from slmsearch.report.tables import render_retrieval
    from tasks.progress import Progress

    config = session.config  # prepares the process environment for MLflow, before it is imported
    from tasks.record import record_retrieval
    from tasks.tracking import open_tracker

    opened, library, questions, left_out = searched_corpus(session, split, limit)
    top_k, limits = config.retrieval.top_k, config.searcher
    ranks, shown = {}, {}
    with Progress("retrieval", "questions") as progress:
        for i, name in enumerate(RETRIEVERS):
            ranks[name] = measure_ranks(opened, questions, name, partial(_advance, progress, i, len(questions)))
        for i, name in enumerate(FORMS, len(RETRIEVERS)):
            tools = Toolbox(library, opened, top_k, limits.max_section_chars, shows=name, missing_names=limits.missing_names)
            shown[name] = measure_shown(tools, questions, partial(_advance, progress, i, len(questions)))
    result = summarise_ranks(ranks, config.decision.alpha, config.decision.seed)
    result |= {
        "first_search": {"top_k": top_k, "max_section_chars": limits.max_section_chars, **summarise_shown(shown, config.decision.alpha)},
        "left_out": left_out,
        "index_key": opened.key,
        "split": split,
        "questions_key": content_key(ids=[question.id for question in questions]),
    }
    text = render_retrieval(result)
    run_id = record_retrieval(open_tracker(config.paths, config.tracking), result, text)
    session.finish({**result, "mlflow_run_id": run_id}, text)


def _advance(progress: Callable[[int, int], None], i: int, count: int, done: int) -> None:
    progress(i * count + done, 6 * count)


def searched_corpus(session: Session, split: str, limit: int) -> "tuple[SearchIndex, Library, list[Question], dict[str, int]]":
    """Build or find the index of the configured corpus, open both, and choose questions; also return the number left out by reason."""
    from slmsearch.corpus.library import Library
    from slmsearch.corpus.store import build_corpus, load_questions, read_pages
    from slmsearch.errors import CorpusError
    from slmsearch.evaluate.retrieval import choose_questions
    from slmsearch.retrieval.search import open_index

    config = session.config
    digest = build_corpus(config.corpus, config.paths.corpora)
    by_split = load_questions(config.paths.corpora, digest)
    questions = [question for name, found in by_split.items() if split in ("all", name) for question in found]
    chosen, left_out = choose_questions(questions, limit, config.evaluate.seed)
    if not chosen:
        raise CorpusError("no question of this corpus has an answer and names its page; give corpus.questions with page_ids")
    opened = open_index(config.paths.index, built_index(digest, config.paths, config.retrieval).key, config.retrieval)
    return opened, Library(read_pages(config.paths.corpora / digest)), chosen, left_out
