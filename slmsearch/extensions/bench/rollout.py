"""`slmsearch bench rollout`: rollouts and whole GRPO steps, ours beside TRL's own tool loop and beside the limit.

This project's trainer and the peer (see `peer.py`) take the same steps in turn, in one process: same model, same questions, same number of
episodes, a learning rate too small to change either. Each trainer warms up for one step. Rollout time is that of `_generate`,
step time that of the whole optimiser step. The build of a recorded commit (`recorded.py`) takes its steps in turn, too, in a process of its
own, on the same model and corpus, but with the settings that it was shipped with: `today_ratio` is the time of its step over ours.

The limit is one static batch that prefills all tokens of the played episodes that the policy did not sample, and decodes as many steps as
the longest episode has sampled tokens: no tools, no turns, no waiting, no sampling. It computes every episode by itself; this project's
trainer computes the common tokens of a group once, and so can be faster than this limit.

On a CUDA card both sides train on it, as do TRL and a vLLM of its own (colocate) where vLLM is installed, and each side says how busy it
kept the card. The warm-up counts there as a phase of its own.
"""

import logging
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig, TrainerCallback
from transformers.cache_utils import DynamicCache
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from slmsearch.config import RunConfig
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.sampler import Sampling
from slmsearch.extensions.bench.peer import make_peer
from slmsearch.extensions.bench.real import STEP
from slmsearch.extensions.bench.recorded import COMMIT, recorded_build
from slmsearch.extensions.bench.result import Result, Say, Spread, describe_machine, median_ratio, tabulate, take_turns
from slmsearch.extensions.bench.shapes import BenchShape, demo_shape, long_shape
from slmsearch.extensions.bench.trees import catch_inputs, compare_trees
from slmsearch.judge.llm import make_judge
from slmsearch.models.attention import MADE_FOR, use_attention
from slmsearch.processes.processor import trim_heap
from slmsearch.sampling.torch_sampler import TorchSampler, is_small
from slmsearch.training.callbacks import StepCallback
from slmsearch.training.card import CardWatch, watching_card
from slmsearch.training.grpo import make_trainer
from slmsearch.training.grpo_settings import make_arguments
from slmsearch.training.phase_timer import CardUse, PhaseTimer
from slmsearch.training.rollout_bridge import RolloutBridge
from slmsearch.training.trainer_samplers import open_torch_sampler, sampling_mode
from slmsearch.training.training_run import load_trainable

PEER_MICRO_BATCHES = {"demo": (64, 16), "long": (8, 2), "real": (8, 4)}
MICRO_BATCHES_ON_A_CARD = {"demo": (64, 16), "long": (8, 2), "real": (64, 16)}
"""Episodes per forward pass that are tried with the peer; the fastest is measured."""
ON_A_CARD = {"policy.dtype": "bfloat16", "train.questions_per_step": 32}
"""Size of the real shape on a card: 256 episodes at once."""
CONTINUOUS = ("demo", "long")
"""Shapes whose first turns transformers' continuous batching also generates."""
PAGE_TOKENS = 16
OTHER, WARM_UP = "other", "warm-up"
"""Phases of the card beside the rollouts and updates that are measured."""
OURS, PEER, PEER_VLLM, RECORDED = "ours", "peer", "peer with vLLM", f"build of {COMMIT}"
OF_CORPUS = ("corpus.pages", "corpus.limit_pages", "corpus.questions", "policy.model", *STEP)
"""Settings of the real shape that the recorded build is given; all others are those it was shipped with."""
NO_LEARNING = 1e-12
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


class Times(NamedTuple):
    """Times of one step."""

    rollout_s: float
    step_s: float


class Stopwatch(TrainerCallback):
    """Timer of a trainer's last step, and of its generation; reports both to a watch of the card."""

    def __init__(self, side: str = "", card: CardWatch | None = None) -> None:
        """Begin at 0."""
        self._side, self._card, self._steps = side, card, 0
        self._rollout_s = self._started = self._step_s = 0.0

    def take_step(self, trainer: Any) -> Times:
        """Run one step of a trainer that takes one."""
        generate = trainer._generate

        def timed(prompts: Any) -> Any:
            self._tell("rollout")
            started = now()
            result = generate(prompts)
            self._rollout_s = now() - started
            self._tell("update")
            return result

        trainer._generate = timed
        trainer.train()
        trainer._generate = generate
        self._steps += 1
        return Times(self._rollout_s, self._step_s)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._started = now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        self._step_s = now() - self._started
        if self._card is not None:
            self._card.turn(OTHER)

    def _tell(self, phase: str) -> None:
        if self._card is not None:
            self._card.turn(f"{self._side} {phase if self._steps else WARM_UP}")


def now() -> float:
    """Return the time, in seconds, once a card has finished its work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def run_rollout(
    config: RunConfig, make_real: Callable[[], BenchShape], shapes: tuple[str, ...], runs: int, say: Say, device: str = "cpu"
) -> Result:
    """Measure `runs` steps of each side, at least 5 for a published figure; return medians, spreads and ratios by shape."""
    figures: dict[str, dict[str, object]] = {}
    sides, uses = list[dict[str, object]](), list[dict[str, object]]()
    with TemporaryDirectory(prefix="slmsearch-bench-") as directory:
        for name in shapes:
            makers = {"demo": lambda: demo_shape(config), "long": lambda: long_shape(Path(directory) / "long"), "real": make_real}
            shape = on_device(makers[name](), device)
            with watching_card(device == "cpu") as card:
                times, figures[name], inputs = measure_speed(shape, runs, Path(directory), say, card, Path(config.paths.data_dir) / "bench")
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
    tried: dict[float, int] = {}
    on_cpu = shape.config.policy.device == "cpu"
    for micro_batch in (PEER_MICRO_BATCHES if on_cpu else MICRO_BATCHES_ON_A_CARD)[shape.name]:
        watch = Stopwatch()
        step_s = watch.take_step(make_peer(still, micro_batch, directory, watch)).step_s
        say(f"  peer with micro-batches of {micro_batch}: {step_s:.2f} s a step")
        tried[step_s] = micro_batch
    ours_watch, chosen = Stopwatch(OURS, card), tried[min(tried)]
    ours, bridge = make_ours(still, directory, ours_watch)
    limits, inputs = list[float](), catch_inputs(ours)

    def step_of_ours() -> Times:
        times = ours_watch.take_step(ours)
        with sampling_mode(ours) as model:
            limits.append(time_static_batch(model, bridge.episodes, ours.processing_class.pad_token_id))
        say(f"  ours {times.step_s:.2f} s, limit {limits[-1]:.2f} s")
        return times

    def make_step_of_peer(side: str, with_vllm: bool) -> Callable[[], Times]:
        peer_watch = Stopwatch(side, card)
        peer = make_peer(still, chosen, directory, peer_watch, with_vllm)

        def step_of_peer() -> Times:
            times = peer_watch.take_step(peer)
            if not is_small(ours.model):
                trim_heap()  # else our next step would return the memory that the peer has freed
            say(f"  {side} {times.step_s:.2f} s")
            return times

        return step_of_peer

    steps = {OURS: step_of_ours, PEER: make_step_of_peer(PEER, with_vllm=False)}
    if not on_cpu and find_spec("vllm") is not None:
        steps[PEER_VLLM] = make_step_of_peer(PEER_VLLM, with_vllm=True)
    settings = {name: attrgetter(name)(shape.config) for name in OF_CORPUS} if shape.name == "real" else {}
    with recorded_build(shape.name, settings, home, say) if home and on_cpu else nullcontext() as recorded:
        if recorded is not None:
            steps[RECORDED] = lambda: Times(*recorded.take_step())
        sides = take_turns(steps, runs)
    times, figures = summarise_speed(sides, limits[1:], bridge.episodes)
    check = ours.tree_check
    facts = {"parameters": shape.parameters, "peer_micro_batch": chosen, "dtype": shape.config.policy.dtype}
    return times, {**facts, **figures, "trees_used": check is not None and check.passed}, inputs


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


def make_ours(shape: BenchShape, directory: Path, watch: Stopwatch) -> tuple[Any, RolloutBridge]:
    """Make a trainer whose every `train` takes one step; it may write to the directory."""
    config = shape.config
    model, tokenizer = load_trainable(config.policy)
    open_sampler, timer = open_torch_sampler(tokenizer, config.searcher.tool_role), PhaseTimer()
    environment = SearcherEnvironment(config).with_tools(shape.toolbox, make_judge(config.judge))
    bridge = RolloutBridge(shape.questions, environment, open_sampler, tokenizer.eos_token_id, timer)
    callback = StepCallback(bridge, lambda report: None, lambda: False, config.train, timer)
    arguments = make_arguments(environment, directory, 1, config.policy.device == "cpu")
    trainer = make_trainer(model, tokenizer, bridge, arguments, callback)
    trainer.args.save_strategy = "no"
    trainer.add_callback(watch)
    return trainer, bridge


@torch.no_grad()
def time_static_batch(model: Any, episodes: list[Episode], pad_id: int) -> float:
    """Time the prefill of all unsampled tokens, and a decoding step for each token that the longest episode sampled, in one batch."""
    shown = [[*e.prompt_ids, *(i for turn in e.turns for i in turn.context_ids)] for e in episodes]
    steps = max(e.sampled_tokens for e in episodes)
    width = max(len(ids) for ids in shown)
    started = now()
    ids = torch.tensor([[pad_id] * (width - len(row)) + row for row in shown], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in shown], device=model.device)
    cache = DynamicCache()
    output = model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
    for _ in range(steps - 1):
        chosen = output.logits[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        output = model(input_ids=chosen, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return now() - started


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
