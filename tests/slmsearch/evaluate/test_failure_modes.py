"""Failure analysis and search metrics on hand-made episodes."""

from dataclasses import replace

import pytest

from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.evidence import Evidence, gather_evidence
from slmsearch.environments.searcher.failure_modes import FailureMode, find_failure_mode
from slmsearch.episodes.episode import Episode, StopReason
from tests.slmsearch.evaluate.builders import ONE_HOP, TWO_HOP, play, read, say, search, view

UNANSWERABLE = Question("q3", "Who was the mayor?", UNKNOWN_ANSWER, page_ids=("ada",), kind="unanswerable")
PAGES_ONLY = Question("q4", "Who?", "Ada", page_ids=("ada", "notes"))
NO_GOLD = Question("q5", "Who?", "Ada")
COLONS = Question("q6", "Who?", "Ada", page_ids=("a:b",), section_ids=("a:b:c:d",), hops=1)


@pytest.mark.parametrize(
    ("question", "episode", "failure_mode"),
    [
        (ONE_HOP, play(search("ada"), stop_reason=StopReason.MALFORMED), FailureMode.MALFORMED),
        (ONE_HOP, play(search("ada"), stop_reason=StopReason.MAX_TURNS), FailureMode.CUT_OFF),
        (ONE_HOP, play(stop_reason=StopReason.MAX_TOKENS), FailureMode.CUT_OFF),
        (UNANSWERABLE, play(search("ada"), read("ada:life"), say("Bob")), FailureMode.INVENTED),
        (UNANSWERABLE, play(say("Bob")), FailureMode.INVENTED),
        (ONE_HOP, play(search("bob"), say(UNKNOWN_ANSWER)), FailureMode.ABSTAINED_WRONGLY),
        (ONE_HOP, play(say("1815")), FailureMode.NO_SEARCH),
        (ONE_HOP, play(view("ada"), say("1815")), FailureMode.NO_SEARCH),
        (ONE_HOP, play(read("ada:life"), say("1816")), FailureMode.MISREAD),  # guessed the id: no search needed
        (ONE_HOP, play(search("bob"), say("1816")), FailureMode.PAGE_MISSED),
        (ONE_HOP, play(search("bob"), read("bob:life"), say("1816")), FailureMode.PAGE_MISSED),
        (ONE_HOP, play(search("bob", "ada"), read("bob:life"), say("1816")), FailureMode.SECTION_MISSED),
        (ONE_HOP, play(search("ada"), view("ada"), say("1816")), FailureMode.SECTION_MISSED),
        (ONE_HOP, play(search("ada"), read("ada:work"), say("1816")), FailureMode.SECTION_MISSED),
        (ONE_HOP, play(search("ada"), read("ada:life", served=False), say("1816")), FailureMode.INVENTED),
        (ONE_HOP, play(search("ada"), say("1816")), FailureMode.INVENTED),
        (ONE_HOP, play(search("ada"), read("ada:life"), say("1816")), FailureMode.MISREAD),
        (ONE_HOP, play(search("ada", served=False), say("1816")), FailureMode.PAGE_MISSED),
        (TWO_HOP, play(search("notes"), read("notes:author"), say("Ada")), FailureMode.STOPPED_EARLY),
        (TWO_HOP, play(search("notes", "ada"), read("notes:author"), say("Ada")), FailureMode.STOPPED_EARLY),
        (TWO_HOP, play(search("notes"), read("notes:author"), search("bob"), say("Rome")), FailureMode.PAGE_MISSED),
        (TWO_HOP, play(search("notes"), read("notes:author"), search("ada"), say("Rome")), FailureMode.SECTION_MISSED),
        (TWO_HOP, play(search("notes"), read("notes:author"), search("ada"), read("ada:life"), say("Rome")), FailureMode.MISREAD),
        (TWO_HOP, play(search("ada"), read("ada:life"), say("Rome")), FailureMode.STOPPED_EARLY),  # second hop first
        (PAGES_ONLY, play(search("ada"), read("ada:life"), say("Bob")), FailureMode.STOPPED_EARLY),
        (PAGES_ONLY, play(search("ada", "notes"), read("ada:x"), read("notes:y"), say("Bob")), FailureMode.MISREAD),
        (NO_GOLD, play(search("ada"), say("Bob")), FailureMode.INVENTED),
        (NO_GOLD, play(search("ada"), read("ada:life"), say("Bob")), FailureMode.MISREAD),
        (COLONS, play(search("a:b"), say("Bob")), FailureMode.INVENTED),  # the page of the section is `a:b`, not `a`
        (COLONS, play(search("a"), say("Bob")), FailureMode.PAGE_MISSED),
    ],
)
def test_find_failure_mode(question: Question, episode: Episode, failure_mode: FailureMode) -> None:
    assert find_failure_mode(question, episode) is failure_mode


def test_a_failed_episode_is_no_evidence() -> None:
    with pytest.raises(ValueError, match="failed"):
        find_failure_mode(ONE_HOP, play(stop_reason=StopReason.FAILED))


@pytest.mark.parametrize(
    ("question", "episode", "evidence"),
    [
        (ONE_HOP, play(say("x")), Evidence(False, False, False)),
        (ONE_HOP, play(search("bob"), search("ada"), say("x")), Evidence(False, True, False)),
        (ONE_HOP, play(search("bob", "ada"), read("ada:life"), say("x")), Evidence(True, True, True)),
        (ONE_HOP, play(search(served=False), search("ada"), say("x")), Evidence(False, True, False)),
        (ONE_HOP, play(view("ada"), say("x")), Evidence(False, False, False)),  # viewing lists sections, it does not read them
        (TWO_HOP, play(search("notes"), read("notes:author"), say("x")), Evidence(True, False, False)),
        (TWO_HOP, play(search("ada"), search("notes"), read("ada:life"), read("notes:author")), Evidence(False, True, True)),
        (NO_GOLD, play(search("ada"), say("x")), Evidence(None, None, None)),
        (replace(ONE_HOP, section_ids=()), play(search("ada"), say("x")), Evidence(True, True, None)),
    ],
)
def test_gather_evidence(question: Question, episode: Episode, evidence: Evidence) -> None:
    found = gather_evidence(question, episode)
    assert (found.first_hit, found.any_hit, found.gold_read) == (evidence.first_hit, evidence.any_hit, evidence.gold_read)
    assert (found.read_frac == 1.0) == bool(evidence.gold_read)
