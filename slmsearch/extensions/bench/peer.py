"""The peer: TRL's own tool loop, with every advantage that its interface allows.

- The same model, questions, temperature, reward and number of episodes; all episodes of a step are generated in one batch.
- A chat template that renders its `tool_calls` in the very tokens the policy writes, and a response template, so that its parser is
  one regular expression and no call is lost.
- `max_new_tokens` of a turn as in our loop; without it a runaway turn could write until the episode is full.
- Tools call the same toolbox. It serves them one by one; query embeddings come from the same cache.
- Its update in the micro-batch size that is fastest of those tried (`PEER_MICRO_BATCHES`).

The measured difference is the work that it cannot avoid: it prefills the whole conversation anew in every turn, pads the update to the
longest episode, and computes log-probabilities for tool text.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from transformers.trainer_utils import SaveStrategy
from trl import GRPOTrainer

from slmsearch.environments.searcher.parsing import parse_turn
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW, Toolbox
from slmsearch.episodes.episode import ToolCall
from slmsearch.extensions.bench.shapes import BenchShape
from slmsearch.judge.exact import typed_match
from slmsearch.training.grpo_settings import make_adapter_config, make_arguments, order_questions
from slmsearch.training.training_run import load_trainable

CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|question|>{{ message['content'] }}"
    "{% elif message['role'] == 'tool' %}<|result|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|turn|>{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool>{{ call['function']['name'] }}("
    "{% for name, value in call['function']['arguments'].items() %}{{ name }}=\"{{ value }}\"{% endfor %})</tool>{% endfor %}"
    "<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|turn|>{% endif %}"
)
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|turn|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool>(?P<name>\w+)\(\"",
            "close_pattern": r"\"\)</tool>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": {"argument": "{content}"}}},
        },
        "content": {"close_pattern": r"<\|end\|>", "content": "text"},
    },
}
CHATML_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool>{{ call['function']['name'] }}("
    "{% for name, value in call['function']['arguments'].items() %}{{ name }}=\"{{ value }}\"{% endfor %})</tool>{% endfor %}"
    "<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_RESPONSE = {
    **RESPONSE_TEMPLATE,
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {**RESPONSE_TEMPLATE["fields"], "content": {"close_pattern": r"<\|im_end\|>", "content": "text"}},  # type: ignore[dict-item]
}
"""The same for SmolLM2."""


def make_environment(toolbox: Toolbox) -> type:
    """Make the environment class whose public methods TRL offers as tools."""

    class Corpus:
        """The three tools."""

        def reset(self, **_: Any) -> None:
            """Begin an episode."""

        def search_pages(self, argument: str) -> str:
            """List the best pages.

            Args:
                argument: query.
            """
            return toolbox.serve([ToolCall(SEARCH, argument)])[0].text

        def view_sections(self, argument: str) -> str:
            """List a page's sections.

            Args:
                argument: page id.
            """
            return toolbox.serve([ToolCall(VIEW, argument)])[0].text

        def read_section(self, argument: str) -> str:
            """Show a section.

            Args:
                argument: section id.
            """
            return toolbox.serve([ToolCall(READ, argument)])[0].text

    return Corpus


def make_peer(shape: BenchShape, micro_batch: int, directory: Path, callback: TrainerCallback, with_vllm: bool = False) -> GRPOTrainer:
    """Make TRL's trainer for a shape, with this project's arguments and a number of episodes per forward pass; it takes one step.

    It samples with transformers' generation, or with a vLLM of its own on the same card.
    """
    config, train = shape.config, shape.config.train
    backend = {"train.vllm.mode": "colocate" if with_vllm else "off"}
    accumulating = config.changed({"train.accumulation": shape.episodes // micro_batch, **backend})
    arguments = make_arguments(SearcherEnvironment(accumulating), directory, 1, use_cpu=config.policy.device == "cpu")
    arguments.save_strategy = SaveStrategy.NO
    arguments.generation_kwargs = {"max_tokens" if with_vllm else "max_new_tokens": config.searcher.max_turn_tokens}
    arguments.max_tool_calling_iterations = config.searcher.max_turns - 1
    model, tokenizer = load_trainable(config.policy)
    if shape.name == "real":
        tokenizer.chat_template, tokenizer.response_template = CHATML_TEMPLATE, CHATML_RESPONSE
    else:
        tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    asked = [shape.questions[i].question for i in order_questions(len(shape.questions), train.questions_per_step, train.seed)]
    roles = ("system", "user") if shape.name == "real" else ("user",)
    prompts = [[dict(m) for m in make_prompt(question, config.searcher) if m["role"] in roles] for question in asked]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=_make_reward(shape),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        peft_config=make_adapter_config(train.lora),
        environment_factory=make_environment(shape.toolbox),
        callbacks=[callback],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _make_reward(shape: BenchShape) -> Callable[..., list[float | None]]:
    answers, chance = {question.question: question.answers for question in shape.questions}, random.Random(0)

    def score(asked: str, messages: list[Any]) -> float:
        if shape.config.reward.kind == "random":
            return chance.random()
        answer = parse_turn((messages[-1].get("content") if messages else "") or "").answer
        return float(typed_match(answer, answers[asked])) * (1 - 0.02 * sum(bool(message.get("tool_calls")) for message in messages))

    def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float | None]:
        return [score(prompt[-1]["content"], completion) for prompt, completion in zip(prompts, completions, strict=True)]

    return reward
