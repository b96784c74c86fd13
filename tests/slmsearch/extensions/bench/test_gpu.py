"""The check of a card: steps as full as the longest ones, in rows that torch samples soon, and phases beside their plan."""

from types import SimpleNamespace

import pytest

from flows.cli.commands.bench import load_presets
from slmsearch.config import RunConfig
from slmsearch.extensions.bench import trees
from slmsearch.extensions.bench.gpu import MOST_SAMPLED, PUBLISHED, SHORT_PROMPT, compare_phases, longest
from slmsearch.training.memory import GIB, SAMPLING, SFT, UPDATE, MemoryPart, MemoryPlan, ModelShape, plan_memory

PRESETS = load_presets()
SHAPE = ModelShape(10_000_000, ((256, 256),) * 8, 4, 256, 128, 32_000, 256, 512, 20_000.0, 20_000.0)
CARD = {"cpu": 64.0 * GIB, "cuda": 80.0 * GIB}


def parts(config, phase, prompt):
    return {part.name: part.num_bytes for part in plan_memory(config, SHAPE, CARD, prompt).phases[phase]}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_where_torch_samples_rows_are_short_and_a_step_as_full(preset):
    off = preset.real.changed({"train.vllm.mode": "off"})
    whole, split = (off.changed(longest(preset.real, by_torch)) for by_torch in (False, True))
    split = RunConfig.model_validate(split.model_dump(warnings=False))
    whole = RunConfig.model_validate(whole.model_dump(warnings=False))
    assert split.train.questions_per_step * split.train.group_size % split.train.accumulation == 0
    if preset.real.environment != "searcher":
        assert split == whole
        return
    assert split.searcher.max_episode_tokens <= 1.5 * MOST_SAMPLED
    assert split.train.limit >= split.train.questions_per_step
    for phase, name in ((SAMPLING, "key-value cache"), (UPDATE, "activations")):
        full, short = parts(whole, phase, SHORT_PROMPT)[name], parts(split, phase, SHORT_PROMPT)[name]
        assert full <= short <= 1.25 * full


def test_rows_that_an_engine_samples_stay_as_long_as_they_are():
    (preset,) = load_presets(["rtx3090"])
    assert longest(preset.real, False)["searcher.max_episode_tokens"] == str(preset.real.searcher.max_episode_tokens)
    assert "searcher.system_prompt" not in longest(preset.real, False)


def test_phases_stand_beside_their_plan_without_what_torch_does_not_see():
    held = (MemoryPart("weights", 3 * GIB, ""), MemoryPart("runtime", 1 * GIB, ""))
    plan = MemoryPlan("cuda", {UPDATE: held, SAMPLING: held, SFT: held}, 80 * GIB)
    use = {"allocated_gib": 2.0, "reserved_gib": 2.5, "busy_frac": 0.8}
    found = compare_phases(plan, {UPDATE: use, "other": use, SAMPLING: {"allocated_gib": 0.0, "reserved_gib": 0.0}})
    assert found == {
        UPDATE: {"planned_gib": 3.0, "measured_gib": 2.0, "ratio": 1.5, **use},
        SAMPLING: {"planned_gib": 3.0, "measured_gib": 0.0, "allocated_gib": 0.0, "reserved_gib": 0.0},
    }
    assert compare_phases(plan, None) == {}, "without a card there is nothing to compare"


def test_updates_over_trees_are_timed_beside_rows(monkeypatch):
    small = SimpleNamespace(GROUP_ON_CPU=2, OPENING=6, TURNS=3, TURN=6)
    for name, value in vars(small).items():
        monkeypatch.setattr(trees, name, value)
    monkeypatch.setitem(PUBLISHED, trees.MODEL, PUBLISHED[trees.MODEL] | {"vocab_size": 300, "hidden_size": 72})
    told = []
    result = trees.run_trees(1, "cpu", 2, told.append)
    assert result.values["trees_used"] and not result.values["one_kernel"] and result.values["device"] == "cpu"
    assert result.values["tokens"] == 2 * 2 * 24 > result.values["nodes"]
    assert len(told) == 2 * 3 and set(result.values) >= {"rows", "trees", "ratio", "difference"}
    assert "rows over trees" in result.render()


def test_timed_episodes_leave_their_group_one_after_the_other():
    ids, mask, needed = trees.make_episodes(1000, 4)
    alike = [int((row == ids[0]).long().cumprod(0).sum()) for row in ids[:4]]
    assert alike[0] == ids.shape[1] and alike[1] >= trees.OPENING and alike == [alike[0], *sorted(alike[1:])]
    assert mask.all() and not needed[:, : trees.OPENING].any() and needed.any(1).all()
