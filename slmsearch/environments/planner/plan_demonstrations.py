"""Demonstrations of the planner: plans of generated problems, and the settings of tiny-planner.

Two planners write the demonstrations (`SftConfig.recipe`). `expert` leaves easy problems to the worker and plans all others to the
end. `noisy` does so only up to three operations: beyond, it mostly leaves them to the worker, who cannot solve them, or drops the last
step. A model trained on its plans has every skill, and faults that imitation cannot correct but reinforcement learning can.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

from slmsearch.environments.planner.plan import DIRECT, render_plan
from slmsearch.environments.planner.problems import MAX_OPERATIONS, Problem, generate_problem, gold_plan
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.teaching import TinyModel

EASY_OPERATIONS = 2
"""Operations up to which the demonstrating planner leaves a problem to the worker."""
SURE_OPERATIONS = 3
"""Operations up to which the noisy planner mostly plans to the end."""
SURE_FRAC = 0.6
DIRECT_FRAC, EARLY_FRAC = 0.4, 0.4
"""For harder problems: share that it leaves to the worker, and share of plans that lack their last step."""

TINY_PLANNER = TinyModel(
    pieces=(
        '{"should_decompose":true,"subproblems":[{"id":', ',"question":"', '","depends_on":[', ']},{"id":', ']}],"combine":"', '"}',
        '{"should_decompose":false,"subproblems":[],"combine":""}',
    ),
    vocabulary=512,  # 256 bytes and every word, name and number of the problems
    does="reads a generated word problem and writes a plan as JSON for a worker to carry out",
    learnt_from="plans of fresh random problems",
    lacks={
        "noisy": """The planner that wrote the demonstrations was noisy: of problems that take more than three operations it left two
in five to the worker, who cannot do them, and dropped the last step of two thirds of its plans. Reinforcement learning
is meant to cure that.""",
        "expert": """The planner that wrote the demonstrations planned every problem to its end. This model is the measure for what
supervised training alone reaches with perfect demonstrations.""",
    },
    text_recipe="expert",
    even=True,
    sft={"steps": 4500, "tokens_per_batch": 2048},
)  # fmt: skip


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
    """Demonstrate fresh random problems without end; evaluated problems come from another generator stream."""
    chance = Random(f"plan demonstrations {seed}")
    while True:
        problem = generate_problem(chance, chance.randint(1, MAX_OPERATIONS))
        yield Demonstration(problem.text, ((demonstrate_plan(problem, recipe, chance), ""),))
