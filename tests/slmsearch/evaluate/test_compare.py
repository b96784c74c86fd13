"""The written rule of promotion, case by case, and its replay from stored rows."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from slmsearch.config import DecisionConfig
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError, EvaluationError
from slmsearch.evaluate.compare import Comparison, compare, replay
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.store import Evaluation, write_evaluation
from tests.slmsearch.evaluate.builders import fail, make, play, say


class Quick(DecisionConfig):
    """The rule with smaller slices, drawn less often."""

    min_slice: ClassVar[int] = 20
    resamples: ClassVar[int] = 400


CONFIG = Quick(min_questions=40)


def rows(right: int, n: int = 100, kind: str = "one_hop", hops: int = 1) -> list[EpisodeRow]:
    """Rows of which the first `right` are right."""
    return [make(f"{kind}-{i:04}", i < right, kind=kind, hops=hops) for i in range(n)]


def decide(before: list[EpisodeRow], after: list[EpisodeRow], config: DecisionConfig = CONFIG) -> Comparison:
    return compare(before, after, config)


def test_promote_when_the_interval_lies_above_the_gain() -> None:
    found = decide(rows(40), rows(70))
    assert (found.decision, found.n, found.before, found.after) == ("promote", 100, 0.4, 0.7)
    assert found.difference.mean == pytest.approx(0.3)
    assert 0.19 < found.difference.low < 0.25 < 0.35 < found.difference.high < 0.41  # 0.3 +- 1.96 * sqrt(.21 / 100)
    assert found.mcnemar is not None
    assert (found.mcnemar.gained, found.mcnemar.lost) == (30, 0)
    assert found.mde == pytest.approx(2.8016 * (0.3 / 100) ** 0.5, rel=1e-3)
    assert "rose by 0.300" in found.reason


def test_hold_when_the_gain_is_too_small() -> None:
    assert decide(rows(40), rows(70), CONFIG.model_copy(update={"min_gain": 0.25})).decision == "hold"


def test_hold_when_the_interval_includes_zero() -> None:
    assert decide(rows(40), rows(41)).decision == "hold"
    assert decide(rows(41), rows(40)).decision == "hold"


def test_hold_when_nothing_changed() -> None:
    found = decide(rows(40), rows(40))
    assert (found.decision, found.difference.p) == ("hold", 1.0)
    assert found.mde == pytest.approx(2.8016 * (0.03 / 100) ** 0.5, rel=1e-3)  # rule of three, not zero


def test_reject_when_the_interval_lies_below_zero() -> None:
    found = decide(rows(70), rows(40))
    assert found.decision == "reject"
    assert "fell by 0.300" in found.reason


def test_inconclusive_when_too_few() -> None:
    found = decide(rows(0, 39), rows(39, 39))
    assert found.decision == "inconclusive"
    assert "39" in found.reason


def test_four_changed_answers_decide_nothing() -> None:
    """Resampled, four gains and no loss have an interval above 0; the exact test of them does not."""
    for before, after in ((100, 104), (104, 100)):
        found = decide(rows(before, 200), rows(after, 200))
        assert found.decision == "hold" and "only 4 questions changed (McNemar p 0.125)" in found.reason
    assert decide(rows(100, 200), rows(108, 200)).decision == "promote"


def test_a_failed_episode_does_not_make_enough_questions_too_few() -> None:
    after = [fail("one_hop-0000"), *rows(40, 40)[1:]]
    assert decide(rows(0, 40), after).decision == "promote"


def test_few_pages_are_seldom_sure() -> None:
    """Of answers that change at random about three pages, one run in ten was promoted or rejected, and of two pages four in ten."""
    chance, decided = random.Random(1), 0
    for _ in range(60):
        before, after = ([replace(make(str(i), chance.random() < 0.5), cluster=f"page {i % 2}") for i in range(60)] for _ in range(2))
        decided += decide(before, after).decision in ("promote", "reject")
    assert decided <= 6
    sure = [replace(row, cluster=f"page {i % 4}") for i, row in enumerate(rows(90))]
    assert decide([replace(row, cluster=f"page {i % 4}") for i, row in enumerate(rows(10))], sure).decision == "promote"


def test_a_slice_that_got_worse_vetoes() -> None:
    before = rows(20, 200) + rows(30, 40, "count", 3)
    after = rows(120, 200) + rows(15, 40, "count", 3)  # + 50 points on 200, - 37.5 points on 40
    found = decide(before, after)
    assert found.difference.low > 0
    assert found.decision == "hold"
    assert "lost 0.375 on 40" in found.reason
    slices = {part.name: part for part in found.slices}
    assert {name for name, part in slices.items() if part.vetoes} == {"kind=count", "hops=3"}
    assert (slices["kind=count"].before, slices["kind=count"].after) == (0.75, 0.375)


def test_a_source_that_got_worse_vetoes_as_a_kind_does() -> None:
    def asked(squad: int, nq: int) -> list[EpisodeRow]:
        of_squad = [make(f"s{i:03}", i < squad, kind="plain", hops=0, source="squad") for i in range(200)]
        return of_squad + [make(f"n{i:03}", i < nq, kind="plain", hops=0, source="nq") for i in range(40)]

    found = decide(asked(20, 30), asked(120, 15))
    assert (found.decision, found.difference.low > 0) == ("hold", True)
    assert [part.name for part in found.slices] == ["kind=plain", "source=nq", "source=squad"]
    assert [part.name for part in found.slices if part.vetoes] == ["source=nq"]
    assert "Slice source=nq lost 0.375 on 40" in found.reason


def test_rouge_l_is_compared_over_long_gold_answers_and_decides_nothing() -> None:
    def asked(right: int, long: float) -> list[EpisodeRow]:
        return [replace(row, rouge_l=long if i < 10 else None) for i, row in enumerate(rows(right))]

    found = decide(asked(40, 0.75), asked(70, 0.25))
    assert (found.rouge_l_before, found.rouge_l_after, found.decision) == (0.75, 0.25, "promote")
    short = decide(rows(40), rows(70))
    assert (short.rouge_l_before, short.slices[0].rouge_l_after) == (None, None)


def test_one_slice_of_sixty_can_veto() -> None:
    """Holm multiplies the smallest p-value by the number of slices: it must be smaller than one that 2,000 resamples can give."""
    kinds = [f"kind{n:02}" for n in range(60)]
    before = [row for kind in kinds for row in rows(20, 30, kind, 0)]
    after = [row for kind in kinds for row in rows(3 if kind == "kind07" else 28, 30, kind, 0)]
    found = decide(before, after)
    assert [part.name for part in found.slices if part.vetoes] == ["kind=kind07"]
    assert found.decision == "hold"


def test_small_slices_small_losses_and_noise_have_no_veto() -> None:
    gain_before, gain_after = rows(20, 200), rows(120, 200)
    tiny = decide(gain_before + rows(19, 19, "count", 3), gain_after + rows(0, 19, "count", 3))
    assert tiny.decision == "promote"
    assert {part.p_holm for part in tiny.slices if part.name == "kind=count"} == {None}
    slight = decide(gain_before + rows(98, 100, "count", 3), gain_after + rows(94, 100, "count", 3))
    assert slight.decision == "promote"
    noisy = decide(gain_before + rows(12, 24, "count", 3), gain_after + rows(10, 24, "count", 3))  # - 8 points, p far above .05
    assert noisy.decision == "promote"


def test_failed_pairs_are_left_out_and_counted() -> None:
    before, after = rows(40), rows(70)
    before[0], after[1], after[0] = fail("one_hop-0000"), fail("one_hop-0001"), fail("one_hop-0000")
    found = decide(before, after)
    assert (found.n, found.failed, found.decision) == (98, 2, "promote")


def test_too_many_failed_pairs_are_inconclusive() -> None:
    after = [fail(row.question_id) if i >= 90 else row for i, row in enumerate(rows(70))]
    found = decide(rows(40), after)
    assert (found.n, found.failed, found.decision) == (90, 10, "inconclusive")


def test_all_failed_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="all 50 pairs"):
        decide(rows(40, 50), [fail(row.question_id) for row in rows(40, 50)])


def test_missing_pairs_are_an_error_that_counts_them() -> None:
    with pytest.raises(EvaluationError, match="7 questions are missing after and 0 before"):
        decide(rows(40), rows(40)[7:])
    with pytest.raises(EvaluationError, match="0 questions are missing after and 3 before"):
        decide(rows(40)[3:], rows(40))
    with pytest.raises(EvaluationError, match="repeat"):
        decide(rows(40) + rows(1), rows(40))
    with pytest.raises(EvaluationError, match="empty"):
        decide([], [])


def test_other_answers_on_the_other_side_are_an_error() -> None:
    after = rows(70)
    after[0] = replace(after[0], gold="1816")
    with pytest.raises(EvaluationError, match="1 questions have another text or answer"):
        decide(rows(40), after)


def test_f1_is_compared_without_mcnemar() -> None:
    after = [replace(row, f1=row.f1 * 0.9 + 0.05) for row in rows(70)]
    found = decide(rows(40), after, CONFIG.model_copy(update={"metric": "answer/f1"}))
    assert found.mcnemar is None
    assert found.after == pytest.approx((70 * 0.95 + 30 * 0.05) / 100)


def test_metrics_that_cannot_be_paired_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="answer/exact_match"):
        decide(rows(40), rows(70), CONFIG.model_copy(update={"metric": "loss"}))
    unknown = [replace(row, gold_read=None) for row in rows(40)]
    with pytest.raises(ConfigError, match="undefined for 100 of 100"):
        decide(unknown, unknown, CONFIG.model_copy(update={"metric": "search/gold_read_frac"}))


def test_questions_about_one_page_count_as_one_cluster() -> None:
    def paged(right: int) -> list[EpisodeRow]:
        return [replace(row, cluster=str(i // 10)) for i, row in enumerate(rows(right))]

    alone, clustered = decide(rows(40), rows(70)).difference, decide(paged(40), paged(70)).difference
    assert clustered.high - clustered.low > 2 * (alone.high - alone.low)


def test_order_of_rows_does_not_matter() -> None:
    assert decide(rows(40), rows(70)) == decide(rows(40)[::-1], rows(70))


def test_replay_from_stored_rows_is_identical(tmp_path: Path) -> None:
    before = [replace(row, f1=1 / 3, seconds=0.1 + 0.2, cluster=str(i // 3)) for i, row in enumerate(rows(40))]
    after = [replace(row, cluster=str(i // 3)) for i, row in enumerate(rows(70))]
    for key, side in (("old", before), ("new", after)):
        episodes = tuple(play(say("x"), question_id=row.question_id) for row in side)
        write_evaluation(tmp_path, key, Evaluation(tuple(side), episodes, summarise(side), summarise_slices(side), 1.0), {})
    for config in (CONFIG, CONFIG.model_copy(update={"metric": "answer/f1"})):
        assert replay(tmp_path / "old", tmp_path / "new" / "rows.jsonl", config) == decide(before, after, config)
    with pytest.raises(EvaluationError, match="cannot read"):
        replay(tmp_path / "gone", tmp_path / "new", CONFIG)


def test_comparison_is_json() -> None:
    values = decide(rows(40), rows(70)).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert set(values["difference"]) == {"mean", "low", "high", "p"}
