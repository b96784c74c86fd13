"""Scaling by group and length: the shapes that are measured, and the figure."""

from slmsearch.config import RunConfig
from slmsearch.extensions.bench import scaling
from slmsearch.extensions.bench.scaling import GROUPS, LENGTHS, draw, resize
from slmsearch.extensions.bench.shapes import BenchShape, LongToolbox


def test_half_of_an_episode_is_shared_and_the_whole_is_as_long_as_asked():
    base = BenchShape("long", RunConfig(), [], LongToolbox(), 0)
    for length in LENGTHS:
        shape = resize(base, 8, length)
        config = shape.config
        own = config.searcher.max_turns * (scaling.CALL_TOKENS + shape.toolbox.words * scaling.TOKENS_PER_WORD)
        shared = len(shape.questions[0].question.split()) * scaling.TOKENS_PER_WORD
        assert abs(own / length - 0.5) < 0.05
        assert 0.45 < shared / length < 0.75  # filler counts a word and its number as one
        assert (shape.episodes, config.searcher.max_episode_tokens) == (8 * config.train.questions_per_step, length)


def test_the_figure_has_a_line_for_each_group(tmp_path):
    found = [{"group": group, "tokens": float(n), "episode_s": n / group} for group in GROUPS for n in LENGTHS]
    draw(found, tmp_path / "deep" / "scaling.svg")
    figure = (tmp_path / "deep" / "scaling.svg").read_text()
    assert all(f"group of {group}" in figure for group in GROUPS)
    draw(found, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == figure
