"""`slmsearch bench rollout`: rollouts and whole GRPO steps, ours beside TRL's own tool loop and beside the limit.

This project's trainer and the peer (see `peer.py`) take the same steps in turn, each in a process of its own: same model, same questions,
same number of episodes, a learning rate too small to change either. Each trainer warms up for one step. Rollout time is that of
`_generate`, step time that of the whole optimiser step. The build of a recorded commit (`recorded.py`) takes its steps in turn, too, on the
same model and corpus, but with the settings that it was shipped with: `today_ratio` is the time of its step over ours.

The limit is one static batch that prefills all tokens of the played episodes that the policy did not sample, and decodes as many steps as
the longest episode has sampled tokens: no tools, no turns, no waiting, no sampling. It computes every episode by itself; this project's
trainer computes the common tokens of a group once, and so can be faster than this limit.

On a CUDA card both sides train on it in one process, as do TRL and a vLLM of its own (colocate) where vLLM is installed, and each side says
how busy it kept the card. The warm-up counts there as a phase of its own.
"""

import logging
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.sampler import Sampling
from slmsearch.extensions.bench.real import STEP
from slmsearch.extensions.bench.recorded import COMMIT, recorded_build
from slmsearch.extensions.bench.result import Result, Say, Spread, describe_machine, median_ratio, tabulate, take_turns
from slmsearch.extensions.bench.shapes import BenchShape, long_shape
from slmsearch.extensions.bench.steps import NO_LEARNING, OTHER, WARM_UP, OurSide, PeerSide, SideProcess, Stopwatch, Times, now, open_side
from slmsearch.extensions.bench.trees import compare_trees
from slmsearch.models.attention import MADE_FOR, use_attention
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.card import CardWatch, watching_card
from slmsearch.training.phase_timer import CardUse
from slmsearch.training.training_run import load_trainable

PEER_MICRO_BATCHES = {"demo": (64, 16), "long": (8, 2), "real": (8, 4)}
MICRO_BATCHES_ON_A_CARD = {"demo": (64, 16), "long": (8, 2), "real": (64, 16)}
"""Episodes per forward pass that are tried with the peer; the fastest is measured."""
ON_A_CARD = {"policy.dtype": "bfloat16", "train.questions_per_step": 32}
"""Size of the real shape on a card: 256 episodes at once."""
CONTINUOUS = ("demo", "long")
"""Shapes whose first turns transformers' continuous batching also generates."""
PAGE_TOKENS = 16
OURS, PEER, PEER_VLLM, RECORDED = "ours", "peer", "peer with vLLM", f"build of {COMMIT}"
OF_CORPUS = ("corpus.pages", "corpus.limit_pages", "corpus.questions", "policy.model", *STEP)
"""Settings of the real shape that the recorded build is given; all others are those it was shipped with."""
LAST: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("ratios.toml").read_text(encoding="utf-8"))
"""Ratios that were last recorded, by shape."""
LATELY = {"recorded": "{what}", "now": "{now:.2f}"}
SIDES = {"shape": "{shape}", "side": "{side}", "rollout, s": "{rollout_s:,.2f}", "step, s": "{step_s:,.2f}", "episodes/min": "{rate:,.0f}"}
RATIOS = {
    "shape": "{shape}",
    "episodes (different)": "{episodes} ({distinct_frac:.0%})",
    "calls, tokens of each": "{calls_per_episode:.1f}, {tokens_per_episode:.0f}",
    "episodes ratio": "{episodes_ratio:.2f}",
    "step ratio": "{step_ratio:.2f}",
    f"step ratio to {COMMIT}": "{today_ratio:.2f}",
    "limit / rollout": "{decode_limit_frac:.2f}",
    "gradient difference": "{gradient_difference:.1e}",
    "tokens computed / different": "{tokens_ratio:.3f}",
}
TURNS = {
    "shape": "{shape}",
    "one turn of the batch, s": "{continuous[ours_s]:.2f}",
    "by transformers' continuous batching, s": "{continuous[library_s]:.2f}",
    "ratio": "{continuous[ratio]:.2f}",
    "same turns": "{continuous[same_frac]:.0%}",
}
CARD = {
    "shape": "{shape}",
    "side": "{side}",
    "phase": "{phase}",
    "card busy": "{busy_frac:.0%}",
    "memory, GiB": "{allocated_gib:.1f}",
    "held by torch, GiB": "{reserved_gib:.1f}",
}
"""Tables: header -> format of its cells."""


def run_rollout(
    makers: Mapping[str, Callable[[], BenchShape]], home: Path, shapes: Sequence[str], runs: int, say: Say, device: str = "cpu"
) -> Result:
    """Measure `runs` steps of each side, at least 5 for a published figure; return medians, spreads and ratios by shape.

    `makers` make all shapes but `long`; `home` keeps the recorded build.
    """
    figures: dict[str, dict[str, object]] = {}
    sides, uses = list[dict[str, object]](), list[dict[str, object]]()
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        for name in shapes:
            shape = on_device(makers[name]() if name in makers else long_shape(Path(directory) / "long"), device)
            with watching_card(device == "cpu") as card:
                times, figures[name], inputs = measure_speed(shape, runs, Path(directory), say, card, home)
            say(f"{name}: gradients row by row and over trees")
            figures[name] |= {**times, **compare_trees(shape, inputs)}
            if name in CONTINUOUS:
                say(f"{name}: transformers' continuous batching")
                figures[name]["continuous"] = compare_continuous(shape, runs)
            for side, found in times.items():
                sides.append({"shape": name, "side": side, "rate": 60 * shape.episodes / found["rollout_s"]["median"], **found})
            if card is not None:
                figures[name]["card"] = used = by_side(card.read())
                uses += [{"shape": name, **use} for use in used]
    machine = describe_machine("torch", "transformers", "trl", "peft")
    card_name = torch.cuda.get_device_name() if device == "cuda" else None
    values = {"machine": asdict(machine), "device": card_name or device, "threads": torch.get_num_threads(), "runs": runs, **figures}
    rows = [{"shape": name, **found} for name, found in figures.items()]
    turns = [row for row in rows if "continuous" in row]
    tables = [tabulate(SIDES, sides), tabulate(RATIOS, rows)]
    tables += [tabulate(columns, found) for columns, found in ((TURNS, turns), (CARD, uses)) if found]
    notes = [f"{card_name}; {machine}" if card_name else f"{machine}", f"medians of {runs} steps (lowest to highest)"]
    return Result(
        values, tables, [*notes, *(compare_recorded(name, found) for name, found in figures.items() if name in LAST and not card_name)]
    )


def compare_recorded(shape: str, figures: Mapping[str, object]) -> str:
    """Write the ratios of a shape beside those that were last recorded for it, a report that nobody has to pass."""
    last = LAST[shape]
    rows = ({"what": f"{name} {last[name]:.2f}", "now": figures.get(name)} for name in ("episodes_ratio", "step_ratio", "today_ratio"))
    return f"{shape}, recorded ({last['measured']}) and now: " + ", ".join(" to ".join(row) for row in tabulate(LATELY, rows).rows)


def on_device(shape: BenchShape, device: str) -> BenchShape:
    """Return a shape that is played and learnt on a device; the real one is larger on a card."""
    larger = ON_A_CARD if device == "cuda" and shape.name == "real" else {}
    return replace(shape, config=shape.config.changed({"policy.device": device, **larger}))


def by_side(phases: Mapping[str, CardUse]) -> list[dict[str, object]]:
    """Return each side's use of a card while it played and while it learnt."""
    sides = {phase: phase.rpartition(" ") for phase in phases if phase != OTHER and not phase.endswith(WARM_UP)}
    return [{"side": side, "phase": what, "busy_frac": None, **phases[phase]} for phase, (side, _, what) in sides.items()]


def measure_speed(
    shape: BenchShape, runs: int, directory: Path, say: Say, card: CardWatch | None = None, home: Path | None = None
) -> tuple[dict[str, dict[str, Spread]], dict[str, object], dict[str, torch.Tensor]]:
    """Measure one shape; see `summarise_speed`. The last result holds the inputs of our last loss; `home` keeps the recorded build."""
    say(f"{shape.name}: {shape.parameters / 1e6:.1f} M parameters")
    # One step at a time, at a learning rate that changes nothing.
    still = replace(shape, config=shape.config.changed({"train.steps": 1, "train.learning_rate": NO_LEARNING}))
    on_cpu = shape.config.policy.device == "cpu"
    tried: dict[float, int] = {}
    for micro_batch in (PEER_MICRO_BATCHES if on_cpu else MICRO_BATCHES_ON_A_CARD)[shape.name]:
        trial = partial(SideProcess, PeerSide, PEER) if card is None else partial(PeerSide, watch=Stopwatch())
        with closing(trial(still, directory, micro_batch=micro_batch)) as side:
            step_s = side.step()[0].step_s
        say(f"  peer with micro-batches of {micro_batch}: {step_s:.2f} s a step")
        tried[step_s] = micro_batch
    chosen = tried[min(tried)]
    with ExitStack() as stack:
        wanted: dict[str, dict[str, object]] = {OURS: {}, PEER: {"micro_batch": chosen}}
        if not on_cpu and find_spec("vllm") is not None:
            wanted[PEER_VLLM] = {"micro_batch": chosen, "with_vllm": True}
        opened = dict[str, Any]()
        for name, more in wanted.items():
            side = open_side(OurSide if name == OURS else PeerSide, name, still, directory, card, **more)
            opened[name] = stack.enter_context(closing(side))
        steps: dict[str, Callable[[], tuple[Times, float]]] = {}
        steps |= {name: partial(tell_step, name, side.step, say) for name, side in opened.items()}
        settings = {name: attrgetter(name)(shape.config) for name in OF_CORPUS} if shape.name == "real" else {}
        recorded = stack.enter_context(recorded_build(shape.name, settings, home, say)) if home and on_cpu else None
        if recorded is not None:
            steps[RECORDED] = lambda: (Times(*recorded.take_step()), 0.0)
        found = take_turns(steps, runs)
        episodes, inputs, trees_used = opened[OURS].end()
    limits = [limit_s for _, limit_s in found[OURS]]
    times, figures = summarise_speed({name: [step for step, _ in taken] for name, taken in found.items()}, limits, episodes)
    facts = {"parameters": shape.parameters, "peer_micro_batch": chosen, "dtype": shape.config.policy.dtype}
    return times, {**facts, **figures, "trees_used": trees_used}, inputs


def tell_step(name: str, step: Callable[[], tuple[Times, float]], say: Say) -> tuple[Times, float]:
    """Take a step of a side, and say how long it took."""
    times, limit_s = step()
    say(f"  {name} {times.step_s:.2f} s" + (f", limit {limit_s:.2f} s" if limit_s else ""))
    return times, limit_s


def summarise_speed(
    sides: Mapping[str, Sequence[Times]], limits: Sequence[float], episodes: Sequence[Episode]
) -> tuple[dict[str, dict[str, Spread]], dict[str, object]]:
    """Return the spread of each side's times, ratios of the peer's to ours, and figures of the episodes of a step."""
    rollouts = {side: [step.rollout_s for step in times] for side, times in sides.items()}
    steps = {side: [step.step_s for step in times] for side, times in sides.items()}
    figures = {
        "episodes": len(episodes),
        "distinct_frac": len({tuple(episode.completion_ids) for episode in episodes}) / len(episodes),
        "calls_per_episode": mean(len(episode.calls) for episode in episodes),
        "tokens_per_episode": mean(len(episode.completion_ids) for episode in episodes),
        "limit_s": Spread(limits),
        "episodes_ratio": median_ratio(rollouts[PEER], rollouts[OURS]),
        "step_ratio": median_ratio(steps[PEER], steps[OURS]),
        "decode_limit_frac": median_ratio(limits, rollouts[OURS]),
        "today_ratio": median_ratio(steps[RECORDED], steps[OURS]) if RECORDED in sides else None,
    }
    if PEER_VLLM in sides:
        figures["vllm_episodes_ratio"] = median_ratio(rollouts[PEER_VLLM], rollouts[OURS])
        figures["vllm_step_ratio"] = median_ratio(steps[PEER_VLLM], steps[OURS])
    return {side: {"rollout_s": Spread(rollouts[side]), "step_s": Spread(steps[side])} for side in sides}, figures


def compare_continuous(shape: BenchShape, runs: int) -> dict[str, float]:
    """Time one greedy turn of a whole batch from its prompts, by the torch sampler and by transformers' continuous batching.

    The library's manager is kept between runs and sized for the batch: left to itself it takes most of the machine's memory and
    seconds to fill it. The next turn, for which the library would look its prefix up and prefill the rest, is left out.

    Returns:
        Median seconds of each side, library over ours, and the share of turns in which both wrote the same.
    """
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    model, tokenizer = load_trainable(shape.config.policy)
    train, searcher = shape.config.train, shape.config.searcher
    asked = [question.question for question in shape.questions[: train.questions_per_step] for _ in range(train.group_size)]
    model = model.eval().to(shape.config.policy.device)
    sampler, limit = TorchSampler(model, tokenizer, searcher.tool_role), searcher.max_turn_tokens
    ids: list[tuple[int, ...]] = []

    def ours() -> tuple[float, list[tuple[int, ...]]]:
        use_attention(model)
        started = now()
        ids[:] = sampler.open([make_prompt(question, searcher) for question in asked], Sampling(max_new_tokens=limit))
        turns = sampler.sample(range(len(ids)), [None] * len(ids), [searcher.max_episode_tokens] * len(ids))
        return now() - started, sorted(turn.sampled_ids for turn in turns)

    @torch.no_grad()
    def library() -> tuple[float, list[tuple[int, ...]]]:
        end_id, pages = sampler.renderer.end_id, len(ids) * -(-(max(map(len, ids)) + limit) // PAGE_TOKENS)
        greedy = GenerationConfig(max_new_tokens=limit, do_sample=False, eos_token_id=end_id, pad_token_id=end_id)
        sized = ContinuousBatchingConfig(
            num_blocks=pages,
            page_size=PAGE_TOKENS,
            max_batch_tokens=sum(map(len, ids)),
            use_cuda_graph=model.device.type == "cuda",
            use_async_batching=False,
        )
        model.set_attn_implementation(MADE_FOR)  # the library pages no other one
        started = now()
        outputs = model.generate_batch([list(prompt) for prompt in ids], greedy, sized, persistent_manager=True, warmup=False)
        return now() - started, sorted(tuple(output.generated_tokens) for output in outputs.values())

    found = take_turns({"ours": ours, "library": library}, runs)
    seconds = {side: [took for took, _ in turns] for side, turns in found.items()}
    same = sum(a == b for a, b in zip(found["ours"][-1][1], found["library"][-1][1], strict=True)) / len(ids)
    medians = {f"{side}_s": median(took) for side, took in seconds.items()}
    return {**medians, "ratio": median_ratio(seconds["library"], seconds["ours"]), "same_frac": same}
