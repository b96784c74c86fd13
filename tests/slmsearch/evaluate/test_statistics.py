"""Statistics against values known from elsewhere."""

import random

import pytest

from slmsearch.evaluate.statistics import (
    holm_adjust,
    mcnemar_exact,
    paired_bootstrap,
    smallest_detectable_effect,
)
from slmsearch.intervals import show_interval, wilson_interval


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),  # Brown, Cai & DasGupta (2001)
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),  # Newcombe (1998), table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n, 0.05) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_the_ends_of_an_interval_are_exact_where_all_are_alike(alpha: float) -> None:
    for n in range(1, 400):  # for one in three of these statsmodels' upper end is 0.9999999999999999
        assert wilson_interval(n, n, alpha)[1] == 1.0
        assert wilson_interval(0, n, alpha)[0] == 0.0


def test_intervals_are_written_as_people_read_them() -> None:
    assert show_interval(-0.0001, 0.25) == "[+0.000, +0.250]"
    assert show_interval(*(100 * end for end in wilson_interval(7, 7, 0.05)), ".0f") == "[65, 100]"


def test_mcnemar_is_the_binomial_test_on_discordant_pairs() -> None:
    before = [True] * 10 + [False] * 9 + [True] * 1 + [False] * 4
    after = [True] * 10 + [True] * 9 + [False] * 1 + [False] * 4
    result = mcnemar_exact(before, after)
    assert (result.gained, result.lost) == (9, 1)
    assert result.p == pytest.approx(2 * (1 + 10) / 2**10)  # P(X <= 1 of 10) doubled
    assert mcnemar_exact([True, False], [True, False]).p == 1.0
    with pytest.raises(ValueError, match="shorter"):
        mcnemar_exact([True], [])


@pytest.mark.parametrize(("n", "effect"), [(20, 0.28), (100, 0.125), (125, 0.112), (500, 0.056), (1000, 0.040), (3000, 0.023)])
def test_smallest_detectable_effect_at_a_fifth_discordant(n: int, effect: float) -> None:
    assert smallest_detectable_effect(n, 0.2, 0.05) == pytest.approx(effect, abs=6e-4)


def test_holm() -> None:
    # Smallest times 4, next times 3, ... and never falling: .01*4, .02*3, .03*2, .04*1 -> .04, .06, .06, .06
    assert holm_adjust([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm_adjust([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm_adjust([]) == []


@pytest.mark.parametrize("p_values", [[0.5], [0.04, 0.01, 0.03, 0.02], [0.2, 0.2, 0.9, 0.0, 1.0, 1e-9], [k / 97 for k in range(97)][::-1]])
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    assert holm_adjust(p_values) == list(multipletests(p_values, method="holm")[1])


def test_bootstrap_of_independent_questions_agrees_with_the_normal_interval() -> None:
    values = [1.0] * 30 + [0.0] * 60 + [-1.0] * 10
    mean, sd = 0.2, (0.4 - 0.04) ** 0.5
    found = paired_bootstrap(values, [""] * 100, 4000, 0.05, 0)
    assert found.mean == pytest.approx(mean)
    assert found.low == pytest.approx(mean - 1.96 * sd / 10, abs=0.015)
    assert found.high == pytest.approx(mean + 1.96 * sd / 10, abs=0.015)
    assert found.p < 0.01


def test_bootstrap_is_seeded() -> None:
    values = [1.0, 0.0, -1.0, 1.0, 0.5]
    clusters = ["a", "b", "", "c", ""]
    assert paired_bootstrap(values, clusters, 500, 0.05, 3) == paired_bootstrap(values, clusters, 500, 0.05, 3)
    assert paired_bootstrap(values, clusters, 500, 0.05, 3) != paired_bootstrap(values, clusters, 500, 0.05, 4)


def test_equal_members_of_a_cluster_add_no_certainty() -> None:
    values = [1.0, 0.0, -1.0, 0.0, 1.0, 1.0, 0.0, -1.0, 1.0, 0.0] * 2
    alone = paired_bootstrap(values, [str(i) for i in range(20)], 2000, 0.05, 0)
    copied = paired_bootstrap(values * 9, [str(i % 20) for i in range(180)], 2000, 0.05, 0)
    ignored = paired_bootstrap(values * 9, [""] * 180, 2000, 0.05, 0)
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.05)
    assert ignored.high - ignored.low < 0.5 * (alone.high - alone.low)


def test_bootstrap_weighs_clusters_by_their_size() -> None:
    found = paired_bootstrap([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"], 500, 0.05, 0)
    assert found.mean == 0.75


def test_bootstrap_without_any_difference() -> None:
    found = paired_bootstrap([0.0] * 20, [""] * 20, 200, 0.05, 0)
    assert (found.mean, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_one_cluster_is_resampled_by_question() -> None:
    found = paired_bootstrap([1.0, 0.0, 1.0, -1.0], ["a"] * 4, 500, 0.05, 0)
    assert found.low < found.mean < found.high


def test_memory_is_bounded_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = [1.0, 0.0, -1.0, 1.0] * 5, [str(i // 2) for i in range(20)]
    whole = paired_bootstrap(values, clusters, 300, 0.05, 0)
    monkeypatch.setattr("slmsearch.evaluate.statistics.MAX_RESAMPLE_CELLS", 25)
    assert paired_bootstrap(values, clusters, 300, 0.05, 0) == whole


@pytest.mark.parametrize(("values", "clusters"), [([], []), ([1.0], []), ([1.0], ["a", "b"])])
def test_bootstrap_refuses_nonsense(values: list[float], clusters: list[str]) -> None:
    with pytest.raises(ValueError, match="cluster"):
        paired_bootstrap(values, clusters, 100, 0.05, 0)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # 40 pages with 3 questions each; half of a question's variance is its page's. 300 worlds, 95 % intervals.
    chance, covered, num_worlds = random.Random(0), 0, 300
    for world in range(num_worlds):
        pages = [chance.gauss(0.1, 0.5) for _ in range(40)]
        values = [chance.gauss(page, 0.5) for page in pages for _ in range(3)]
        found = paired_bootstrap(values, [str(i // 3) for i in range(120)], 300, 0.05, world)
        covered += found.low <= 0.1 <= found.high
    assert 0.90 <= covered / num_worlds <= 0.98
