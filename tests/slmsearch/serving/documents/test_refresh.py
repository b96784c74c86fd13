"""What the gate lets in and what it holds back, with tiny-searcher on a generated world that lies in a folder."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slmsearch.config import RunConfig, WorldConfig
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.corpus.world import generate_world
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.serving.api import playing
from slmsearch.serving.api.playing import ServedPolicy
from slmsearch.serving.documents.gate import compare_pages, find_losses, judge_replay
from slmsearch.serving.documents.refresh import Refreshed, build_version, refresh
from tests.e2e.small_world import Embeddings
from tests.loopback import listening
from tests.root import ROOT
from tests.slmsearch.serving.documents.edits import BAD, HARMLESS, Edit

MODEL = ROOT / "data" / "models" / "tiny-searcher"


def test_a_page_without_spaces_between_words_cannot_lose_its_text_unseen() -> None:
    before, after = ({"p": Page("p", "规定", f"# 规定\n\n{text}")} for text in ("试用期内员工享有带薪年假。" * 10, "试用期。"))
    assert find_losses(before, after, compare_pages(before, after), {}, []) == ["p: 5 of 122 words are left"]


class Served:
    """A world in a folder, indexed and loaded in this process."""

    def __init__(self, home: Path, address: str, pages: int = 60, seed: int = 5) -> None:
        world = generate_world(WorldConfig(pages=pages, seed=seed))
        self.home, self.whole = home, home / "whole"
        self.whole.mkdir(parents=True)
        for page in world.pages:
            (self.whole / f"{page.id}.md").write_text(page.content)
        self.questions = [one for one in world.questions if one.kind == "one_hop" and len(one.page_ids) == 1]
        (home / "questions.jsonl").write_text("".join(f"{_row(one)}\n" for one in self.questions))
        settings = {"data_dir": str(home / "data"), "mlruns_dir": str(home / "mlruns")}
        self.config = RunConfig().changed(
            {
                **{f"paths.{name}": value for name, value in settings.items()},
                "retrieval.embedder.base_url": address,
                "retrieval.embedder.model": "words",
                "policy.model": str(MODEL),
                "policy.device": "cpu",
                "corpus.pages": str(home / "docs"),
            }
        )
        self.restore()
        first = self.config.changed({"corpus.questions": str(home / "questions.jsonl")})
        self.version = build_version(first.paths, first.corpus, first.retrieval).version

    def restore(self) -> None:
        shutil.rmtree(self.home / "docs", ignore_errors=True)
        shutil.copytree(self.whole, self.home / "docs")

    def reasons(self, edit: Edit, seed: int) -> list[str]:
        """Return why an edit of the whole folder is held back."""
        self.restore()
        edit(self.home / "docs", self.questions, random.Random(seed))
        made = refresh(self.config.paths, self.config.corpus, self.config.retrieval, self.version, self.version.digest)
        if made.losses or not made.edit:
            return list(made.losses)
        return self.replay(made)

    def replay(self, made: Refreshed) -> list[str]:
        spec = PolicySpec("untrained", self.config.policy)
        playing.load(ServedPolicy("tiny", spec, self.config, made.version.digest, made.version.key))
        pairs = playing.replay(made.replayed, self.version.digest, self.version.key)
        return judge_replay([old for old, _ in pairs], [now for _, now in pairs])


def _row(question: Question) -> str:
    import json

    return json.dumps(question.row())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with listening(Embeddings) as address:
        yield Served(tmp_path_factory.mktemp("gate"), address)
    playing._loaded.clear()


@pytest.mark.parametrize("edit", BAD, ids=lambda edit: edit.__name__)
def test_what_nobody_means_is_held_back_with_a_reason(served: Served, edit: Edit) -> None:
    assert served.reasons(edit, 1)


@pytest.mark.parametrize("edit", HARMLESS, ids=lambda edit: edit.__name__)
def test_what_people_do_every_day_is_served(served: Served, edit: Edit) -> None:
    assert served.reasons(edit, 1) == []


def test_a_folder_without_questions_has_some_made_of_what_is_served(served: Served) -> None:
    served.restore()
    plain = build_version(served.config.paths, served.config.corpus, served.config.retrieval).version
    edited = sorted((served.home / "docs").glob("*.md"))[0]
    edited.write_text(f"{edited.read_text()}\nOn Fridays the old mill of Kortel is closed at 7 o'clock.\n")
    made = refresh(served.config.paths, served.config.corpus, served.config.retrieval, plain, plain.digest)
    assert made.edit.changed == (edited.stem,) and not made.losses and len(made.replayed) == 32
    assert all(question.question and question.answer for question in made.replayed)


def test_what_did_not_change_is_the_same_version(served: Served) -> None:
    served.restore()
    made = refresh(served.config.paths, served.config.corpus, served.config.retrieval, served.version, served.version.digest)
    assert not made.edit and made.version.key == served.version.key and "indexes" not in made.built
