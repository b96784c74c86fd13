"""How supervised training computes: grouped-query attention, the mean over an update, the head where a loss is, the prompt."""

from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from slmsearch.config import LoraSection, PlannerConfig, PolicyConfig, RunConfig, SearcherConfig, SftConfig
from slmsearch.environments.planner.plan_prompt import make_plan_prompt
from slmsearch.environments.registry import environment_of
from slmsearch.environments.searcher.demonstrations import make_demonstrations
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ModelError
from slmsearch.models.hashes import read_base
from slmsearch.models.load import load_model
from slmsearch.sampling.torch_sampler import TorchSampler
from slmsearch.training import losses, sft, streams, teach
from slmsearch.training.bootstrap import build_tokenizer
from slmsearch.training.check_head import CHECKED_IDS
from slmsearch.training.encoding import IGNORED, encode_demonstration
from slmsearch.training.fused_lora import fused_lora, lower_frozen, unchanged_adapters
from slmsearch.training.grpo_settings import make_adapter_config
from slmsearch.training.sft import WIDE_STEP, EpisodeBatches, Lesson, train_sft
from slmsearch.training.streams import demonstrated, repeated
from slmsearch.training.teach import load_student
from slmsearch.training.tree import TreeCheck, tree_inputs

CHATML = (
    "{% for message in messages %}<|question|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
"""Prints every message, the system message too, as the templates of instruct models do and tiny-searcher's does not."""


class SmallWorlds(SftConfig):
    pages_per_world: ClassVar[int] = 80
    episodes_per_world: ClassVar[int] = 100


@pytest.fixture(scope="module")
def tokenizer():
    texts = (
        "\n".join([d.question, *(part for turn in d.turns for part in turn)])
        for d in make_demonstrations(SmallWorlds(recipe="expert"), 3, 0)
    )
    return build_tokenizer(islice(texts, 200))


@pytest.fixture
def make_llama(one_thread, tokenizer):
    """Make a Llama whose query heads share key heads, as SmolLM2's do."""

    def make():
        torch.manual_seed(0)
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, max_position_embeddings=1024, **sizes)
        config.eos_token_id, config.pad_token_id, config.bos_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id, None
        return LlamaForCausalLM(config)

    return make


@pytest.fixture
def episodes(tokenizer):
    return list(islice(demonstrated(ChatRenderer(tokenizer), environment_of(RunConfig()), SmallWorlds(recipe="expert")), 8))


def train(model, tokenizer, episodes, tmp_path, monkeypatch, exact=True, **settings):
    """Train and return the logged mean loss."""
    if exact:
        monkeypatch.setattr(sft, "has_bf16", lambda: False)
    logs = {}
    config = SftConfig(**{"steps": 1, "batch_size": 8, "tokens_per_batch": 8192, "context_weight": 0.0, **settings})
    lesson = Lesson(model, tokenizer, config, lambda: repeated(episodes, 0))
    train_sft(lesson, tmp_path / "scratch", lambda _, log: logs.update(log))
    return logs["train_loss"]


def reference(model, episodes, context_weight=0.0):
    """The mean over all written tokens, episode by episode and without padding, from the model's own logits."""
    written, context = [], []
    with torch.no_grad():
        for episode in episodes:
            ids = torch.tensor([episode.ids])
            losses = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1].float(), ids[0, 1:], reduction="none")
            is_written = torch.tensor(episode.labels)[1:] != IGNORED
            written.append(losses[is_written])
            context.append(losses[~is_written])
    return float(torch.cat(written).mean() + context_weight * torch.cat(context).mean())


@pytest.mark.parametrize("context_weight", [0.0, 0.3])
def test_the_loss_of_a_model_with_grouped_heads_is_the_mean_over_the_update(
    make_llama, tokenizer, episodes, tmp_path, monkeypatch, context_weight
):
    model = make_llama()
    wanted = reference(model.eval(), episodes, context_weight)
    found = train(model, tokenizer, episodes, tmp_path, monkeypatch, context_weight=context_weight)
    assert found == pytest.approx(wanted, rel=1e-5)


def test_how_an_update_is_cut_changes_neither_its_loss_nor_its_gradient(make_llama, tokenizer, episodes, tmp_path, monkeypatch):
    cut = EpisodeBatches(lambda: repeated(episodes, 0), 0, SftConfig(batch_size=8, tokens_per_batch=512))
    assert len(next(iter(cut))["parts"]) > 3
    found = {}
    for tokens in (512, 8192):
        gradients = []
        model = make_llama()
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(lambda weight, into=gradients: into.append((id(weight), weight.grad.clone())))
        loss = train(model, tokenizer, episodes, tmp_path, monkeypatch, tokens_per_batch=tokens)
        last = dict(gradients)
        found[tokens] = loss, [last[id(weight)] for weight in model.parameters()]
    assert found[512][0] == pytest.approx(found[8192][0], rel=1e-5)
    for one, other in zip(found[512][1], found[8192][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("context_weight", [0.0, 0.3])
def test_trees_of_an_update_give_the_gradient_of_its_rows(make_llama, tokenizer, episodes, tmp_path, monkeypatch, context_weight):
    found, sent = [], []
    monkeypatch.setattr(sft, "tree_inputs", lambda causal, tree: sent.append(len(tree.ids)) or tree_inputs(causal, tree))
    for trees in (True, False):
        if not trees:
            monkeypatch.setattr(sft, "compare", lambda *_, **__: TreeCheck(1.0, passed=False))
        gradients, model = [], make_llama()
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(lambda weight, into=gradients: into.append((id(weight), weight.grad.clone())))
        loss = train(model, tokenizer, episodes, tmp_path, monkeypatch, context_weight=context_weight)
        last = dict(gradients)
        found.append((loss, [last[id(weight)] for weight in model.parameters()]))
    histories = {tuple(episode.ids[:end]) for episode in episodes for end in range(1, len(episode.ids) + 1)}
    assert len(histories) <= sum(sent[1:]) < len(histories) + WIDE_STEP, "every history once"
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_model_whose_attention_knows_no_trees_is_taught_row_by_row(tokenizer, episodes, tmp_path, monkeypatch, caplog):
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = MistralForCausalLM(MistralConfig(vocab_size=len(tokenizer), sliding_window=64, pad_token_id=tokenizer.pad_token_id, **sizes))
    wanted = reference(model.eval(), episodes)
    assert train(model, tokenizer, episodes, tmp_path, monkeypatch) == pytest.approx(wanted, rel=1e-5)
    assert "row by row" in caplog.text


def test_a_head_in_tiles_has_the_same_gradient(make_llama, tokenizer, monkeypatch):
    model, found = make_llama(), []
    hidden = torch.randn(50, 48, requires_grad=True)
    targets = torch.randint(0, len(tokenizer), (50,))
    for values in (16 << 20, 7 * len(tokenizer)):
        monkeypatch.setattr(losses, "TILE_VALUES", values)
        model.zero_grad(), setattr(hidden, "grad", None)
        found_losses = losses.token_losses(model, hidden, targets)
        found_losses.sum().backward()
        found.append((found_losses.detach(), hidden.grad, model.lm_head.weight.grad.clone()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_gradient_of_a_large_vocabulary_is_that_of_float64():
    torch.manual_seed(0)
    logits, ids = 3 * torch.randn(20, 49152), torch.randint(0, 49152, (20,))
    model = SimpleNamespace(config=LlamaConfig(vocab_size=49152), get_output_embeddings=lambda: torch.nn.Identity())
    exact, ours = logits.double().requires_grad_(), logits.requires_grad_()
    cross_entropy(exact, ids, reduction="none").sum().backward()
    losses.token_losses(model, ours, ids).sum().backward()
    # A probability's relative error is what the sum over the vocabulary is off: torch's own cross-entropy is off by 2e-5 on the CPU.
    assert float((ours.grad.double() / exact.grad - 1).abs().max()) < 5e-6


def test_logits_are_computed_for_written_tokens_only(make_llama, tokenizer, episodes, tmp_path, monkeypatch):
    model, rows = make_llama(), []
    model.lm_head.register_forward_hook(lambda head, args, logits: rows.append(args[0].shape[0]))
    train(model, tokenizer, episodes, tmp_path, monkeypatch)
    assert rows[:2] == [1, CHECKED_IDS - 1], "the scale of the logits is checked once"
    del rows[:2]
    checked = 2 * rows[0]  # the first micro-batch is computed row by row, and over its trees, before the update
    assert sum(rows) - checked == sum(label != IGNORED for episode in episodes for label in episode.labels)


def test_frozen_layers_in_bfloat16_change_no_output_of_autocast(make_llama):
    from peft import get_peft_model

    model = get_peft_model(make_llama(), make_adapter_config(LoraSection(r=4)))
    ids = torch.arange(5, 45)[None]

    def logits():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return model(ids).logits

    before = logits()
    lower_frozen(model)
    assert torch.equal(before, logits())
    assert {weight.dtype for weight in model.parameters() if weight.requires_grad} == {torch.float32}
    assert model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight.dtype == torch.bfloat16


def test_a_demonstration_has_the_prompt_that_the_rollout_opens_with(make_llama, tokenizer):
    """With a template that prints the system message: training by reward and evaluation encode the same ids."""
    import copy

    told = copy.deepcopy(tokenizer)
    told.chat_template = CHATML
    question, config = "When was Mira born?", RunConfig()
    turns = (('<tool>search_pages("Mira")</tool>', "mira: Mira"), ("<answer>1823</answer>", ""))
    encoded = encode_demonstration(Demonstration(question, turns), ChatRenderer(told), environment_of(config))
    (opened,) = TorchSampler(make_llama(), told).open([make_prompt(question, config.searcher)], Sampling())
    assert tuple(encoded.ids[: encoded.prompt_tokens]) == opened
    assert "search_pages" in told.decode(opened)
    planner = RunConfig(environment="planner", planner=PlannerConfig(sft={"max_tokens": 4000}))
    plan = next(demonstrated(ChatRenderer(told), environment_of(planner), SftConfig(recipe="expert")))
    assert "You plan how a worker" in told.decode(plan.ids[: plan.prompt_tokens])
    assert [label for label in plan.labels if label != IGNORED] == plan.ids[plan.prompt_tokens :]


def test_tiny_models_prompts_are_what_they_were(tokenizer):
    """Their templates leave the system message out."""
    renderer = ChatRenderer(tokenizer)
    alone = renderer.encode_prompt([{"role": "user", "content": "Who?"}])
    assert renderer.encode_prompt(make_prompt("Who?", SearcherConfig())) == alone
    assert renderer.encode_prompt(make_plan_prompt("Who?", PlannerConfig())) == alone


@pytest.mark.parametrize(("lora", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
def test_weights_below_an_adapter_lie_as_configured_and_what_learns_is_float32(make_llama, tokenizer, tmp_path, lora, wanted):
    make_llama().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = PolicyConfig(model=str(tmp_path), dtype="bfloat16", device="cpu")
    model, _ = load_student(policy, lora)
    assert {weight.dtype for weight in model.parameters()} == {wanted}


def test_an_adapter_that_lies_in_more_bits_than_its_base_is_sampled_from_as_it_is_now(make_llama):
    from peft import get_peft_model

    model = get_peft_model(make_llama().bfloat16(), make_adapter_config(LoraSection(r=4)))
    ids, steps = torch.arange(5, 45)[None], [weight for name, weight in model.named_parameters() if "lora_B" in name]
    assert {weight.dtype for weight in steps} == {torch.float32}
    found = []
    with torch.no_grad(), fused_lora(model):
        for _ in range(3):
            for weight in steps:
                weight += 0.1 * torch.randn_like(weight)
            found.append(([weight.clone() for weight in steps], [model(ids).logits.float() for _ in range(2)]))
    for weights, (first, again) in found:
        with torch.no_grad():
            for weight, then in zip(steps, weights, strict=True):
                weight.copy_(then)
            wanted = model(ids).logits.float()
        assert torch.equal(first, again)
        torch.testing.assert_close(first, wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))


def test_an_adapter_is_merged_without_rounding_and_goes_on_from_where_it_was(make_llama, tokenizer, tmp_path, monkeypatch):
    """The base is bfloat16, the model that is published is base + B A in float32: nothing of a small adapter is lost."""
    base = make_llama().bfloat16()
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    began, ended = [], []

    def weights_of(model):
        return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}

    def train_a_little(lesson, *args, **_):
        began.append(weights_of(lesson.model))
        for name, weight in lesson.model.named_parameters():
            if "lora_B" in name:
                weight.data += 1e-4 * torch.randn_like(weight)
        ended.append(weights_of(lesson.model))
        return 0.0

    monkeypatch.setattr(teach, "train_sft", train_a_little)
    policy, settings = PolicyConfig(model=str(tmp_path / "base"), dtype="bfloat16", device="cpu"), SftConfig(lora=True, steps=1)
    train = RunConfig(policy=policy, sft=settings).train
    for number, adapter in enumerate((None, str(tmp_path / "out0" / "adapter"))):
        policy, out = policy.model_copy(update={"adapter": adapter}), tmp_path / f"out{number}"
        lesson = teach.Lesson(*load_student(policy, True), settings, lambda: iter(()))
        teach.teach(policy, train, out, "sft.json", lambda lesson=lesson: lesson)
        published, _ = load_model(PolicyConfig(model=str(out), device="cpu"))
        name = "model.layers.0.mlp.up_proj"
        found = published.get_submodule(name).weight - base.get_submodule(name).weight.float()
        trained = {key.split(".lora_")[1][0]: weight for key, weight in ended[-1].items() if name in key}
        delta = trained["B"] @ trained["A"] * train.lora.alpha / train.lora.r
        assert (found - delta).norm() < 1e-3 * delta.norm()
        assert read_base(out / "adapter") == policy.model
    assert began[1].keys() == ended[0].keys() and all("lora" in name for name in began[1])
    for name, weight in ended[0].items():
        assert torch.equal(began[1][name], weight) and torch.equal(began[0][name], weight) == ("lora_A" in name)


def test_a_fused_adapter_computes_what_pefts_layers_compute(make_llama):
    from peft import get_peft_model

    model = get_peft_model(make_llama(), make_adapter_config(LoraSection(r=4)))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    ids, found = torch.arange(5, 65).view(2, 30), []
    for context in (nullcontext, lambda: fused_lora(model)):
        model.zero_grad()
        with context() as layers:
            loss = model(ids, labels=ids).loss
            loss.backward()
        assert layers in (None, 14)
        found.append((loss.detach(), [weight.grad.clone() for weight in model.parameters() if weight.requires_grad]))
    torch.testing.assert_close(*(loss for loss, _ in found))
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert all("forward" not in vars(module) for module in model.modules())


def test_what_is_sampled_with_in_bfloat16_follows_the_updates(make_llama):
    """The fused Adam of `Trainer` does not raise the versions of weights, by which they were once kept."""
    from peft import get_peft_model

    model = get_peft_model(make_llama().bfloat16(), make_adapter_config(LoraSection(r=4)))
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.data = weight.data.float()
    optimizer = torch.optim.AdamW(learning, lr=0.1, fused=True)
    ids, found = torch.arange(5, 35)[None], []
    with fused_lora(model):
        for _ in range(2):
            model(ids, labels=ids).loss.backward()
            optimizer.step()
            for context in (nullcontext(), unchanged_adapters(model)):
                with context, torch.no_grad():
                    found.append([model(ids).logits for _ in range(2)][-1])
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[2], found[3])
    assert (found[1] - found[3]).abs().max() > 0.05


@pytest.mark.parametrize("settings", [{"dropout": 0.1}, {"target_modules": "none"}])
def test_layers_with_more_to_them_stay_pefts(make_llama, settings):
    from peft import get_peft_model

    model = make_llama()
    if "dropout" in settings:
        adapter = make_adapter_config(LoraSection(r=4))
        adapter.lora_dropout = settings["dropout"]
        model = get_peft_model(model, adapter)
    with fused_lora(model) as layers:
        assert layers == 0


def test_a_demonstration_longer_than_the_context_is_refused_before_the_first_update(make_llama, tokenizer, episodes, tmp_path, monkeypatch):
    model = make_llama()
    model.config.max_position_embeddings = max(len(episode.ids) for episode in episodes) - 1
    updates = []
    with pytest.raises(ModelError, match=r"the model's context ends at \d+: lower searcher.max_episode_tokens"):
        lesson = Lesson(model, tokenizer, SftConfig(steps=2, batch_size=8), lambda: repeated(episodes, 0))
        train_sft(lesson, tmp_path, lambda *_: updates.append(_))
    assert not updates
    model.config.max_position_embeddings += 1
    assert len(list(streams.within_context(model, episodes))) == len(episodes)


@pytest.mark.parametrize("exact", [True, False], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "changes", "known"),
    [
        ("hyperclovax", {"logits_scaling": 0.25}, False),
        ("hyperclovax", {"logits_scaling": 1.0}, True),
        ("granite", {"logits_scaling": 4.0}, True),
        ("cohere", {"logit_scale": 0.25}, True),
        ("gemma2", {"head_dim": 16}, True),
    ],
)
def test_a_model_whose_scale_of_logits_is_not_known_is_not_taught(tokenizer, episodes, tmp_path, monkeypatch, kind, changes, known, exact):
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 1024, "bos_token_id": None}
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **ids, **sizes, **changes))
    model.get_output_embeddings().weight.data.mul_(20)
    if known:
        assert train(model, tokenizer, episodes, tmp_path, monkeypatch, exact) > 0
        return
    with pytest.raises(ModelError, match=rf"models of type {kind} scale their logits: choose another policy\.model"):
        train(model, tokenizer, episodes, tmp_path, monkeypatch, exact)
