"""The presets for a GPU: what they ask for fits the card they are for, and all of their flow runs on a model of their architecture."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli.commands.bench import OVERLAY, load_presets
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.extensions.bench.gpu import PUBLISHED, needed, shape_of, write_model
from slmsearch.training.memory import GIB, measure_shape, plan_memory
from slmsearch.training.preflight import MEMORY_FRAC
from tests.root import ROOT

PRESETS = load_presets()
TRAINED = [preset for preset in PRESETS if not preset.config.planner.sft.enabled]
CARD = {"cpu": 64 * GIB, "cuda": 23.6 * GIB}
"""What is free on a card of 24 GB beside a machine of 64 GB."""
FREED = {"corpus.pages", "corpus.questions", "planner.problems", "planner.sft.source"}
"""Where data come from: the only settings beside numbers that the overlay may change."""


def flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        leaves |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return leaves


def test_every_model_of_a_preset_has_its_published_shape() -> None:
    assert {preset.real.policy.model for preset in PRESETS} == set(PUBLISHED)
    assert {"gpu", "rtx3090", "rtx3090-qwen2.5-3b", "planner-8b", "planner-sft-1.5b"} == {preset.name for preset in PRESETS}


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", 4.02),
        ("Qwen/Qwen2.5-3B-Instruct", 3.09),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.78),
        ("smollm2-135m-instruct", 0.1345),
    ],
)
def test_the_shapes_have_the_published_number_of_weights(model: str, billions: float, tmp_path: Path) -> None:
    shape_of(model).save_pretrained(tmp_path)
    assert measure_shape(RunConfig(), str(tmp_path)).parameters / 1e9 == pytest.approx(billions, abs=min(0.01, billions / 100))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_the_plan_fits_the_card(preset: Any, tmp_path: Path) -> None:
    shape_of(preset.real.policy.model).save_pretrained(tmp_path)
    plan = plan_memory(preset.real, measure_shape(preset.real, str(tmp_path)), CARD)
    print(f"{preset.name}\n{plan.render()}")
    assert plan.device == "cuda"
    assert needed(plan, preset.real.planner) <= MEMORY_FRAC * plan.available, plan.render()


@pytest.mark.parametrize("preset", TRAINED, ids=lambda preset: preset.name)
def test_an_update_is_split_evenly_and_learns_at_a_rate_for_adapters(preset: Any) -> None:
    train = preset.real.train
    episodes = train.questions_per_step * train.group_size
    assert episodes % train.accumulation == 0 and episodes >= 32
    assert 3e-5 <= train.learning_rate <= 2e-4
    assert preset.real.decision.min_questions <= max(150, preset.real.evaluate.limit)


@pytest.mark.parametrize("name", ["rtx3090", "rtx3090-qwen2.5-3b"])
def test_a_search_preset_begins_without_a_language_model_as_judge(name: str) -> None:
    (preset,) = load_presets([name])
    assert (preset.real.judge.kind, preset.real.reward.correctness) == ("exact", "f1")
    assert preset.real.decision.metric == "answer/correct", "the verdict of whatever judge is configured"


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_the_overlay_changes_numbers_and_where_data_come_from_alone(preset: Any) -> None:
    real, small = (flat(config.model_dump(mode="json")) for config in (preset.real, preset.config))
    changed = {name for name in real if real[name] != small[name]}
    others = {name for name in changed if isinstance(small[name], bool) or not isinstance(small[name], int | float)}
    assert others - FREED <= {"train.preflight"}


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'demo' is no preset for a GPU; there are gpu, planner-8b, .*rtx3090"):
        load_presets(["demo"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_all_of_the_flow_runs_on_a_model_of_the_architecture(
    preset: Any, isolated_environment: Path, slmsearch: Callable[..., tuple[int, str, str]]
) -> None:
    """As shipped, but for the overlay, the device, and what only a GPU has: vLLM in the training process and 4-bit weights."""
    root = ROOT
    model = write_model(
        shape_of(preset.real.policy.model, 2, small=True),
        root / "data" / "models" / "tiny-searcher",
        isolated_environment / "m",
        "bfloat16",
        "cpu",
    )
    is_planner = preset.real.environment == "planner"
    command = ["run", "train-planner" if is_planner else "train-and-eval"]
    files = [part for file in preset.files for part in ("--config", str(file))]
    flags = [f"--policy.model={model}", "--policy.device=cpu", "--policy.load_in_4bit=false", "--train.vllm.mode=off"]
    code, out, err = slmsearch(*command, *files, *flags, "--json")
    assert code in (0, 1), err[-3000:]
    outcome = json.loads(out)
    assert "error" not in outcome, outcome
    assert outcome["training"]["steps"] == 2


def test_the_overlay_is_named_in_the_documentation() -> None:
    assert OVERLAY in (ROOT / "docs/gpu.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [("gpu",), ("rollout", "--device", "cuda")])
def test_a_measurement_on_a_card_without_one_says_so_in_one_line(arguments: tuple[str, ...]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a card here")
    done = subprocess.run([sys.executable, "-m", "flows", "bench", *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"].startswith("no CUDA device here")
    assert len([line for line in done.stderr.strip().splitlines() if not line.endswith(" so far")]) == 1
