"""The two shapes on which rollouts are measured.

demo   tiny-searcher on the demo world: short results, episodes of very different length
long   11 million weights, 8 turns, results of some 300 tokens: every turn shows ten times what the policy writes
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slmsearch.config import PolicyConfig, RewardConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import select_questions
from slmsearch.environments.indexed_corpus import open_indexed_corpus
from slmsearch.learn.bootstrap import make_model
from slmsearch.learn.shape import measure_shape
from slmsearch.searcher.episode import ToolCall, ToolResult
from slmsearch.searcher.parsing import render_call
from slmsearch.searcher.tools import VIEW, Toolbox

LONG_TURNS = 8
RESULT_WORDS = 200
"""Words of a long result, about 300 tokens."""
IMITATION_STEPS, IMITATION_RATE = 60, 1e-3
WORDS = ("mill", "river", "tower", "of", "the", "old", "north", "gate", "stone", "field", "in", "a", "bridge", "was", "built", "by")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is played, with which model."""

    name: str
    config: RunConfig
    questions: list[Question]
    toolbox: Toolbox
    parameters: int


def demo_shape(config: RunConfig) -> Shape:
    """Make the demo's own shape: eight questions, eight episodes each; corpus and index are built or looked up."""
    indexed = open_indexed_corpus(config)
    questions = select_questions(indexed.questions["train"], 0)
    return Shape("demo", config, questions, indexed.toolbox, _count(config.policy.model))


def long_shape(directory: Path) -> Shape:
    """Make the long shape: one question, eight episodes; its model has learnt to call a tool in every turn, and nothing else.

    Args:
        directory: where the model is written.
    """
    torch.manual_seed(0)
    questions = [Question(f"q{i}", f"Who built the {word} of Norwick?", "nobody") for i, word in enumerate(WORDS[:4])]
    model, tokenizer = _make_long_model()
    _imitate_calls(model, tokenizer, questions)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    config = RunConfig(
        policy=PolicyConfig(model=str(directory), device="cpu"),
        searcher=SearcherConfig(max_turns=LONG_TURNS, max_turn_tokens=32, max_episode_tokens=3200, system_prompt=""),
        reward=RewardConfig(kind="random"),  # every group differs, so that every episode has a part in the update
        train=TrainConfig(questions_per_step=1, group_size=8, steps=1),
    )
    return Shape("long", config, questions, LongToolbox(), sum(weight.numel() for weight in model.parameters()))


class LongToolbox(Toolbox):
    """Answers every call with some 300 tokens that depend on its argument."""

    def __init__(self) -> None:
        super().__init__(Library([]), _NoIndex(), top_k=3, max_section_chars=1500)

    def serve(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """See `Toolbox.serve`."""
        return [ToolResult(_filler(call.argument, RESULT_WORDS), served=True) for call in calls]


class _NoIndex:
    key = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Any]]:
        """See `Index.search`."""
        return [[] for _ in queries]


def _filler(seed: str, words: int) -> str:
    chance = random.Random(seed)
    return " ".join(f"{chance.choice(WORDS)} {chance.randrange(1000, 9999)}" if k % 3 == 0 else chance.choice(WORDS) for k in range(words))


def _make_long_model() -> tuple[Any, Any]:
    from slmsearch.learn.tokenizer import build_tokenizer

    tokenizer = build_tokenizer([f"Who built the {word} of Norwick? {_filler(word, 60)}" for word in WORDS] * 3)
    sizes = {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "head_dim": 64,
        "intermediate_size": 1152,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return make_model(tokenizer, **sizes), tokenizer


def _imitate_calls(model: Any, tokenizer: Any, questions: Sequence[Question]) -> None:
    """Teach the model to answer everything it sees, near and far, with a call for a random page."""
    from slmsearch.environments.environment import Demonstration
    from slmsearch.generate.chat_renderer import ChatRenderer
    from slmsearch.learn.encoding import encode_demonstration

    chance, renderer = random.Random(0), ChatRenderer(tokenizer)
    optimiser = torch.optim.AdamW(model.parameters(), IMITATION_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 10) * (1 - step / IMITATION_STEPS))

    def call() -> str:
        return render_call(ToolCall(VIEW, str(chance.randrange(1000, 9999))))

    for step in range(IMITATION_STEPS):
        far = step % 4 == 3  # a few long episodes among many short ones
        rows = []
        for _ in range(2 if far else 8):
            turns = [
                (call(), _filler(str(chance.random()), RESULT_WORDS if far else chance.choice((8, 60)))) for _ in range(3 if far else 2)
            ]
            rows.append(
                encode_demonstration(Demonstration(chance.choice(questions).question, (*turns, (call(), ""))), renderer, RunConfig())
            )
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + [0] * (width - len(row.ids)) for row in rows])
        labels = torch.tensor([row.labels + [-100] * (width - len(row.ids)) for row in rows])
        optimiser.zero_grad()
        model(ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def _count(model: str) -> int:
    return measure_shape(RunConfig(policy=PolicyConfig(model=model))).parameters
