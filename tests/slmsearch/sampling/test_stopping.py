"""Where turns stop, with real tokenizers: a script plays the model, so that every backend samples the same tokens."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedConfig

from slmsearch.config import RunConfig, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.parsing import TOOL_STOPS
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.chat_renderer import CUT, ChatRenderer
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.sampler import Sampling
from slmsearch.sampling.engine_sampler import Completion, EngineSampler
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training.preflight import check_mask
from tests.slmsearch.environments.searcher.test_rollout import LIBRARY, DictIndex

NAMES = ("tiny-searcher", "smollm2", "qwen2.5", "qwen3", "qwen3-instruct-2507")
CALL = '<tool>search_pages("Mira")</tool>'
QUESTION = Question("q1", "When was Mira Talvoren born?", "1823")


class Script:
    """A model whose likeliest next token is that of a script: ids of one turn after the other, then the end-of-turn token."""

    config = PreTrainedConfig()

    def __init__(self, tokenizer, turns):
        self.device, self.size = torch.device("cpu"), len(tokenizer)
        self.renderer = ChatRenderer(tokenizer)
        self.turns = [[*self.renderer.content_ids(turn), self.renderer.end_id] for turn in turns]
        self.turn, self.begun = -1, 0
        self.fed = []

    def parameters(self):
        return []

    def __call__(self, input_ids, position_ids, logits_to_keep, cache, **_):
        """Write what the script has at each position; guesses that are not the script's are forgotten by whoever made them."""
        cache.update(*torch.zeros(2, *input_ids.shape, 1)[:, :, None], 0)
        ids, positions = input_ids[0].tolist(), position_ids[0].tolist()
        if len(ids) > 1 and len(logits_to_keep) == 1:  # a context: the next turn begins
            self.turn, self.begun = self.turn + 1, positions[-1]
        self.fed = [*self.fed[: positions[0]], *ids]
        turn = self.turns[self.turn]
        logits = torch.full((1, len(logits_to_keep), self.size), -9.0)
        for place, position in enumerate(positions[-len(logits_to_keep) :]):
            logits[0, place, turn[min(position - self.begun, len(turn) - 1)]] = 9.0
        return SimpleNamespace(logits=logits)


class ScriptEngine:
    """The same script as an engine that stops where vLLM does: with the first stop text, wherever that stands."""

    def __init__(self, tokenizer, turns, stops=True):
        self.renderer, self.stops = ChatRenderer(tokenizer), stops
        self.turns = [[*self.renderer.content_ids(turn), self.renderer.end_id] for turn in turns]
        self.history, self.turn, self.left = (), -1, []

    def complete(self, requests, temperature, end_id):
        (request,) = requests
        if request.history != self.history:  # no turn to be gone on with
            self.turn += 1
            self.left = list(self.turns[self.turn])
        ids = []
        while self.left and len(ids) < request.max_tokens:
            ids.append(self.left.pop(0))
            if ids[-1] == end_id or (self.stops and any(stop in self.renderer.decode(ids) for stop in request.stop)):
                break
        self.history = (*request.history, *ids)
        return [Completion(tuple(ids), (0.0,) * len(ids))]


def play(sampler, room=2000, turn_tokens=400, results=("4821: Mira",)):
    """Play one turn per result and one more; return the prompt and the turns."""
    (prompt,) = sampler.open([[{"role": "user", "content": "Who?"}]], Sampling(0.0, 0, turn_tokens, stop=TOOL_STOPS))
    turns = []
    for result in (None, *results):
        (turn,) = sampler.sample([0], [result], [room - sum(len(t.context_ids) + len(t.sampled_ids) for t in turns)])
        turns.append(turn)
    sampler.close()
    return prompt, turns


@pytest.fixture(params=NAMES)
def tokenizer(request, real_tokenizers):
    return real_tokenizers[request.param]


@pytest.mark.parametrize("after", ["", "\n", "\n\nI hope it is there.", " and then", ">>", "</s>", ".</tool>"])
def test_a_turn_stops_with_the_token_that_completes_a_closing_tag(tokenizer, after):
    turns = (f"I look.\n{CALL}{after}", f"<answer>1823</answer>{after}")
    renderer = ChatRenderer(tokenizer)
    for sampler in (TorchSampler(Script(tokenizer, turns), tokenizer), EngineSampler(ScriptEngine(tokenizer, turns), tokenizer)):
        prompt, (first, second) = play(sampler)
        for turn, text, tag in ((first, turns[0], "</tool>"), (second, turns[1], "</answer>")):
            whole = renderer.content_ids(text)
            assert turn.ended
            assert list(turn.sampled_ids) == whole[: len(turn.sampled_ids)], "what was sampled is kept as it is"
            assert tag in turn.text
            assert tag not in renderer.decode(turn.sampled_ids[:-1]), "not one token more"
            assert len(turn.sampled_logprobs) == len(turn.sampled_ids)
        assert first.context_ids == ()
        assert second.context_ids == (renderer.end_id, *renderer.encode_result("4821: Mira"))
        assert tokenizer.decode((*prompt, *first.sampled_ids, *second.context_ids)) == tokenizer.apply_chat_template(
            [
                {"role": "user", "content": "Who?"},
                {"role": "assistant", "content": first.text},
                {"role": "tool", "content": "4821: Mira"},
            ],
            tokenize=False,
            add_generation_prompt=True,
        )


def test_closing_tags_straddle_tokens(real_tokenizers):
    """Otherwise the tests above would show nothing."""
    renderer = ChatRenderer(real_tokenizers["qwen2.5"])
    ids = renderer.content_ids(f"{CALL}\n\nI hope")
    length = renderer.stop_length(ids, TOOL_STOPS)
    assert renderer.decode(ids[:length]) == f"{CALL}\n\n"
    assert renderer.decode(ids[length - 3 : length]) == "</tool>\n\n"


def test_a_turn_that_the_policy_ended_itself_needs_no_closing(tokenizer):
    renderer = ChatRenderer(tokenizer)
    _, (first, second) = play(TorchSampler(Script(tokenizer, ("no call", "<answer>x</answer>")), tokenizer))
    assert first.sampled_ids[-1] == renderer.end_id
    assert second.context_ids == renderer.encode_result("4821: Mira")


def test_an_engine_that_knows_no_stop_texts_comes_to_the_same(tokenizer):
    turns = (f"{CALL}\nI hope it is there.", "<answer>1823</answer> or so")
    knowing, other = (play(EngineSampler(ScriptEngine(tokenizer, turns, stops), tokenizer)) for stops in (True, False))
    assert knowing == other


@pytest.mark.parametrize("backend", ["torch", "engine"])
def test_what_is_thought_stops_nothing(real_tokenizers, backend):
    tokenizer = real_tokenizers["qwen3"]
    turns = (f"<think>I could write {CALL}, or <answer>1</answer>?</think>{CALL} and", "<answer>1823</answer>")
    model = Script(tokenizer, turns)
    sampler = TorchSampler(model, tokenizer) if backend == "torch" else EngineSampler(ScriptEngine(tokenizer, turns), tokenizer)
    _, (first, second) = play(sampler)
    assert first.text == f"<think>I could write {CALL}, or <answer>1</answer>?</think>{CALL}"
    assert first.ended and second.text == "<answer>1823</answer>"


def test_a_result_that_does_not_fit_is_shortened_and_says_so(tokenizer):
    result = "It rains in Norwick. " * 60
    turns = (CALL, "<answer>1823</answer>")
    for sampler in (TorchSampler(Script(tokenizer, turns), tokenizer), EngineSampler(ScriptEngine(tokenizer, turns), tokenizer)):
        _, (first, second) = play(sampler, room=160, results=(result,))
        assert second.shown.endswith(CUT)
        assert result.startswith(second.shown.removesuffix(CUT))
        assert second.text == "<answer>1823</answer>"
        assert len(first.sampled_ids) + len(second.context_ids) + len(second.sampled_ids) <= 160
        assert second.shown in tokenizer.decode(second.context_ids)
    _, (_, second) = play(TorchSampler(Script(tokenizer, turns), tokenizer), room=40, results=(result,))
    assert (second.sampled_ids, second.ended, second.shown) == ((), False, None)


def test_episodes_with_real_templates_are_token_exact(tokenizer):
    """Prose, told; a call with prose after it; an answer: mask, ids and texts belong together, and the last token is the policy's."""
    turns = ("I think so.", f"{CALL}\n\nI hope.", "<answer>1823</answer>")
    sampler = TorchSampler(Script(tokenizer, turns), tokenizer)
    toolbox = Toolbox(LIBRARY, DictIndex(), top_k=3, max_section_chars=200)
    limits = SearcherConfig(max_turn_tokens=100, max_episode_tokens=2000)
    (episode,) = play_episodes([QUESTION], sampler, toolbox, limits, Sampling(max_new_tokens=100))
    assert (episode.stop_reason, episode.answer, episode.num_told) == (StopReason.ANSWERED, "1823", 1)
    assert episode.sampled_mask[-1] == 1
    held = [*episode.prompt_ids, *episode.completion_ids][:-1]
    assert sampler.model.fed[: len(held)] == held  # behind it stand guesses that came too late
    renderer = sampler.renderer
    assert check_mask([episode], [episode.completion_ids], [episode.sampled_mask], renderer).passed
    shifted = replace(episode, turns=(*episode.turns[:-1], replace(episode.turns[-1], text="<answer>1</answer>")))
    assert not check_mask([shifted], [episode.completion_ids], [episode.sampled_mask], renderer).passed


@pytest.mark.parametrize("role", ["tool", "user"])
def test_preflight_accepts_the_real_tokenizers(tokenizer, role):
    renderer = ChatRenderer(tokenizer, role)
    checks = list(islice(SearcherEnvironment(RunConfig()).checks(renderer), 2))
    assert [check.name for check in checks] == ["tool calls", "template"] and all(check.passed for check in checks)
