"""The two shapes on which rollouts are measured.

demo   tiny-searcher on the demo world: short results, episodes of very different length
long   11 million weights, 8 turns, results of some 300 tokens: every turn shows ten times what the policy writes
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import torch

from slmsearch.config import PolicyConfig, RewardConfig, RunConfig, SearcherConfig, SftConfig, TrainConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.demonstrations import TitleIndex
from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
from slmsearch.environments.searcher.parsing import render_call
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import VIEW, Toolbox
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.episodes.teaching import select_questions
from slmsearch.training.bootstrap import build_tokenizer, make_model
from slmsearch.training.encoding import Encoded, encode_demonstration
from slmsearch.training.memory import measure_shape
from slmsearch.training.sft import Lesson, train_sft

LONG_TURNS = 8
RESULT_WORDS = 200
"""Words of a long result, about 300 tokens."""
LONG_MODEL = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 64,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
WORDS = ("mill", "river", "tower", "of", "the", "old", "north", "gate", "stone", "field", "in", "a", "bridge", "was", "built", "by")


LONG_QUESTIONS = tuple(Question(f"q{i}", f"Who built the {word} of Norwick?", "nobody") for i, word in enumerate(WORDS[:4]))


@dataclass(frozen=True, slots=True)
class BenchShape:
    """Questions, episodes and model of a measurement."""

    name: str
    config: RunConfig
    questions: list[Question]
    toolbox: Toolbox
    parameters: int

    @property
    def episodes(self) -> int:
        """Return the number of episodes of a step."""
        return self.config.train.questions_per_step * self.config.train.group_size


def demo_shape(config: RunConfig) -> BenchShape:
    """Make the demo's own shape: eight questions, eight episodes each; corpus and index are built or looked up."""
    return replace(reopen_shape("demo", config), parameters=measure_shape(config).parameters)


def reopen_shape(name: str, config: RunConfig) -> BenchShape:
    """Open a shape that was made before by its name and settings; its parameters are not counted."""
    if name == "long":
        return BenchShape(name, config, list(LONG_QUESTIONS), LongToolbox(), 0)
    indexed = open_indexed_corpus(config)
    return BenchShape(name, config, select_questions(indexed.questions["train"], 0), indexed.toolbox, 0)


def long_shape(directory: Path) -> BenchShape:
    """Make the long shape: one question, eight episodes; its model, written here, has learnt to call a tool in every turn."""
    torch.manual_seed(0)
    questions = list(LONG_QUESTIONS)
    tokenizer = build_tokenizer([f"Who built the {word} of Norwick? {filler(word, 60)}" for word in WORDS] * 3)
    model = make_model(tokenizer, **LONG_MODEL)
    settings = SftConfig(steps=60, learning_rate=1e-3, batch_size=8, context_weight=0.0)
    train_sft(Lesson(model, tokenizer, settings, lambda: _calls(questions, ChatRenderer(tokenizer))), directory)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    config = RunConfig(
        policy=PolicyConfig(model=str(directory), device="cpu"),
        searcher=SearcherConfig(max_turns=LONG_TURNS, max_turn_tokens=32, max_episode_tokens=3200, system_prompt=""),
        reward=RewardConfig(kind="random"),  # every group differs, so that every episode has a part in the update
        train=TrainConfig(questions_per_step=1, group_size=8, steps=1),
    )
    return BenchShape("long", config, questions, LongToolbox(), sum(weight.numel() for weight in model.parameters()))


class LongToolbox(Toolbox):
    """Toolbox that answers every call with a fixed number of words that depend on its argument."""

    def __init__(self, words: int = RESULT_WORDS) -> None:
        self.words = words
        super().__init__(Library([]), TitleIndex(Library([])), top_k=3, max_section_chars=1500)

    def serve(self, calls: Sequence[ToolCall], views: Sequence[View | None] = ()) -> list[ToolResult]:
        """See `Toolbox.serve`."""
        return [ToolResult(filler(call.argument, self.words), served=True) for call in calls]


def filler(seed: str, words: int) -> str:
    """Write this number of words, every third with a number; the same seed gives the same ones."""
    chance = random.Random(seed)
    return " ".join(f"{chance.choice(WORDS)} {chance.randrange(1000, 9999)}" if k % 3 == 0 else chance.choice(WORDS) for k in range(words))


def _calls(questions: Sequence[Question], renderer: ChatRenderer) -> Iterator[Encoded]:
    """Answer everything that is seen, near and far, with a call for a random page: one long episode among seven short ones."""
    chance = random.Random(0)
    for number in count(1):
        far = number % 8 == 0
        lengths = [RESULT_WORDS] * 3 if far else [chance.choice((8, 60)) for _ in range(2)]
        results = (*(filler(str(chance.random()), words) for words in lengths), "")
        turns = tuple((render_call(ToolCall(VIEW, str(chance.randrange(1000, 9999)))), result) for result in results)
        yield encode_demonstration(Demonstration(chance.choice(questions).question, turns), renderer, SearcherEnvironment(RunConfig()))
