"""Commands about the sandbox for programs that a model wrote: `slmsearch sandbox ...`."""

import sys
from dataclasses import asdict
from typing import Any

import click

from flows.cli.session import Session, cli, command

PARTS = ("escapes", "tools", "scripted")


@cli.group("sandbox")
def sandbox() -> None:
    """Run programs that the searcher wrote, behind isolation layers (`searcher.programs`)."""


@command(sandbox, "up")
@click.option("--foreground", is_flag=True, help="Serve in this process until Ctrl-C.")
@click.option("--from-stdin", is_flag=True, hidden=True, help="Take the settings from standard input.")
def up(session: Session, foreground: bool, from_stdin: bool) -> None:
    """Start the sandbox server in the background and wait until it answers."""
    from flows.ops.sandbox import read_settings, serve_here, start_sandbox

    if foreground:
        serve_here(read_settings(sys.stdin) if from_stdin else session.config)
        session.finish({"stopped": True}, "stopped")
        return
    record = start_sandbox(session.config, session.say)
    session.finish(asdict(record), f"sandbox {record.address} ({record.engine}, process {record.pid}); `slmsearch sandbox down` stops it")


@command(sandbox, "down")
def down(session: Session) -> None:
    """Stop the sandbox server."""
    from flows.ops.sandbox import stop_sandbox

    record = stop_sandbox(session.config)
    session.finish({"stopped": record is not None}, f"stopped process {record.pid}" if record else "no sandbox was up")


@command(sandbox, "test")
@click.option("--only", "parts", type=click.Choice(PARTS), multiple=True, help="Default: all three.")
def test(session: Session, parts: tuple[str, ...]) -> None:
    """Try to break out, then check tools and embedder through a live server; exit code 1 if anything does not hold.

    Every escape is also tried without the layers that stop it, where it must succeed.
    """
    from slmsearch.sandbox.checks import render_findings
    from slmsearch.sandbox.suite import has_passed, render_result

    result: dict[str, Any] = {}
    texts, passed = [], True
    for part in parts or PARTS:
        if part == "escapes":
            result |= run_escapes(session)
            passed = passed and has_passed(result)
            texts.append(render_result(result))
        else:
            findings = check_corpus_tools(session) if part == "tools" else check_scripted_tools(session)
            passed = passed and all(finding.passed for finding in findings)
            result[part] = [asdict(finding) for finding in findings]
            texts.append(f"{part}\n{render_findings(findings)}")
    session.finish({"passed": passed, **result}, "\n\n".join(texts), negative=not passed)


def run_escapes(session: Session) -> dict[str, Any]:
    """Run the escape suite on the configured engine."""
    from flows.cli.settings import find_project_root
    from flows.ops.sandbox import COMPOSE_FILE, state_dir
    from slmsearch.sandbox.engines import make_engine
    from slmsearch.sandbox.suite import LIMITS, run_suite

    config = session.config
    settings = config.sandbox.model_copy(update={"limits": LIMITS})
    engine = make_engine(settings, state_dir(config), find_project_root() / COMPOSE_FILE)
    return run_suite(state_dir(config), engine=engine, say=session.say)


def check_corpus_tools(session: Session) -> list[Any]:
    """Check the configured corpus, or a small world, through the server that is up, or one of its own."""
    from flows.ops.sandbox import small_world, some_sandbox
    from slmsearch.environments.indexed_corpus import open_indexed_corpus
    from slmsearch.sandbox.checks import check_tools
    from slmsearch.sandbox.sessions import IndexedCorpus
    from slmsearch.sandbox.token import with_token

    config = small_world(session.config)
    opened = open_indexed_corpus(config)
    indexed = IndexedCorpus(opened.corpus_digest, opened.index_key, config.retrieval.top_k)
    with some_sandbox(session.config, session.say) as address:
        return check_tools(with_token(config).model_copy(update={"base_url": address}), indexed, opened.toolbox)


def check_scripted_tools(session: Session) -> list[Any]:
    """Check a server with scripted tools, in this process."""
    from flows.cli.settings import find_project_root
    from flows.ops.sandbox import COMPOSE_FILE, state_dir
    from slmsearch.sandbox.checks import check_scripted
    from slmsearch.sandbox.engines import make_engine
    from slmsearch.sandbox.scripted import ScriptedTools
    from slmsearch.sandbox.server import Service, live_server

    config = session.config
    engine = make_engine(config.sandbox, state_dir(config), find_project_root() / COMPOSE_FILE)
    with live_server(Service(config.sandbox, engine, lambda indexed: ScriptedTools())) as address:
        return check_scripted(config.sandbox.model_copy(update={"base_url": address}))
