"""Scaling by episodes, length and model: the shapes that are measured, the exponents, and the figure."""

import pytest

from slmsearch.config import RunConfig
from slmsearch.extensions.bench import scaling
from slmsearch.extensions.bench.scaling import AXES, EPISODES, LENGTHS, PAIR, PAIRS, draw, exponent_of, of_size, resize
from slmsearch.extensions.bench.shapes import BenchShape, LongToolbox

BASE = BenchShape("long", RunConfig(), [], LongToolbox(), 0)


def test_half_of_an_episode_is_shared_and_the_whole_is_as_long_as_asked():
    for length in LENGTHS:
        shape = resize(BASE, 8, length)
        config = shape.config
        own = config.searcher.max_turns * (scaling.CALL_TOKENS + shape.toolbox.words * scaling.TOKENS_PER_WORD)
        shared = len(shape.questions[0].question.split()) * scaling.TOKENS_PER_WORD
        assert abs(own / length - 0.5) < 0.05
        assert 0.45 < shared / length < 0.75  # filler counts a word and its number as one
        assert (shape.episodes, config.searcher.max_episode_tokens) == (8, length)


@pytest.mark.parametrize("episodes", EPISODES)
def test_groups_have_prompts_of_their_own(episodes):
    shape = resize(BASE, episodes, 512)
    assert shape.episodes == episodes
    assert len({question.question for question in shape.questions}) == shape.config.train.questions_per_step == episodes // 8


def test_a_size_is_that_of_its_weights(tmp_path):
    shape = of_size(BASE, "1M", tmp_path / "1M")
    assert shape.parameters == 2048 * 128 + 4 * (4 * 128 * 128 + 3 * 128 * 384 + 2 * 128 + 2 * 32) + 128
    assert (shape.episodes, len({question.question for question in shape.questions})) == (PAIRS * PAIR, PAIRS)


def test_an_exponent_is_the_power():
    rows = [{"tokens": n, "step_s": 0.3 * n**1.5} for n in LENGTHS]
    assert exponent_of(rows, "tokens") == pytest.approx(1.5)


def test_the_figure_has_a_panel_for_each_axis(tmp_path):
    found = [{"axis": axis, axis: float(n), "step_s": n / 7} for axis in AXES for n in LENGTHS]
    exponents = {axis: 1 + k for k, axis in enumerate(AXES)}
    draw(found, exponents, tmp_path / "deep" / "scaling.svg")
    figure = (tmp_path / "deep" / "scaling.svg").read_text()
    assert all(what in figure for what in AXES.values()) and all(f"exponent {1 + k}.00" in figure for k in range(3))
    draw(found, exponents, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == figure
