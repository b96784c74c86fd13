"""Imitating where a group has no right episode: which ones, and with what gradient."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from slmsearch.corpus.questions import Question
from slmsearch.errors import ConfigError
from slmsearch.generate.attention import use_attention
from slmsearch.learn.encoding import IGNORED, Encoded
from slmsearch.learn.imitation import encode_gold, imitation_loss, pick_imitated
from tests.slmsearch.evaluate.builders import fail, make

GOLD = {f"Who? {i}": Encoded([5, 6, 7, 8 + i, 20], [IGNORED, IGNORED, 7, 8 + i, IGNORED], 2) for i in range(4)}


def rows(*verdicts):
    return [fail(f"q{i}") if verdict is None else make(f"q{i}", verdict) for i, verdict in enumerate(verdicts)]


def test_only_groups_that_are_wrong_throughout_and_have_a_demonstration_are_imitated():
    questions = [Question(f"q{i}", f"Who? {i}", "x") for i in (0, 0, 1, 1, 2, 2, 9, 9)]
    found = pick_imitated(questions, rows(False, True, False, False, None, False, False, False), 2, GOLD)
    assert found == [GOLD["Who? 1"]], "the first group is right once, a service broke in the third, of the fourth nothing is known"


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    use_attention(model)
    return model


def test_the_loss_is_the_mean_over_what_was_written_times_the_share_of_groups(model):
    imitated = [GOLD["Who? 0"], GOLD["Who? 1"]]
    logits = [model(torch.tensor([example.ids])).logits[0].log_softmax(-1) for example in imitated]
    tokens = [-found[i - 1, example.ids[i]] for found, example in zip(logits, imitated, strict=True) for i in (2, 3)]
    wanted = torch.stack(tokens).mean() * 2 / 4
    found = imitation_loss(model, imitated, groups=4)
    torch.testing.assert_close(found, wanted)
    gradients = []
    for loss in (wanted, found):
        model.zero_grad()
        loss.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_without_any_gold_section_imitation_is_refused():
    class Nothing:
        config = limits = None

        def demonstrate(self, questions):
            return []

    with pytest.raises(ConfigError, match="gold demonstrations"):
        encode_gold([], Nothing(), None)
