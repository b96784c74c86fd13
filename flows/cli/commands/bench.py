"""Commands that measure: `slmsearch bench ...`."""

from pathlib import Path
from typing import Any

import click

from flows.cli.session import NEGATIVE, Session, cli, command


@cli.group("bench")
def bench() -> None:
    """Measure side by side; results go to `bench/` in the MLflow directory."""


@command(bench, "rollout")
@click.option("--shape", "shapes", type=click.Choice(["demo", "long"]), multiple=True, help="Default: both.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured steps of each side.")
def rollout(session: Session, shapes: tuple[str, ...], runs: int) -> None:
    """Time rollouts and GRPO steps beside TRL's own tool loop and beside the limit; writes rollout.json."""
    from slmsearch.bench.rollout import render_rollout, run_rollout

    result = run_rollout(session.config, shapes or ("demo", "long"), runs, session.say)
    _finish(session, "rollout", result, render_rollout(result))


@command(bench, "sft")
@click.option("--model", default="smollm2-135m-instruct", show_default=True, help="A real model: a known name, a path or Hub id.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Counted updates of each side.")
def sft(session: Session, model: str, runs: int) -> None:
    """Time supervised training of a real model beside TRL's SFTTrainer, each in its own process; writes sft.json."""
    from flows.cli.fetching import require_policy
    from slmsearch.bench.sft import render_sft, run_sft
    from slmsearch.models.known import path_of

    config = session.config
    policy = config.policy.model_copy(update={"model": path_of(model, config.paths.data_dir), "device": "cpu"})
    result = run_sft(require_policy(config.model_copy(update={"policy": policy})), runs, session.say)
    _finish(session, "sft", result, render_sft(result))


@command(bench, "learning")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds of GRPO, separated by commas.")
def learning(session: Session, seeds: str) -> None:
    """Train GRPO with several seeds and compare it with its start and its controls; writes learning.json."""
    from flows.cli.settings import find_project_root
    from slmsearch.bench.learning import render_learning, run_learning

    config, chosen = session.config, _parse_seeds(seeds)
    clean = find_project_root() / "data" / "models" / "tiny-searcher-clean"
    result = run_learning(config, chosen, str(clean) if clean.is_dir() else None, session.say)
    _finish(session, "learning", result, render_learning(result))


@command(bench, "algorithms")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds, separated by commas.")
@click.option("--steps", type=click.IntRange(min=1), default=80, show_default=True, help="Optimiser steps of each run.")
def algorithms(session: Session, seeds: str, steps: int) -> None:
    """Compare GRPO, RLOO, REINFORCE and two controls over seeds; writes algorithms.json."""
    from slmsearch.bench.algorithms import render_algorithms, run_algorithms

    result = run_algorithms(session.config, _parse_seeds(seeds), steps, session.say)
    _finish(session, "algorithms", result, render_algorithms(result))


@command(bench, "agreement")
@click.option("--served", metavar="URL", help="Address (ending in /v1) of a server that serves policy.model.")
@click.option("--questions", type=click.IntRange(min=1), default=64, show_default=True, help="Questions of the split.")
def agreement(session: Session, served: str | None, questions: int) -> None:
    """Play the same greedy episodes with every backend and say where they part; writes agreement.json."""
    from flows.cli.fetching import require_policy
    from slmsearch.bench.agreement import render_agreement, run_agreement

    result = run_agreement(require_policy(session.config), questions, served, session.say)
    _finish(session, "agreement", result, render_agreement(result))


@command(bench, "gpu")
@click.option("--preset", "names", multiple=True, help="Of deployments/configs, without .yaml; default: all for a GPU.")
@click.option("--layers", type=click.IntRange(min=0), default=4, show_default=True, help="Of each model; 0: as many as the real one.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", help="cpu tries the check itself, with narrow models.")
def gpu(session: Session, names: tuple[str, ...], layers: int, device: str) -> None:
    """Try every GPU preset on this card with random weights: two updates, memory planned and measured; writes gpu.json.

    Exit code 1 where a preset does not pass, 3 where there is no card.
    """
    import tempfile

    from flows.cli.settings import find_project_root
    from flows.ops.gpu_presets import load_presets
    from slmsearch.bench.gpu import render_gpu, require_card, run_gpu

    if device == "cuda":
        require_card()
    tokenizer = find_project_root() / "data" / "models" / "tiny-searcher"
    with tempfile.TemporaryDirectory(prefix="slmsearch-gpu-", ignore_cleanup_errors=True) as work:
        result = run_gpu(load_presets(names), tokenizer, Path(work), device, layers, session.say)
    _finish(session, "gpu", result, render_gpu(result))
    if not result["passed"]:
        raise SystemExit(NEGATIVE)


@command(bench, "sandbox")
@click.option("--programs", type=click.IntRange(min=10), default=1000, show_default=True, help="Programs of each measurement.")
@click.option("--clients", type=click.IntRange(min=1), default=4, show_default=True, help="Clients of the second measurement.")
def sandbox(session: Session, programs: int, clients: int) -> None:
    """Time programs in the sandbox, three tool calls each, over a small world; writes sandbox.json."""
    from flows.ops.sandbox import small_world, some_sandbox
    from slmsearch.bench.sandbox import render_sandbox, run_sandbox
    from slmsearch.environments.indexed_corpus import open_indexed_corpus
    from slmsearch.sandbox.client import with_token

    config = small_world(session.config)
    indexed = open_indexed_corpus(config)
    with some_sandbox(session.config, session.say) as address:
        settings = with_token(config).model_copy(update={"base_url": address})
        result = run_sandbox(settings, indexed, programs, clients, session.say)
    _finish(session, "sandbox", result, render_sandbox(result))


@command(bench, "up")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Starts from nothing.")
def up(session: Session, runs: int) -> None:
    """Time `slmsearch up` from nothing to a submitted run that is running; writes up.json."""
    from slmsearch.bench.up import render_up, run_up

    result = run_up(runs, session.say)
    _finish(session, "up", result, render_up(result))


@command(bench, "nightly")
@click.option("--series", type=click.IntRange(min=1), default=5, show_default=True, help="Quiet series of each policy.")
@click.option("--nights", type=click.IntRange(min=5), default=50, show_default=True, help="Nights of a series.")
@click.option("--regressions", type=click.IntRange(min=1), default=20, show_default=True, help="Planted falls of each policy and shape.")
def nightly(session: Session, series: int, nights: int, regressions: int) -> None:
    """Count false alarms of the nightly comparison in quiet series, and planted falls of 5 points it finds; writes nightly.json."""
    from slmsearch.bench.nightly import render_nightly, run_nightly

    result = run_nightly(session.config.nightly, series, nights, regressions)
    _finish(session, "nightly", result, render_nightly(result))


@command(bench, "monitor")
@click.option("--runs", type=click.IntRange(min=1), default=200, show_default=True, help="Healthy runs of each preset.")
def monitor(session: Session, runs: int) -> None:
    """Simulate healthy runs and planted collapses of every preset under the collapse monitor; writes monitor.json."""
    from flows.cli.settings import find_project_root, load_config
    from slmsearch.bench.monitor import render_monitor, run_monitor
    from slmsearch.config import RunConfig

    presets = {"demo": RunConfig()}  # the defaults are the demo's
    for path in sorted((find_project_root() / "deployments" / "configs").glob("*.yaml")):
        presets[path.stem] = load_config([path], environment={})
    result = run_monitor(presets, runs, session.say)
    _finish(session, "monitor", result, render_monitor(result))


@command(bench, "fusion")
@click.option("--seed", default=0, show_default=True, help="Of the split of the pages into two halves.")
def fusion(session: Session, seed: int) -> None:
    """Choose the weight of BM25 on one half of the corpus' pages, measure it on the other; writes fusion.json."""
    from flows.cli.commands.corpus import searched_corpus
    from slmsearch.evaluate.retrieval import choose_weights
    from slmsearch.report.retrieval import render_weights

    index, questions = searched_corpus(session.config, "all", 0)
    result = choose_weights(index, questions, seed)
    _finish(session, "fusion", result, render_weights(result))


@command(bench, "memory")
def memory(session: Session) -> None:
    """Play and train with episodes as long as the settings allow: memory of each phase beside its plan; writes memory.json."""
    from slmsearch.bench.memory import render_memory, run_memory

    result = run_memory(session.config, session.say)
    _finish(session, "memory", result, render_memory(result))


@command(bench, "scale")
@click.option("--sections", default="1000,10000,100000", show_default=True, help="Sizes, separated by commas.")
@click.option("--encoded", default=120_000, show_default=True, help="Passages with real vectors; others are moved copies.")
def scale(session: Session, sections: str, encoded: int) -> None:
    """Build and search indexes of the generated world, each ten times the one before; writes scale.json."""
    from slmsearch.bench.scale import render_scale, run_scale
    from slmsearch.retrieval.embedders import load_embedder

    config, sizes = session.config, sorted(_parse_seeds(sections))
    work = Path(config.paths.data_dir) / "bench-scale"
    result = run_scale(config.retrieval, load_embedder(config.retrieval.embedder), work, sizes, encoded, session.say)
    _finish(session, "scale", result, render_scale(result))


@command(bench, "reindex")
@click.option("--sections", default=100_000, show_default=True, help="Size of the index.")
def reindex(session: Session, sections: int) -> None:
    """Time the next version after one page in a hundred changed, beside building it from nothing; writes reindex.json."""
    from slmsearch.bench.scale import render_reindex, run_reindex
    from slmsearch.retrieval.embedders import load_embedder

    config = session.config
    work = Path(config.paths.data_dir) / "bench-reindex"
    result = run_reindex(config.retrieval, load_embedder(config.retrieval.embedder), work, sections, session.say)
    _finish(session, "reindex", result, render_reindex(result))


@command(bench, "index")
@click.option("--sections", type=click.IntRange(min=20), default=4000, show_default=True, help="Passages of section text, at most.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Timed builds of each side.")
def index(session: Session, sections: int, runs: int) -> None:
    """Build an index beside Chroma's own `collection.add`: speed and vectors; writes index.json."""
    from slmsearch.bench.index import render_index, run_index

    result = run_index(session.config, sections, runs, session.say)
    _finish(session, "index", result, render_index(result))


def _finish(session: Session, name: str, result: dict[str, Any], text: str) -> None:
    """Write a result to its file in the MLflow directory, and print it."""
    from slmsearch.bench.result import save_result

    save_result(result, Path(session.config.paths.mlruns_dir) / "bench" / f"{name}.json")
    session.finish(result, text)


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--seeds {text!r} is no list of numbers: write 0,1,2") from error
