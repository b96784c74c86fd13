"""Commands that measure: `slmsearch bench ...`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.cli.session import Session, cli, command, option
from slmsearch.artifacts.files import replace_json
from slmsearch.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slmsearch.extensions.bench.gpu import Preset
    from slmsearch.extensions.bench.result import Result
    from slmsearch.extensions.bench.shapes import BenchShape

OVERLAY = "overlay-small"
"""Overrides that make a preset small."""


@cli.group("bench")
def bench() -> None:
    """Measure speed, memory and false alarms.

    Results go to `bench/` in the MLflow directory.
    """


@command(bench, "rollout")
@click.option("--shape", "shapes", type=click.Choice(["demo", "long", "real"]), multiple=True, help="Repeatable; default: all three.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured steps of each side.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where both sides train.")
def rollout(session: Session, shapes: tuple[str, ...], runs: int, device: str) -> None:
    """Time rollouts and GRPO steps beside TRL's tool loop.

    Also times one static batch of the same tokens, without tools and turns, as a limit; writes rollout.json. On a GPU it also measures TRL
    with vLLM, where that is installed, and how busy each side kept the card. Exit code 3 with `--device cuda` if there is no GPU.
    """
    from slmsearch.extensions.bench.gpu import require_card
    from slmsearch.extensions.bench.rollout import run_rollout
    from slmsearch.extensions.bench.shapes import demo_shape

    if device == "cuda":
        require_card("nothing to measure; leave --device away to measure on the CPU")
    makers, home = {"demo": partial(demo_shape, session.config), "real": partial(_make_real, session)}, session.config.paths.data_dir
    shapes = shapes or ("demo", "long", "real")
    _finish(session, "rollout", run_rollout(makers, Path(home) / "bench", shapes, runs, session.say, device))


@command(bench, "decode")
@option("--shape", choices=["real", "demo"], default="real", help="SmolLM2 on Wikipedia's leads, or the demo's own.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured runs of each engine.")
def decode(session: Session, shape: str, runs: int) -> None:
    """Time greedy episodes with torch, llama.cpp and vLLM.

    Engines that are not installed are left out. Also times a decoding pass beside a copy of the model's weights; writes decode.json.
    """
    from slmsearch.extensions.bench.decode import run_decode
    from slmsearch.extensions.bench.shapes import demo_shape

    session.override(policy__device="cpu")
    made = _make_real(session) if shape == "real" else demo_shape(session.config)
    _finish(session, "decode", run_decode(made, runs, session.say))


def _make_real(session: Session) -> "BenchShape":
    from flows.runtime.fetching import require_policy
    from flows.runtime.settings import load_config, preset_files
    from slmsearch.extensions.bench.real import real_shape
    from slmsearch.models.known import path_of

    config, preset = session.config, load_config([preset_files()["squad"]], environment={})
    model = path_of(preset.policy.model, config.paths.data_dir)
    own = {"corpus.pages": config.corpus.pages, "corpus.questions": config.corpus.questions, "policy.model": model}
    real = preset.model_copy(update={"paths": config.paths}).changed(own)
    require_policy(real.policy, real.paths)
    return real_shape(real, session.say)


@command(bench, "sft")
@click.option("--model", default="smollm2-135m-instruct", show_default=True, help="Model to train: a known name, a path or a Hub id.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured updates of each side.")
def sft(session: Session, model: str, runs: int) -> None:
    """Time supervised training beside TRL's SFTTrainer.

    Each side trains a real model in its own process; writes sft.json.
    """
    from flows.runtime.fetching import require_policy
    from slmsearch.extensions.bench.sft import run_sft
    from slmsearch.models.known import path_of

    config = session.config
    config = config.changed({"policy.model": path_of(model, config.paths.data_dir), "policy.device": "cpu"})
    require_policy(config.policy, config.paths)
    _finish(session, "sft", run_sft(config, runs, session.say))


@command(bench, "scaling")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured steps of each point.")
def scaling(session: Session, runs: int) -> None:
    """Time GRPO steps by episodes, their length and model size.

    Writes scaling.json and scaling.svg.
    """
    from slmsearch.extensions.bench.scaling import run_scaling

    figure = Path(session.config.paths.mlruns_dir) / "bench" / "scaling.svg"
    _finish(session, "scaling", run_scaling(runs, session.say, figure))


@command(bench, "gpu")
@click.option("--preset", "names", multiple=True, help="Preset to try; repeatable; default: all for a GPU.")
@click.option("--layers", type=click.IntRange(min=0), default=4, show_default=True, help="Layers of each model; 0 takes all.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", help="cpu tries the check itself, with narrow models.")
def gpu(session: Session, names: tuple[str, ...], layers: int, device: str) -> None:
    """Try every GPU preset on this card with random weights.

    Each preset makes two updates; the command compares planned with measured memory and writes gpu.json. Exit code 1 if a preset does not
    pass, 3 if there is no GPU.
    """
    import tempfile

    from slmsearch.extensions.bench.gpu import require_card, run_gpu
    from slmsearch.models.known import shipped_models

    if device == "cuda":
        require_card("nothing to check; on a GPU machine run make gpu-check")
    tokenizer = shipped_models() / "tiny-searcher"
    with tempfile.TemporaryDirectory(prefix="slmsearch-gpu-", ignore_cleanup_errors=True) as work:
        result = run_gpu(load_presets(names), tokenizer, Path(work), device, layers, session.say)
    _finish(session, "gpu", result, negative=not result.values["passed"])


@command(bench, "trees")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measured updates of each side.")
@click.option("--layers", type=click.IntRange(min=0), default=4, show_default=True, help="Layers of SmolLM2's shape; 0 takes all 30.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cpu", show_default=True, help="Where to compute.")
def trees(session: Session, runs: int, layers: int, device: str) -> None:
    """Time updates over trees, and row by row.

    Uses random weights of SmolLM2's shape; writes trees.json. Exit code 1 if the log-probabilities differ, so that training would not use
    trees; 3 with `--device cuda` if there is no GPU.
    """
    from slmsearch.extensions.bench.gpu import require_card
    from slmsearch.extensions.bench.trees import run_trees

    if device == "cuda":
        require_card("nothing to measure; --device cpu measures on the processor")
    result = run_trees(layers, device, runs, session.say)
    _finish(session, "trees", result, negative=not result.values["trees_used"])


@command(bench, "nightly")
@click.option("--series", type=click.IntRange(min=1), default=5, show_default=True, help="Quiet series of each policy.")
@click.option("--nights", type=click.IntRange(min=5), default=50, show_default=True, help="Nights of a series.")
@click.option("--regressions", type=click.IntRange(min=1), default=20, show_default=True, help="Planted falls of each policy and shape.")
def nightly(session: Session, series: int, nights: int, regressions: int) -> None:
    """Count false alarms of the nightly comparison.

    Simulates quiet series, and series with planted falls of 5 points, and counts the falls it finds; writes nightly.json.
    """
    from slmsearch.extensions.bench.false_alarms import run_nightly

    _finish(session, "nightly", run_nightly(session.config.nightly, series, nights, regressions))


@command(bench, "monitor")
@click.option("--runs", type=click.IntRange(min=1), default=200, show_default=True, help="Healthy runs of each preset.")
def monitor(session: Session, runs: int) -> None:
    """Count false alarms of the collapse monitor.

    Simulates healthy runs and planted collapses of every preset; writes monitor.json.
    """
    from flows.runtime.settings import load_config, preset_files
    from slmsearch.config import RunConfig
    from slmsearch.extensions.bench.monitor import run_monitor

    presets = {"demo": RunConfig()}  # the defaults are the demo's
    presets |= {name: load_config([path], environment={}) for name, path in preset_files().items()}
    _finish(session, "monitor", run_monitor(presets, runs, session.say))


@command(bench, "service")
@click.option("--policy", help="Policy to serve, as for `slmsearch serve searcher`.")
def service(session: Session, policy: str | None) -> None:
    """Load a served searcher and watch its memory.

    Also sends it bad requests and kills its model process; writes service.json.
    """
    from flows.runtime.settings import API_TOKEN
    from slmsearch.corpus.store import build_corpus, load_questions
    from slmsearch.extensions.bench.service import run_service

    config = session.config
    corpora, log = config.paths.corpora, Path(config.paths.mlruns_dir) / "bench" / "service.log"
    splits = load_questions(corpora, build_corpus(config.corpus, corpora)).values()
    texts = [question.question for split in splits for question in split]
    if not texts:
        raise ConfigError("the corpus has no questions to ask; give some with --corpus.questions")
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = [*session.flags, "--service.traced_frac=0", *(["--policy", policy] if policy else [])]
    _finish(session, "service", run_service(flags, API_TOKEN, config.service.deadline_s, texts, log, session.say))


@command(bench, "forecast")
def forecast(session: Session) -> None:
    """Train forty short runs and measure how well forecasts hold.

    Takes some two hours on two cores, by estimate; a killed measurement goes on where it was. Writes forecast.json, and the table of the
    trainings.
    """
    from flows.stages.forecasting import FILE
    from slmsearch.config import CorpusConfig
    from slmsearch.evaluate.forecast import FOLDER
    from slmsearch.extensions.bench.forecast_runs import measure_runs
    from tasks.tracking import open_tracker

    data_dir = Path(session.config.paths.data_dir) / FOLDER
    if session.config.corpus != CorpusConfig() or session.config.policy.adapter:  # of a file or a variable
        raise ConfigError("the settings name a corpus or an adapter: the trainings have starts and corpora of their own; leave it out")
    tracker = open_tracker(session.config.paths, session.config.tracking)

    def run(arguments: Sequence[str]) -> "Mapping[str, Any]":
        name, *rest = arguments
        command = [sys.executable, "-m", "flows", name, *session.flags, *rest, "--paths.data_dir", str(data_dir), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        told: Mapping[str, Any] = json.loads(done.stdout or "{}")
        if "error" in told or not told:
            raise TrainingError(f"`slmsearch {arguments[0]}` ended with exit code {done.returncode}: {told.get('error', 'see above')}")
        if "mlflow_run_id" in told:
            told = {**told, "forecast": tracker.read_json(told["mlflow_run_id"], FILE)}
        return told

    _finish(session, "forecast", measure_runs(run, data_dir, session.flags, session.say))


def load_presets(names: Sequence[str] = ()) -> "list[Preset]":
    """Load the GPU presets that name a model of a known shape: those named, or all.

    Raises:
        ConfigError: no preset has a given name, or it is not for a GPU.
    """
    from flows.runtime.settings import load_config, preset_files
    from slmsearch.extensions.bench.gpu import PUBLISHED, Preset
    from slmsearch.models.known import name_of

    presets, found = preset_files(), dict[str, Preset]()
    for name, file in presets.items():
        real, files = load_config([file], environment={}), (file, presets[OVERLAY])
        if real.policy.device == "cuda" and (model := name_of(real.policy.model)) in PUBLISHED:
            small = load_config(files, environment={})
            found[name] = Preset(name, files, *(config.changed({"policy.model": model}) for config in (small, real)))
    if missing := sorted(set(names) - set(found)):
        raise ConfigError(f"{missing[0]!r} is no preset for a GPU; there are {', '.join(found)}")
    return [preset for name, preset in found.items() if not names or name in names]


def _finish(session: Session, name: str, result: "Result", negative: bool = False) -> None:
    """Write a result to its file in the MLflow directory, and print it."""
    folder = Path(session.config.paths.mlruns_dir) / "bench"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_json(folder / f"{name}.json", result.values)
    except OSError:
        session.finish({**result.values}, result.render())  # what may have taken hours is printed all the same
        raise
    session.finish({**result.values}, result.render(), negative)
