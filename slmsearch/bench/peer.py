"""The peer: TRL's own tool loop, with every advantage that its interface allows.

- The same model, questions, temperature, reward and number of episodes; all episodes of a step are generated in one batch.
- A chat template that renders its `tool_calls` in the very tokens the policy writes, and a response template, so that its parser is
  one regular expression and no call is lost.
- `max_new_tokens` of a turn as in our loop; without it a runaway turn could write until the episode is full.
- Tools call the same toolbox. It serves them one by one; query embeddings come from the same cache.
- Its update in the micro-batch size that is fastest of those tried (`PEER_MICRO_BATCHES`).

What it lacks is what is measured: it prefills the whole conversation anew in every turn, pads the update to the longest episode, and
computes log-probabilities for tool text.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from slmsearch.bench.shapes import Shape
from slmsearch.judge.exact import exact_match
from slmsearch.learn.grpo import make_adapter_config, make_arguments
from slmsearch.learn.training import load_trainable
from slmsearch.searcher.episode import ToolCall
from slmsearch.searcher.parsing import parse_turn
from slmsearch.searcher.prompt import make_prompt
from slmsearch.searcher.tools import READ, SEARCH, VIEW, Toolbox

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


def make_peer(shape: Shape, rows: list[int], steps: int, micro_batch: int, directory: Path, callback: Any) -> GRPOTrainer:
    """Make TRL's trainer for a shape.

    Args:
        shape: what is played.
        rows: questions of all steps, by position.
        steps: optimiser steps.
        micro_batch: episodes per forward and backward pass.
        directory: scratch.
        callback: a `TrainerCallback`.
    """
    config = shape.config
    model, tokenizer = load_trainable(config)
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    episodes = config.train.questions_per_step * config.train.group_size
    ours = make_arguments(config, directory, steps, use_cpu=True)
    settings = {
        name: getattr(ours, name)
        for name in ("seed", "num_generations", "learning_rate", "temperature", "loss_type", "scale_rewards", "beta", "epsilon_high",
                     "mask_truncated_completions", "max_completion_length", "max_grad_norm", "lr_scheduler_type")
    }  # fmt: skip
    arguments = GRPOConfig(
        output_dir=str(directory),
        max_steps=steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=episodes // micro_batch,
        generation_kwargs={"max_new_tokens": config.searcher.max_turn_tokens},
        max_tool_calling_iterations=config.searcher.max_turns - 1,
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_dropout=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        dataloader_pin_memory=False,
        **settings,
    )
    prompts = [[dict(m) for m in make_prompt(question.question, config.searcher) if m["role"] == "user"] for question in shape.questions]
    return GRPOTrainer(
        model=model,
        reward_funcs=_make_reward(shape),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [prompts[i] for i in rows]}),
        processing_class=tokenizer,
        peft_config=make_adapter_config(config.train.lora),
        environment_factory=make_environment(shape.toolbox),
        callbacks=[callback],
    )


def _make_reward(shape: Shape) -> Callable[..., list[float | None]]:
    answers = {question.question: question.answers for question in shape.questions}
    chance = random.Random(0)

    def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float | None]:
        scores: list[float | None] = []
        for prompt, completion in zip(prompts, completions, strict=True):
            content = completion[-1].get("content") if completion else ""
            answer = parse_turn(content or "").answer
            calls = sum(bool(message.get("tool_calls")) for message in completion)
            if shape.config.reward.kind == "random":
                scores.append(chance.random())
                continue
            scores.append(float(exact_match(answer, answers[prompt[0]["content"]])) * (1 - 0.02 * calls))
        return scores

    return reward
