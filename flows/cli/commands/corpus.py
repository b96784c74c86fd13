"""Commands about data: setup, world, validate, index, search."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.cli.session import Session, cli, command
from slmsearch.foreign import one_line

if TYPE_CHECKING:
    from slmsearch.config import RunConfig
    from slmsearch.corpus.documents.skipped import Skipped


SHOWN_IDS = 5
"""Failing rows named on the terminal; the rest are in the MLflow and Prefect tables of a flow run."""


@command(cli, "setup")
@click.option("--data-dir", help="Where corpora, models and index versions go; also DATA_DIR.")
@click.option("--skip-index", is_flag=True, help="Only fetch and validate.")
@click.option("--sandbox-only", is_flag=True, help="Only prepare the sandbox for model-written programs.")
def setup(session: Session, data_dir: str | None, skip_index: bool, sandbox_only: bool) -> None:
    """Fetch the configured sources, validate them and build the index."""
    if sandbox_only:
        session.finish(
            {"sandbox": None}, "Nothing to prepare: `slmsearch sandbox up` starts it, `slmsearch sandbox test` tries its layers."
        )
        return
    session.override(paths__data_dir=data_dir)
    digest, report = checked_corpus(session.config)
    session.say(render_findings(report))
    result: dict[str, Any] = {"data_digest": digest, "valid": report["ok"], **{name: report[name] for name in ("findings", "skipped")}}
    lines = [f"corpus  {digest} in {Path(session.config.paths.data_dir) / 'corpora' / digest}"]
    if report["ok"] and not skip_index:
        result["index"] = built_index(digest, session.config)
        lines.append(f"index   {result['index']['key']}: {result['index']['pages']} pages, {result['index']['passages']} passages")
        lines.append("next    slmsearch search 'a query'; slmsearch run train-and-eval")
    session.finish(result, "\n".join(lines), negative=not report["ok"])


@command(cli, "world")
@click.option("--pages", type=click.IntRange(min=40), help="Pages to write.")
@click.option("--seed", type=int, help="Seed of names, facts, wording and questions.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write to.")
def world(session: Session, pages: int | None, seed: int | None, out: Path) -> None:
    """Write a fictional encyclopedia: pages.jsonl and questions.jsonl."""
    from slmsearch.corpus.world import write_world
    from tasks.progress import Progress

    session.override(corpus__world__pages=pages, corpus__world__seed=seed)
    wanted = session.config.corpus.world
    with Progress("world", "pages") as progress:
        write_world(wanted, out, progress)
    paths = {name: str(out / f"{name}.jsonl") for name in ("pages", "questions")}
    flags = " ".join(f"--corpus.{name} {path}" for name, path in paths.items())
    text = f"{wanted.pages} pages of seed {wanted.seed} in {out}\nnext    slmsearch validate {flags}"
    session.finish({"num_pages": wanted.pages, "seed": wanted.seed, **paths}, text)


@command(cli, "validate")
def validate(session: Session) -> None:
    """Check pages and questions; exit code 1 if anything critical is found."""
    digest, report = checked_corpus(session.config)
    verdict = "valid" if report["ok"] else "not valid"
    session.finish({"data_digest": digest, **report}, f"{render_findings(report)}\ncorpus {digest}: {verdict}", negative=not report["ok"])


@cli.group()
def index() -> None:
    """Build index versions and look after them."""


@command(index, "build")
def index_build(session: Session) -> None:
    """Build the index version of the configured corpus, or find it, and make it the current one."""
    from slmsearch.corpus.expectations import find_skipped
    from slmsearch.corpus.store import build_corpus
    from tasks.paths import corpora_dir

    skipped: list[Skipped] = []
    digest = build_corpus(session.config.corpus, corpora_dir(session.config), skipped)
    if skipped:
        session.say(render_findings({"findings": [asdict(finding) for finding in find_skipped(skipped)]}))
    built = {**built_index(digest, session.config), "skipped": [asdict(item) for item in skipped]}
    session.finish(built, f"index {built['key']}: {built['pages']} pages, {built['passages']} passages, recall {built['recall']:.3f}")


@command(index, "list")
def index_list(session: Session) -> None:
    """List index versions; the current one is marked."""
    from slmsearch.retrieval.versions import current_key, list_versions
    from tasks.paths import index_dir

    current = current_key(index_dir(session.config))
    facts = ("key", "pages", "passages", "embedder_id", "embedded", "base", "recall")
    found = [{**{name: getattr(v, name) for name in facts}, "current": v.key == current} for v in list_versions(index_dir(session.config))]
    counts = "{key}  {pages:>8} pages {passages:>8} passages  {embedder_id}"
    rows = [("* " if version["current"] else "  ") + counts.format(**version) for version in found]
    session.finish({"versions": found, "current": current}, "\n".join(rows) or "no index version yet; slmsearch index build")


@command(cli, "search")
@click.argument("query")
@click.option("--top-k", type=click.IntRange(1, 50), help="Pages to show.")
@click.option("--index", "key", help="Index version; default: that of the configured corpus, else the current one.")
@click.option("--ranking", type=click.Choice(["hybrid", "dense", "lexical"]), help="Default: retrieval.ranking.")
@click.option("--within", default="", help="Only pages whose id begins so, as `guides/`.")
def search(session: Session, query: str, top_k: int | None, key: str | None, ranking: str | None, within: str) -> None:
    """Search the index as the agent's first tool does."""
    from slmsearch.retrieval.search import open_index
    from tasks.paths import index_dir

    session.override(retrieval__top_k=top_k, retrieval__ranking=ranking)
    config = session.config
    # Bytes that are no UTF-8 come from the shell as halves of surrogate pairs, which no tokenizer takes.
    query = query.encode("utf-8", "replace").decode()
    opened = open_index(index_dir(config), key or _configured_index(config), config.retrieval)
    hits = opened.search([query], config.retrieval.top_k, within=within)[0]
    rows = [f"{hit.score:.3f}  {one_line(hit.page_id)}: {one_line(hit.title)}  ({one_line(hit.section_id)})" for hit in hits]
    session.finish({"query": query, "index_key": opened.key, "hits": [asdict(hit) for hit in hits]}, "\n".join(rows) or "no pages found")


def checked_corpus(config: "RunConfig") -> tuple[str, dict[str, Any]]:
    """Materialise and check the configured corpus; return digest and report, with all files that were not taken as `skipped`."""
    from slmsearch.corpus.expectations import find_skipped, validate_corpus
    from slmsearch.corpus.store import build_corpus
    from tasks.paths import corpora_dir

    skipped: list[Skipped] = []
    digest = build_corpus(config.corpus, corpora_dir(config), skipped)
    report = asdict(validate_corpus(corpora_dir(config) / digest))
    report["findings"] = [*report["findings"], *(asdict(finding) for finding in find_skipped(skipped))]
    return digest, {**report, "skipped": [asdict(item) for item in skipped]}


def built_index(digest: str, config: "RunConfig") -> dict[str, Any]:
    """Build or find the index version of a corpus."""
    from slmsearch.retrieval.build import build_index
    from slmsearch.retrieval.versions import read_version
    from tasks.paths import corpora_dir, index_dir
    from tasks.progress import Progress

    with Progress("index", "passages") as progress:
        key = build_index(corpora_dir(config) / digest, index_dir(config), config.retrieval, progress)
    return asdict(read_version(index_dir(config), key))


def render_findings(report: dict[str, Any]) -> str:
    """Render findings as lines, critical ones first."""
    order = ("critical", "warning", "info")
    found = sorted(report["findings"], key=lambda finding: order.index(finding["severity"]))
    lines = []
    for finding in found:
        ids = ", ".join(one_line(str(found)) for found in finding["sample_ids"][:SHOWN_IDS])
        more = f" and {finding['failed'] - SHOWN_IDS} more" if finding["failed"] > SHOWN_IDS else ""
        count = f"{finding['failed']} file{'s'[: finding['failed'] > 1]} " if finding["column"] == "file" else ""
        lines.append(f"{finding['severity']:<9} {finding['table']}: {count}{finding['message']}" + (f"  [{ids}{more}]" if ids else ""))
    return "\n".join(lines) or "no findings"


def _configured_index(config: "RunConfig") -> str:
    from slmsearch.config import CorpusConfig
    from slmsearch.corpus.store import build_corpus
    from slmsearch.environments.indexed_corpus import name_index
    from slmsearch.errors import IndexUnusableError
    from slmsearch.retrieval.versions import current_key
    from tasks.paths import corpora_dir, index_dir

    if config.corpus != CorpusConfig():
        return name_index(config, build_corpus(config.corpus, corpora_dir(config)))
    current = current_key(index_dir(config))
    if current is None:
        raise IndexUnusableError(f"no index version in {index_dir(config)}; build one with `slmsearch setup`")
    return current
