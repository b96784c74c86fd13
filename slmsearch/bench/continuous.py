"""transformers' own continuous batching beside the torch sampler: one greedy turn of a whole batch from its prompts.

The library's manager is kept between runs and sized for the batch (left to itself it takes most of the machine's memory and seconds to
fill it); what neither side does here is the next turn, for which the library would look its prefix up and prefill the rest.
"""

import logging
import time
from statistics import median
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from slmsearch.bench.shapes import Shape
from slmsearch.generate.sampler import Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.learn.training import load_trainable
from slmsearch.searcher.prompt import make_prompt

PAGE_TOKENS = 16


def compare_continuous(shape: Shape, runs: int) -> dict[str, Any]:
    """Time both, in turn; the first run of each is the warm-up.

    Returns:
        Median seconds of each side, library over ours, and the share of turns in which both wrote the same.
    """
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    model, tokenizer = load_trainable(shape.config)
    train, limit = shape.config.train, shape.config.searcher.max_turn_tokens
    questions = shape.questions[: train.questions_per_step]
    prompts = [make_prompt(question.question, shape.config.searcher) for question in questions for _ in range(train.group_size)]
    sampler = TorchSampler(model.eval(), tokenizer, shape.config.searcher.tool_role)
    end_id, everyone = sampler.renderer.end_id, list(range(len(prompts)))
    settings = GenerationConfig(max_new_tokens=limit, do_sample=False, eos_token_id=end_id, pad_token_id=end_id)
    times: dict[str, list[float]] = {"ours": [], "library": []}
    same = 0
    for _ in range(runs + 1):
        started = time.perf_counter()
        ids = sampler.open(prompts, Sampling(max_new_tokens=limit))
        turns = sampler.sample(everyone, [None] * len(prompts), [shape.config.searcher.max_episode_tokens] * len(prompts))
        times["ours"].append(time.perf_counter() - started)
        pages = len(ids) * -(-(max(map(len, ids)) + limit) // PAGE_TOKENS)
        sized = ContinuousBatchingConfig(
            num_blocks=pages, page_size=PAGE_TOKENS, max_batch_tokens=sum(map(len, ids)), use_cuda_graph=False, use_async_batching=False
        )
        started = time.perf_counter()
        with torch.no_grad():
            outputs = model.generate_batch([list(prompt) for prompt in ids], settings, sized, persistent_manager=True, warmup=False)
        times["library"].append(time.perf_counter() - started)
        found = [tuple(output.generated_tokens) for output in outputs.values()]
        same = sum(a == b for a, b in zip(sorted(turn.sampled_ids for turn in turns), sorted(found), strict=True))
    medians = {f"{side}_s": median(values[1:]) for side, values in times.items()}
    ratio = median(b / a for a, b in zip(times["ours"][1:], times["library"][1:], strict=True))
    return {**medians, "ratio": ratio, "same_frac": same / len(prompts)}
