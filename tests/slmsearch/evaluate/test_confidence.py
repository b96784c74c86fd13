"""Promises about answers hold as often as they say, and are not made where nothing keeps them."""

import random
from pathlib import Path

import pytest

from slmsearch.environments.searcher.answer_sources import AnswerSource
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, ToolResult, Turn
from slmsearch.evaluate.confidence import Calibration, Graded, calibrate, describe, read_calibration


def play(count: int, chance: random.Random, wrong: float = 0.3) -> list[Graded]:
    """Return answers whose first number tells something of whether they are wrong."""
    answers = []
    for number in range(count):
        bad = chance.random() < wrong
        answers.append(Graded((chance.gauss(-4.0 if bad else -0.5, 1.0), 0.0, 1.0, 2.0, 1.0, 0.0), bad, f"p{number}"))
    return answers


def test_a_promise_is_kept_on_answers_that_calibration_has_not_seen() -> None:
    chance = random.Random(7)
    later = play(20_000, chance)
    broken = made = 0
    for _ in range(60):
        answers = play(600, chance)
        found = calibrate(answers, [one.cluster for one in answers], "k")
        assert found is not None
        kept = found.keep(0.05)
        if kept is None:
            continue
        given = [one.wrong for one in later if found.confidence(one.shown) >= kept.threshold]
        made, broken = made + 1, broken + (sum(given) > 0.05 * len(given))
        assert 0 < kept.answered_frac <= 1 and kept.low <= kept.wrong_frac <= kept.high
    assert made >= 50 and broken <= 6, f"{broken} of {made}"


def test_a_promise_is_kept_where_questions_about_one_page_are_right_or_wrong_together() -> None:
    """Ten questions a page, nine of ten with the page's fate, 5.5 % wrong: as if independent, the promise was made in 7 % of the tries."""
    chance, broken = random.Random(11), 0
    for _ in range(80):
        fates = [chance.random() < 0.055 for _ in range(160)]
        answers = [
            Graded((chance.gauss(0, 1),), fate if chance.random() < 0.9 else chance.random() < 0.055, f"p{number}")
            for number, fate in enumerate(fates)
            for _ in range(10)
        ]
        found = calibrate(answers, [one.cluster for one in answers], "k")
        broken += found is not None and found.keep(0.05) is not None
    assert broken <= 2, f"{broken} of 80"


@pytest.mark.parametrize(("pages", "answered"), [(1, None), (40, None), (400, 1.0)])
def test_answers_about_one_page_count_for_fewer(pages: int, answered: float | None) -> None:
    """400 answers, 2 % wrong: all about the same pages, each about one of its own, or as many that are wrong together."""
    answers = tuple((0.9, number % pages < max(1, pages // 50), number % pages) for number in range(400))
    kept = Calibration("k", (), (), (), 0.0, answers, 400).keep(0.05)
    assert (kept and kept.answered_frac) == answered


def test_nothing_is_promised_where_nothing_keeps_it() -> None:
    chance = random.Random(3)
    answers = play(400, chance, wrong=0.9)
    blind = [Graded((0.0,) * 6, one.wrong, one.cluster) for one in answers]
    pages = [one.cluster for one in answers]
    found = calibrate(blind, pages, "k")
    assert found is not None and found.keep(0.05) is None, "all are as sure, and most are wrong"
    assert calibrate([], pages, "k") is None
    assert calibrate([Graded((0.0,) * 6, True, page) for page in pages], pages, "k") is None, "none was right"


def test_a_policy_that_is_never_wrong_answers_all_if_there_are_enough() -> None:
    answers = [Graded((-0.1, -0.1, 2.0, 3.0, 1.0, 0.0), False, f"p{number}") for number in range(300)]
    found = calibrate(answers, [one.cluster for one in answers], "k")
    assert found is not None
    kept = found.keep(0.05)
    assert kept is not None and (kept.answered_frac, kept.wrong_frac, kept.n) == (1.0, 0.0, 150)
    assert found.keep(0.001) is None, "150 answers cannot show that"


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    answers = play(200, random.Random(1))
    found = calibrate(answers, [one.cluster for one in answers], "index-7")
    assert isinstance(found, Calibration) and read_calibration(tmp_path / "none.json") is None
    found.write(tmp_path / "a" / "c.json")
    assert read_calibration(tmp_path / "a" / "c.json") == found


@pytest.mark.parametrize(("page", "stated", "rank"), [("b", 1.0, 1.0), ("z", 1.0, 10.0), ("", 0.0, 10.0)])
def test_an_episode_shows_probability_support_and_rank(page: str, stated: float, rank: float) -> None:
    search = Turn("", ToolCall("search_pages", "x"), result=ToolResult("", True, ("a", "b")))
    episode = Episode("q", (search, Turn("", answer="1501", sampled_logprobs=(-0.5, -0.1))), StopReason.ANSWERED)
    sources = [AnswerSource(page, "B", f"{page}:1", "H", "text", supports="It was 1501.")] if page else []
    assert describe(episode, sources) == (-0.6, -0.5, 2.0, 2.0, stated, rank)
