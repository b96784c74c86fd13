"""`slmsearch bench scaling`: time of a GRPO step by the size of a group and the length of its episodes.

One question, the model of the long shape; half of an episode is a prompt that its group shares, the rest are turns and results that no
other episode has. A first step of each is not counted.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

from slmsearch.corpus.questions import Question
from slmsearch.extensions.bench.result import Result, Say, describe_machine, tabulate
from slmsearch.extensions.bench.rollout import NO_LEARNING, Stopwatch, make_ours
from slmsearch.extensions.bench.shapes import BenchShape, LongToolbox, filler, long_shape

GROUPS, LENGTHS = (4, 8, 16, 32), (256, 512, 1024, 2048, 4096)
TURNS, CALL_TOKENS, TOKENS_PER_WORD = 4, 15, 1.55
SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
"""Point that the figure marks."""
COLUMNS = {
    "group": "{group}",
    "tokens of an episode": "{tokens:.0f}",
    "step, s": "{step_s:.2f}",
    "tokens/s": "{tokens_per_s:,.0f}",
    "s an episode": "{episode_s:.3f}",
}


def run_scaling(runs: int, say: Say, figure: Path) -> Result:
    """Measure `runs` steps of every group and length; draw the figure to a file."""
    found = list[dict[str, float]]()
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        base = long_shape(Path(directory) / "long")
        for length in LENGTHS:
            for group in GROUPS:
                found.append(_measure(resize(base, group, length), Path(directory), runs) | {"group": group, "length": length})
                say(f"  group {group}, length {length}: {found[-1]['step_s']:.2f} s a step, {found[-1]['tokens_per_s']:,.0f} tokens/s")
    draw(found, figure)
    machine = describe_machine("torch", "transformers", "trl", "peft")
    values = {"machine": asdict(machine), "runs": runs, "steps": found}
    return Result(values, (tabulate(COLUMNS, found),), (f"{machine}", f"medians of {runs} steps; figure in {figure}"))


def resize(base: BenchShape, group: int, length: int) -> BenchShape:
    """Make episodes of about `length` tokens, in one group of the given size."""
    turns = TURNS if length > LENGTHS[0] else TURNS // 2
    words = int((length / 2 / turns - CALL_TOKENS) / TOKENS_PER_WORD)
    asked = f"{filler('prompt', int(length / 2 / TOKENS_PER_WORD))} Who built the mill of Norwick?"
    settings: dict[str, object] = {"searcher.max_turns": turns, "searcher.max_episode_tokens": length, "train.group_size": group}
    settings |= {"train.steps": 1, "train.learning_rate": NO_LEARNING}
    return replace(base, config=base.config.changed(settings), questions=[Question("q", asked, "nobody")], toolbox=LongToolbox(words))


def _measure(shape: BenchShape, directory: Path, runs: int) -> dict[str, float]:
    watch = Stopwatch()
    trainer, bridge = make_ours(shape, directory, watch)
    step_s = median([watch.take_step(trainer).step_s for _ in range(runs + 1)][1:])
    tokens = mean(len(episode.prompt_ids) + len(episode.completion_ids) for episode in bridge.episodes)
    return {
        "tokens": tokens,
        "step_s": step_s,
        "tokens_per_s": tokens * shape.episodes / step_s,
        "episode_s": step_s / shape.episodes,
    }


def draw(found: Sequence[dict[str, float]], path: Path) -> None:
    """Draw seconds of an episode over its length, a line for each size of a group."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
    for group in sorted({row["group"] for row in found}):
        rows = [row for row in found if row["group"] == group]
        axes.plot([row["tokens"] for row in rows], [row["episode_s"] for row in rows], marker="o", label=f"group of {group:.0f}")
    axes.set(xscale="log", yscale="log", xlabel="tokens of an episode", ylabel="seconds an episode takes of a step")
    axes.minorticks_off()
    axes.set_xticks(LENGTHS, list(map(str, LENGTHS)))
    axes.set_yticks(SECONDS, list(map(str, SECONDS)))
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "slmsearch"}):
        figure.savefig(path, metadata={"Date": None})
