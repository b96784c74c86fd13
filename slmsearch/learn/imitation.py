"""Imitating only where the policy is wrong: in a group without a right episode, which has nothing to compare, its question's gold
demonstration is imitated in the same update. Source: DGPO (arXiv 2508.20324), whose demonstrations are a teacher model's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from slmsearch.corpus.questions import Question
from slmsearch.environments.environment import Environment
from slmsearch.environments.rows import EpisodeRow
from slmsearch.errors import ConfigError
from slmsearch.generate.chat_renderer import ChatRenderer
from slmsearch.learn.encoding import Encoded, encode_demonstration, fits
from slmsearch.learn.losses import causal_of, token_losses
from slmsearch.learn.memory import TOKENS_PER_BLOCK
from slmsearch.learn.sft import tree_parts
from slmsearch.learn.tree import attention_width, tree_hidden


def encode_gold(questions: Sequence[Question], environment: Environment, renderer: ChatRenderer) -> dict[str, Encoded]:
    """Encode gold demonstrations of questions, by the questions' texts; those that do not fit or cannot be made are left out.

    Raises:
        ConfigError: none is left.
    """
    config = environment.config
    encoded = {shown.question: encode_demonstration(shown, renderer, config) for shown in environment.demonstrate(questions)}
    found = {text: example for text, example in encoded.items() if fits(example, environment.limits)}
    if not found:
        raise ConfigError("train.imitation needs gold demonstrations, and no training question has one that fits; set it to 0")
    return found


def pick_imitated(questions: Sequence[Question], rows: Sequence[EpisodeRow], group_size: int, gold: Mapping[str, Encoded]) -> list[Encoded]:
    """Pick the demonstrations of groups without a right episode."""
    wrong = [
        questions[first].question
        for first in range(0, len(rows), group_size)
        if not any(row.correct or row.failed for row in rows[first : first + group_size])
    ]
    return [gold[text] for text in wrong if text in gold]


def imitation_loss(model: Any, imitated: Sequence[Encoded], groups: int) -> Tensor:
    """Compute the mean cross-entropy of what the demonstrators wrote, times the share of groups that are imitated.

    Args:
        model: as trained; trees of tokens are sent through it.
        imitated: demonstrations, one of a group.
        groups: of the update.
    """
    causal, device = causal_of(model), model.device
    total, written = torch.zeros((), device=device), 0.0
    rows, labels = [example.ids for example in imitated], [example.labels for example in imitated]
    for part in tree_parts(rows, labels, TOKENS_PER_BLOCK, attention_width(causal), device):
        needed = part.written > 0
        before, behind = part.pairs[:, needed]
        total = total + (token_losses(causal, tree_hidden(model, causal, part.tree)[before], behind) * part.written[needed]).sum()
        written += float(part.written.sum())
    return total / max(1.0, written) * len(imitated) / groups
