"""Commands about the sandbox for programs that a model wrote: `slmsearch sandbox ...`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.cli.session import Session, cli, command

if TYPE_CHECKING:
    from slmsearch.extensions.sandbox.checks import SandboxFinding
    from slmsearch.extensions.sandbox.suite import SuiteResult

PARTS = ("escapes", "tools", "scripted")


@cli.group("sandbox")
def sandbox() -> None:
    """Run programs of the searcher in an isolated sandbox.

    See the setting `searcher.programs`.
    """


@command(sandbox, "up", endless=True)
@click.option("--foreground", is_flag=True, help="Serve in this process until Ctrl-C.")
@click.option("--from-stdin", is_flag=True, hidden=True, help="Take the settings from standard input.")
def up(session: Session, foreground: bool, from_stdin: bool) -> None:
    """Start the sandbox server and wait until it answers.

    It runs in the background.
    """
    from flows.ops.sandbox import read_settings, start_sandbox, state_dir

    if foreground:
        from slmsearch.extensions.sandbox.configured import serve_here

        config = read_settings(sys.stdin) if from_stdin else session.config
        serve_here(config, state_dir(config.paths))
        session.finish({"stopped": True}, "stopped")
        return
    record = start_sandbox(session.config, session.say)
    session.finish(asdict(record), f"sandbox {record.address} ({record.engine}, process {record.pid}); `slmsearch sandbox down` stops it")


@command(sandbox, "down")
def down(session: Session) -> None:
    """Stop the sandbox server."""
    from flows.ops.sandbox import stop_sandbox

    record = stop_sandbox(session.config.paths)
    session.finish({"stopped": record is not None}, f"stopped process {record.pid}" if record else "no sandbox was up")


@command(sandbox, "test")
@click.option("--only", "parts", type=click.Choice(PARTS), multiple=True, help="Checks to run; repeatable; default: all three.")
def test(session: Session, parts: tuple[str, ...]) -> None:
    """Test the sandbox's isolation, tools and embedder.

    Tries every escape with all isolation layers, which must stop it, and without the layers that do, where it must succeed. Then checks
    tools and embedder through a live server. Exit code 1 if a check fails.
    """
    result: dict[str, object] = {}
    texts, passed = [], True
    for part in parts or PARTS:
        if part == "escapes":
            suite = run_escapes(session)
            result |= suite.to_json()
            passed = passed and suite.passed
            texts.append(suite.render())
        else:
            findings = check_corpus_tools(session) if part == "tools" else check_scripted_tools(session)
            passed = passed and all(finding.passed for finding in findings)
            result[part] = [asdict(finding) for finding in findings]
            texts.append("\n".join([part, *map(str, findings)]))
    session.finish({"passed": passed, **result}, "\n\n".join(texts), negative=not passed)


def run_escapes(session: Session) -> "SuiteResult":
    """Run the escape suite on the configured engine."""
    from flows.ops.sandbox import state_dir
    from slmsearch.extensions.sandbox.server import make_engine
    from slmsearch.extensions.sandbox.suite import LIMITS, run_suite

    home = state_dir(session.config.paths)
    return run_suite(home, engine=make_engine(session.config.sandbox.changed({"limits": LIMITS}), home), say=session.say)


def check_corpus_tools(session: Session) -> "list[SandboxFinding]":
    """Check the configured corpus, or a small world, through the running server or one started for the check."""
    from flows.ops.sandbox import small_world, state_dir
    from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
    from slmsearch.extensions.sandbox.checks import check_tools
    from slmsearch.extensions.sandbox.client import session_corpus, with_token
    from slmsearch.extensions.sandbox.configured import some_sandbox

    config = session.config.changed({"corpus": small_world(session.config.corpus)})
    if config.searcher.shows == "text":  # with which no program goes
        config = config.changed({"searcher.shows": "titles"})
    opened = open_indexed_corpus(config)
    indexed = session_corpus(config.retrieval, config.searcher, opened.corpus_digest, opened.index_key)
    with some_sandbox(session.config, state_dir(config.paths)) as address:
        return check_tools(with_token(config.sandbox, config.paths).model_copy(update={"base_url": address}), indexed, opened.toolbox)


def check_scripted_tools(session: Session) -> "list[SandboxFinding]":
    """Check a server with scripted tools, in this process."""
    from flows.ops.sandbox import state_dir
    from slmsearch.extensions.sandbox.checks import ScriptedTools, check_scripted
    from slmsearch.extensions.sandbox.server import Service, live_server, make_engine

    config, home = session.config.sandbox, state_dir(session.config.paths)
    with live_server(Service(config, make_engine(config, home), lambda indexed: ScriptedTools())) as address:
        return check_scripted(config.model_copy(update={"base_url": address}))
