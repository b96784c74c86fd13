"""`slmsearch bench scaling`: time of a GRPO step by the number of its episodes, their length, and the size of the model.

Each axis is measured alone, and its exponent is the slope of a line through the logarithms: 1 where twice as much takes twice as long.
Episodes come in groups of eight from the model of the long shape; half of an episode is a prompt that its group shares, the rest are turns
and results that no other episode has. For the size of the model, random weights of known shapes write one turn, in pairs. A first step of
each is not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import numpy as np
from transformers import AutoConfig, PretrainedConfig

from slmsearch.corpus.questions import Question
from slmsearch.extensions.bench.gpu import shape_of, write_model
from slmsearch.extensions.bench.result import Result, Say, describe_machine, tabulate
from slmsearch.extensions.bench.shapes import LONG_MODEL, BenchShape, LongToolbox, filler, long_shape
from slmsearch.extensions.bench.steps import NO_LEARNING, Stopwatch, make_ours
from slmsearch.models.known import shipped_models
from slmsearch.training.memory import measure_shape

GROUP, EPISODES, LENGTHS = 8, (8, 16, 32, 64, 128, 256), (256, 512, 1024, 2048, 4096)
LENGTH = 512
"""Tokens of an episode where something else is varied."""
TINY = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
QWEN = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "rope_theta": 1000000.0,
}
SIZES: dict[str, PretrainedConfig] = {
    "1M": AutoConfig.for_model("qwen3", **TINY, vocab_size=2048, tie_word_embeddings=True),
    "12M": AutoConfig.for_model("qwen3", **LONG_MODEL, vocab_size=2048, tie_word_embeddings=True),
    "135M": shape_of("smollm2-135m-instruct"),
    "0.5B": AutoConfig.for_model("qwen2", **QWEN, tie_word_embeddings=True),
}
"""Shapes of tiny-searcher, of the long shape's model, of SmolLM2 and of Qwen2.5."""
PAIRS, PAIR, TURN_TOKENS = 4, 2, 32
"""Groups and episodes of each, and sampled tokens of an episode, where the model is varied."""
TURNS, CALL_TOKENS, TOKENS_PER_WORD = 4, 15, 1.55
AXES = {"episodes": "episodes of a step", "tokens": "tokens of an episode", "parameters": "weights of the model"}
COLUMNS = {
    "axis": "{axis}",
    "episodes": "{episodes}",
    "tokens of each": "{tokens:.0f}",
    "weights": "{parameters:,}",
    "step, s": "{step_s:.2f}",
    "tokens/s": "{tokens_per_s:,.0f}",
}


def run_scaling(runs: int, say: Say, figure: Path) -> Result:
    """Measure `runs` steps of every point of the three axes; draw the figure to a file."""
    found = list[dict[str, float | str]]()
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        for axis, shape in make_shapes(Path(directory)):
            found.append({"axis": axis, **_measure(shape, Path(directory), runs)})
            say("  " + ", ".join(tabulate(COLUMNS, found[-1:]).rows[0]))
    exponents = {axis: exponent_of([row for row in found if row["axis"] == axis], axis) for axis in AXES}
    draw(found, exponents, figure)
    machine = describe_machine("torch", "transformers", "trl", "peft")
    values = {"machine": asdict(machine), "runs": runs, "exponents": exponents, "steps": found}
    said = ", ".join(f"{what} {exponents[axis]:.2f}" for axis, what in AXES.items())
    return Result(values, (tabulate(COLUMNS, found),), (f"exponents: {said}", f"{machine}", f"medians of {runs} steps; figure in {figure}"))


def make_shapes(directory: Path) -> Iterator[tuple[str, BenchShape]]:
    """Make the shapes of each axis; models are written to the directory."""
    base = long_shape(directory / "long")
    yield from (("episodes", resize(base, episodes, LENGTH)) for episodes in EPISODES)
    yield from (("tokens", resize(base, GROUP, length)) for length in LENGTHS)
    for name in SIZES:
        yield "parameters", of_size(base, name, directory / "sizes" / name)


def resize(base: BenchShape, episodes: int, length: int) -> BenchShape:
    """Make episodes of about `length` tokens, in groups of eight."""
    turns = TURNS if length > LENGTHS[0] else TURNS // 2
    words = int((length / 2 / turns - CALL_TOKENS) / TOKENS_PER_WORD)
    settings: dict[str, object] = {"searcher.max_turns": turns, "searcher.max_episode_tokens": length}
    settings |= {"train.questions_per_step": episodes // GROUP, "train.group_size": GROUP}
    return replace(_still(base, settings, length / 2), toolbox=LongToolbox(words))


def of_size(base: BenchShape, name: str, directory: Path) -> BenchShape:
    """Make pairs of one turn for random weights of a shape, which seldom end one; the weights are written to the directory."""
    model = write_model(SIZES[name], shipped_models() / "tiny-searcher", directory, "float32", "cpu")
    settings: dict[str, object] = {
        "policy.model": str(model),
        "searcher.max_turns": 1,
        "searcher.max_turn_tokens": TURN_TOKENS,
        "searcher.max_episode_tokens": LENGTH + TURN_TOKENS,
        "train.questions_per_step": PAIRS,
        "train.group_size": PAIR,
    }
    made = _still(base, settings, LENGTH - TURN_TOKENS)
    return replace(made, parameters=measure_shape(made.config).parameters)


def _still(base: BenchShape, settings: dict[str, object], prompt_tokens: float) -> BenchShape:
    """Return a shape whose steps change nothing and whose questions have prompts of this many tokens that differ."""
    words = int(prompt_tokens / TOKENS_PER_WORD)
    config = base.config.changed({"train.steps": 1, "train.learning_rate": NO_LEARNING, **settings})
    asked = [f"{filler(f'prompt {k}', words)} Who built the mill of Norwick?" for k in range(config.train.questions_per_step)]
    return replace(base, config=config, questions=[Question(f"q{k}", text, "nobody") for k, text in enumerate(asked)])


def _measure(shape: BenchShape, directory: Path, runs: int) -> dict[str, float]:
    watch = Stopwatch()
    trainer, bridge = make_ours(shape, directory, watch)
    step_s = median([watch.take_step(trainer).step_s for _ in range(runs + 1)][1:])
    tokens = mean(len(episode.prompt_ids) + len(episode.completion_ids) for episode in bridge.episodes)
    sizes = {"episodes": shape.episodes, "tokens": tokens, "parameters": shape.parameters}
    return {**sizes, "step_s": step_s, "tokens_per_s": tokens * shape.episodes / step_s}


def exponent_of(rows: Sequence[dict[str, float | str]], axis: str) -> float:
    """Return the slope of the logarithm of a step's seconds over that of an axis, by least squares."""
    return float(np.polyfit(np.log([float(row[axis]) for row in rows]), np.log([float(row["step_s"]) for row in rows]), 1)[0])


def draw(found: Sequence[dict[str, float | str]], exponents: dict[str, float], path: Path) -> None:
    """Draw seconds of a step over each axis."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, (axis, what) in zip(figure.subplots(1, len(AXES), sharey=True), AXES.items(), strict=True):
        rows = [row for row in found if row["axis"] == axis]
        axes.plot([row[axis] for row in rows], [row["step_s"] for row in rows], marker="o")
        axes.set(xscale="log", yscale="log", xlabel=what, title=f"exponent {exponents[axis]:.2f}")
        axes.minorticks_off()
        points = [float(row[axis]) for row in rows]
        axes.set_xticks(points, [f"{point / 1e6:.3g} M" if axis == "parameters" else f"{point:.0f}" for point in points])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds a step")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "slmsearch"}):
        figure.savefig(path, metadata={"Date": None})
