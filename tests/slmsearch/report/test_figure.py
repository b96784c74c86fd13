"""The picture of training curves: what is in it, in which format, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.report.figure import draw_curves
from slmsearch.report.page.results import RunResults
from tests.slmsearch.report.page.synthetic import make_run, without_training


def with_metrics(run: RunResults) -> RunResults:
    more = {"policy/entropy": 0.3, "policy/kl_sampler": 0.001}
    steps = [replace(one, metrics={**one.metrics, **more, **({"reward/held_out": 0.5} if one.step % 10 == 0 else {})}) for one in run.steps]
    return replace(run, steps=steps)


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text())


def test_a_picture_holds_every_curve_with_its_unit_and_last_value(tmp_path: Path) -> None:
    draw_curves([with_metrics(make_run(steps=30))], path := tmp_path / "new" / "run.svg")
    shown = texts(path)
    for title in ("Reward", "Right answers", "Tool calls", "Entropy of the policy", "KL of sampler and trainer", "Held-out reward"):
        assert title in shown
    assert {"nats a token", "calls an episode", "% of a step's episodes", "training step"} <= set(shown)
    assert "clever-otter (30 steps)" in shown and "Problems split" not in shown
    assert "1m" in shown  # 0.001 nats
    assert "85" in shown  # the mean of the last ten shares of right answers, in per cent
    assert any("dotted: collapse" in text for text in shown)


def test_the_suffix_says_the_format_and_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(steps=12)
    for name in ("a.png", "b.PNG", "a.svg", "b.SVG"):
        draw_curves([run], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.PNG").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.SVG").read_bytes()


def test_several_runs_share_the_axes_and_what_has_not_trained_is_left_out(tmp_path: Path) -> None:
    runs = [make_run(steps=12, name="one"), without_training(make_run(name="other")), make_run(steps=20, name="third <b> $x$")]
    draw_curves(runs, path := tmp_path / "runs.svg")
    named = [text for text in texts(path) if text.endswith("steps)")]
    assert named == ["one (12 steps)", "third &lt;b&gt; $x$ (20 steps)"]


@pytest.mark.parametrize("name", ["run.pdf", "run", "run.png.txt"])
def test_another_suffix_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name it \.png or \.svg$"):
        draw_curves([make_run()], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_not_trained_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="clever-otter: no training step is stored"):
        draw_curves([without_training(make_run())], tmp_path / "run.png")
