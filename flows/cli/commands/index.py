"""Commands about index versions: looking after them, sharing them, and measuring how well they find."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from flows.cli.commands.corpus import built_index, index
from flows.cli.session import Session, cli, command

if TYPE_CHECKING:
    from slmsearch.config import RunConfig


@command(index, "verify")
@click.argument("keys", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All versions; default: the current one.")
def verify(session: Session, keys: tuple[str, ...], every: bool) -> None:
    """Check files against their manifest and Chroma's graph against brute force; exit code 1 if a version is damaged."""
    from slmsearch.errors import IndexUnusableError
    from slmsearch.retrieval.upkeep import verify_version
    from slmsearch.retrieval.versions import current_key, list_versions
    from tasks.paths import index_dir

    config, home = session.config, index_dir(session.config)
    chosen = [version.key for version in list_versions(home)] if every else list(keys) or [key for key in [current_key(home)] if key]
    if not chosen:
        raise IndexUnusableError(f"no index version in {home}; build one with `slmsearch index build`")
    found: list[dict[str, Any]] = []
    for key in chosen:
        try:
            found.append({"key": key, "ok": True, "recall": verify_version(home, key, config.retrieval)})
        except IndexUnusableError as error:
            found.append({"key": key, "ok": False, "error": str(error)})
    lines = [f"ok       {row['key']}  recall {row['recall']:.3f}" if row["ok"] else f"damaged  {row['error']}" for row in found]
    session.finish({"versions": found}, "\n".join(lines), negative=not all(row["ok"] for row in found))


@command(index, "rollback")
@click.argument("key", required=False)
def rollback(session: Session, key: str | None) -> None:
    """Make the version that was current before, or KEY, the current one."""
    from slmsearch.retrieval.upkeep import roll_back
    from tasks.paths import index_dir

    before, after = roll_back(index_dir(session.config), key)
    session.finish({"before": before, "current": after}, f"current index version: {after} (before: {before or 'none'})")


@command(index, "prune")
@click.option("--keep", type=click.IntRange(min=0), default=1, show_default=True, help="Versions kept to go back to.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(session: Session, keep: int, dry_run: bool) -> None:
    """Remove versions that neither CURRENT, a promoted model, a live run nor a reader needs, and what killed builds left."""
    from slmsearch.retrieval import upkeep
    from tasks.paths import index_dir
    from tasks.retention import index_keys_in_use

    config = session.config
    found = upkeep.prune(index_dir(config), config.retrieval, index_keys_in_use(config), keep, dry_run)
    word = "would go" if dry_run else "removed"
    lines = [f"{word if row.goes else 'kept':<9} {row.name}  {row.size / 1e6:>9.1f} MB  {row.reason}" for row in found]
    lines.append(f"{word}: {sum(row.size for row in found if row.goes) / 1e6:.1f} MB")
    session.finish({"versions": [asdict(removal) for removal in found], "dry_run": dry_run}, "\n".join(lines))


@command(index, "push")
@click.argument("url")
@click.argument("key", required=False)
def push(session: Session, url: str, key: str | None) -> None:
    """Copy a version (default: the current one) to URL: a folder, or what fsspec opens, as s3://bucket/indexes."""
    from slmsearch.errors import IndexUnusableError
    from slmsearch.retrieval.upkeep import push_version
    from slmsearch.retrieval.versions import current_key
    from tasks.paths import index_dir

    home = index_dir(session.config)
    key = key or current_key(home)
    if key is None:
        raise IndexUnusableError(f"no index version in {home}; build one with `slmsearch index build`")
    new = push_version(home, key, url)
    session.finish({"key": key, "url": url, "copied": new}, f"{key} {'copied to' if new else 'is already at'} {url}")


@command(index, "pull")
@click.argument("url")
@click.argument("key")
def pull(session: Session, url: str, key: str) -> None:
    """Copy version KEY from URL, check it, and make it the current one."""
    from slmsearch.retrieval.upkeep import pull_version
    from slmsearch.retrieval.versions import set_current
    from tasks.paths import index_dir

    home = index_dir(session.config)
    new = pull_version(home, key, url)
    set_current(home, key)
    session.finish({"key": key, "url": url, "copied": new}, f"{key} {'copied from ' + url if new else 'was here already'}; it is current")


@command(cli, "retrieval-report")
@click.option(
    "--split", type=click.Choice(["all", "train", "validation", "test"]), default="all", show_default=True, help="Questions to search for."
)
@click.option("--limit", type=click.IntRange(min=0), default=0, help="Size of a random sample of them; 0 takes all.")
def report(session: Session, split: str, limit: int) -> None:
    """Measure where gold pages and sections are found: BM25, embeddings, and both fused; logged to MLflow."""
    from slmsearch.evaluate.retrieval import RETRIEVERS, measure_ranks, summarise_ranks
    from slmsearch.keys import content_key
    from slmsearch.report.retrieval import render_retrieval
    from tasks.progress import Progress
    from tasks.record import record_retrieval

    config = session.config
    opened, questions = searched_corpus(config, split, limit)
    ranks = {}
    with Progress("retrieval", "questions") as progress:
        for i, name in enumerate(RETRIEVERS):
            whole = partial(_shown, progress, len(questions) * i, len(questions) * len(RETRIEVERS))
            ranks[name] = measure_ranks(opened, questions, name, whole)
    result = summarise_ranks(ranks, config.decision.alpha, config.decision.seed)
    result |= {"index_key": opened.key, "split": split, "questions_key": content_key(ids=[question.id for question in questions])}
    text = render_retrieval(result)
    run_id = record_retrieval(result, text, config)
    session.finish({**result, "mlflow_run_id": run_id}, text)


def _shown(progress: Callable[[int, int], None], before: int, total: int, done: int) -> None:
    progress(before + done, total)


def searched_corpus(config: "RunConfig", split: str, limit: int) -> tuple[Any, Any]:
    """Build or find the index of the configured corpus, open it, and choose questions."""
    from slmsearch.corpus.store import build_corpus, load_corpus
    from slmsearch.errors import CorpusError
    from slmsearch.evaluate.retrieval import choose_questions
    from slmsearch.retrieval.search import open_index
    from tasks.paths import corpora_dir, index_dir

    digest = build_corpus(config.corpus, corpora_dir(config))
    by_split = load_corpus(corpora_dir(config), digest).questions
    questions = [question for name, found in by_split.items() if split in ("all", name) for question in found]
    chosen = choose_questions(questions, limit, config.evaluate.seed)
    if not chosen:
        raise CorpusError("no question of this corpus names its page; give corpus.questions with page_ids")
    key = built_index(digest, config)["key"]
    return open_index(index_dir(config), key, config.retrieval), chosen
