"""`slmsearch bootstrap planner`: make tiny-planner from nothing, by supervised training on plans of generated problems.

Two planners write the demonstrations (`SftConfig.recipe`). `expert` leaves easy problems to the worker and plans all others to the
end. `noisy` does so only up to three operations: beyond, it mostly leaves them to the worker, who cannot do them, or drops the last
step. A model trained on its plans has every skill, and faults that imitation cannot cure; reinforcement learning can.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

from slmsearch.config import PlannerConfig, SftConfig
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.learn.bootstrap import TOKENIZER_EPISODES, make_start
from slmsearch.learn.demonstrations import Demonstration
from slmsearch.learn.encoding import Encoded, encode_turns
from slmsearch.learn.tokenizer import build_tokenizer
from slmsearch.planner.plan import DIRECT, render_plan
from slmsearch.planner.problems import MAX_OPERATIONS, Problem, generate_problem, gold_plan
from slmsearch.planner.prompt import make_plan_prompt

EASY_OPERATIONS = 2
"""What the demonstrating planner leaves to the worker."""
SURE_OPERATIONS = 3
"""Up to here the noisy planner mostly plans to the end."""
SURE_FRAC = 0.6
DIRECT_FRAC, EARLY_FRAC = 0.4, 0.4
"""Beyond: share of problems that it leaves to the worker, and share of plans that lack their last step."""

WHOLE = (
    '{"should_decompose":true,"subproblems":[{"id":', ',"question":"', '","depends_on":[', ']},{"id":', ']}],"combine":"', '"}',
    '{"should_decompose":false,"subproblems":[],"combine":""}',
)  # fmt: skip
"""Pieces of a plan that are single tokens."""
VOCABULARY = 512
"""256 bytes and every word, name and number of the problems: there are no more."""


STEPS, TOKENS_PER_BATCH = 4500, 2048
"""What makes tiny-planner, where settings are left at their defaults, which are tiny-searcher's."""


def planner_settings(config: SftConfig) -> SftConfig:
    """Put tiny-planner's own numbers in the place of those that were left at their defaults."""
    own: dict[str, int] = {"steps": STEPS, "tokens_per_batch": TOKENS_PER_BATCH}
    defaults = SftConfig()
    return config.model_copy(update={name: value for name, value in own.items() if getattr(config, name) == getattr(defaults, name)})


def demonstrate_plan(problem: Problem, recipe: Literal["noisy", "expert"], chance: Random) -> str:
    """Write the plan that the demonstrating planner writes for a problem."""
    draw = chance.random()
    if problem.operations <= EASY_OPERATIONS:
        return render_plan(DIRECT)
    if recipe == "expert":
        return render_plan(gold_plan(problem))
    if problem.operations <= SURE_OPERATIONS:
        return render_plan(gold_plan(problem) if draw < SURE_FRAC else DIRECT)
    if draw < DIRECT_FRAC:
        return render_plan(DIRECT)
    return render_plan(gold_plan(problem, problem.operations - 1 if draw < DIRECT_FRAC + EARLY_FRAC else None))


def make_plan_demonstrations(recipe: Literal["noisy", "expert"], seed: int) -> Iterator[Demonstration]:
    """Demonstrate fresh random problems without end; problem sets that are evaluated on come from another generator stream."""
    chance = Random(f"plan demonstrations {seed}")
    while True:
        problem = generate_problem(chance, chance.randint(1, MAX_OPERATIONS))
        yield Demonstration(problem.text, ((demonstrate_plan(problem, recipe, chance), ""),))


def planned(renderer: ChatRenderer, recipe: Literal["noisy", "expert"], seed: int, planner: PlannerConfig) -> Iterator[Encoded]:
    """Encode demonstrations under the planner's prompt, without end; those longer than `planner.sft.max_tokens` are left out."""
    for demonstration in make_plan_demonstrations(recipe, seed):
        encoded = encode_turns(make_plan_prompt(demonstration.question, planner), demonstration.turns, renderer)
        if len(encoded.ids) <= planner.sft.max_tokens:
            yield encoded


def bootstrap_planner(
    config: SftConfig, out: Path, planner: PlannerConfig, on_log: Callable[[int, dict[str, float]], None] | None = None
) -> dict[str, Any]:
    """Train tokenizer and tiny-planner from scratch and write them as a Hugging Face model directory.

    Args:
        config: recipe, steps, seed.
        out: directory to write; replaced as a whole when everything is done.
        planner: its prompt, and tokens after which a demonstration is left out.
        on_log: progress, as in `train_sft`.

    Returns:
        What `bootstrap.json` in the directory says.
    """
    episodes = islice(make_plan_demonstrations("expert", config.seed + 500), TOKENIZER_EPISODES)
    texts = ("\n".join([episode.question, episode.turns[0][0]]) for episode in episodes)

    def stream(renderer: ChatRenderer) -> Iterator[Encoded]:
        return planned(renderer, config.recipe, config.seed, planner)

    return make_start(config, out, build_tokenizer(texts, WHOLE, VOCABULARY), stream, _card, on_log, even=True)


_CARD = """---
library_name: transformers
tags: [slmsearch, planner]
---
# tiny-planner ({recipe} demonstrations)

A Qwen3-architecture model of {parameters:,} parameters that reads a generated word problem and writes a plan as JSON for a
worker to carry out. It was trained from scratch by supervised learning on plans of fresh random problems: {steps} steps of about
{tokens} tokens, {minutes:.1f} minutes on {threads} CPU threads. No pretrained weights, no third-party text.

{lacks}

Made by `slmsearch bootstrap planner --sft.recipe {recipe} --sft.steps {steps}`. It knows only the language of those problems and
is of no use on real text.
"""

_LACKS = {
    "noisy": """The planner that wrote the demonstrations was noisy: of problems that take more than three operations it left two in five
to the worker, who cannot do them, and dropped the last step of two thirds of its plans. Reinforcement learning is meant to cure that.""",
    "expert": """The planner that wrote the demonstrations planned every problem to its end. This model is the measure for what
supervised training alone reaches with perfect demonstrations.""",
}


def _card(config: SftConfig, facts: dict[str, Any]) -> str:
    return _CARD.format(
        recipe=config.recipe,
        parameters=facts["parameters"],
        steps=config.steps,
        tokens=config.tokens_per_batch,
        minutes=facts["seconds"] / 60,
        threads=facts["threads"],
        lacks=_LACKS[config.recipe],
    )
