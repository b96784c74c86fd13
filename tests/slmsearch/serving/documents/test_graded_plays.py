"""The questions of a calibration on documents that were edited: what is played again, and that the rest need not be."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slmsearch.evaluate.policies import PolicySpec
from slmsearch.serving.api import playing
from slmsearch.serving.api.graded_plays import GradedPlays, collect, read_plays
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.documents.refresh import Version, build_version
from tests.e2e.small_world import Embeddings
from tests.loopback import listening
from tests.slmsearch.serving.documents.test_refresh import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with listening(Embeddings) as address:
        yield Served(tmp_path_factory.mktemp("plays"), address)
    playing._loaded.clear()


def load(served: Served, version: Version) -> None:
    spec = PolicySpec("untrained", served.config.policy)
    playing.load(ServedPolicy("tiny", spec, served.config, version.digest, version.key, measured_on=served.version.digest))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the questions that the model plays."""
    from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment

    ids, play = list[str](), SearcherEnvironment.play

    def noting(self: Any, questions: Sequence[Any], *rest: Any) -> Any:
        ids.extend(question.id for question in questions)
        return play(self, questions, *rest)

    monkeypatch.setattr(SearcherEnvironment, "play", noting)
    return ids


def test_after_an_edit_only_what_saw_it_is_played_again_and_all_is_as_if_played(served: Served, played: list[str], tmp_path: Path) -> None:
    served.restore()
    load(served, served.version)
    nothing = GradedPlays("all", 0)
    before = collect(nothing)
    assert before is not None and len(played) == len(before.plays) > 1.9 * len(served.questions), "questions and a twin of most"
    before.write(tmp_path / "plays.json")
    assert read_plays(tmp_path / "plays.json") == before

    played.clear()
    assert collect(before) == before and played == []

    question = served.questions[0]
    (page,) = question.page_ids
    file = served.home / "docs" / f"{page}.md"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(f"{line} It rained." if question.answer in line else line for line in lines))
    load(served, build_version(served.config.paths, served.config.corpus, served.config.retrieval).version)
    after = collect(before, most=len(before.plays) // 2)
    again = list(played)
    assert after is not None and 0 < len(again) < len(before.plays) // 2 and question.id in again
    assert collect(before, most=len(again) - 1) is None
    played.clear()
    whole = collect(nothing)
    assert whole == after and len(played) == len(before.plays)


def test_a_question_whose_answer_is_gone_is_left_out_and_changes_no_other(served: Served, played: list[str]) -> None:
    served.restore()
    load(served, served.version)
    before = collect(GradedPlays("all", 0))
    assert before is not None
    question = served.questions[3]
    (page,) = question.page_ids
    file = served.home / "docs" / f"{page}.md"
    file.write_text(file.read_text().replace(question.answer, "nobody knows when"))
    load(served, build_version(served.config.paths, served.config.corpus, served.config.retrieval).version)
    played.clear()
    after = collect(before)
    assert after is not None and question.id not in {play.question for play in after.plays}
    assert 0 < len(played) < len(before.plays) // 2, "the others keep their twins"


def test_a_new_page_and_a_sample_change_no_other_question(served: Served, played: list[str]) -> None:
    served.restore()
    load(served, served.version)
    before = collect(GradedPlays("all", 30))
    assert before is not None and len(before.asked) == 30
    gone = next(question for question in served.questions if question.id == before.asked[0])
    (served.home / "docs" / "aachen.md").write_text("# Aachen\n\nA town.\n\n## History\n\nIt was founded in 1123.\n")
    (served.home / "docs" / f"{gone.page_ids[0]}.md").unlink()
    load(served, build_version(served.config.paths, served.config.corpus, served.config.retrieval).version)
    played.clear()
    after = collect(before)
    assert after is not None and after.asked == tuple(name for name in before.asked if name not in (gone.id,))
    renamed = {play.question: play.text for play in after.plays if play.question.endswith("/renamed")}
    assert len(renamed) > 9 and renamed.items() <= {play.question: play.text for play in before.plays}.items(), "they keep their names"
    assert len(played) < len(before.plays) // 3


def test_a_result_that_was_cut_is_the_same_and_a_part_of_a_section_that_was_not_shown_counts(served: Served, played: list[str]) -> None:
    served.restore()
    tight = served.config.changed({"searcher.max_episode_tokens": 160})
    playing.load(ServedPolicy("tiny", PolicySpec("untrained", tight.policy), tight, served.version.digest, served.version.key))
    before = collect(GradedPlays("all", 40))
    assert before is not None and any(play.graded is None for play in before.plays)
    played.clear()
    assert collect(before) == before and played == []
