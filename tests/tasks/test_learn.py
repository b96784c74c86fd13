"""Questions of `slmsearch learn` from one run to the next."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.runtime.settings import load_config
from slmsearch.config import RunConfig
from slmsearch.corpus.library import Library
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.scripted import ScriptedSampler
from tasks.corpus_data import Data
from tasks.learn import ask
from tests.slmsearch.environments.writer.test_writer import PAGES, Writer
from tests.slmsearch.made_questions.test_make import WordIndex


def test_sections_that_the_writer_did_not_reach_are_asked_about_by_the_next_run(
    isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, models, library = [0.0], isolated_environment / "writer", Library(PAGES)
    models.mkdir()
    (models / "model.safetensors").write_text("writer")
    for module in ("tasks.learn", "slmsearch.environments.writer.trained_writer"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now[0]))
    indexed = IndexedCorpus("digest", "index", Toolbox(library, WordIndex(library), 3, 1500), {})
    monkeypatch.setattr("slmsearch.environments.searcher.indexed_corpus.open_indexed_corpus", lambda *_: indexed)
    script = Writer()

    def write(content: str, results: list[str]) -> str:
        now[0] += 10.0
        return script(content, results)

    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", lambda policy, tool_role: ScriptedSampler(write))
    config = load_config(environment={}, base=isolated_environment).changed(
        {"corpus.pages": "pages", "learn.writer": str(models), "learn.budget_s": 200.0, "evaluate.batch_size": 1}
    )

    def learn_by(run: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        asked = ask(Data("digest", "index"), run, config, lambda done, total: None)
        rows = [json.loads(line) for line in Path(asked["path"]).read_text().splitlines()]
        return dict(asked), {row["id"]: row for row in rows}

    first, some = learn_by("first")
    assert first["unasked"] == 2 and len({page for row in some.values() for page in row["page_ids"]}) == 2
    tasks = len(script.tasks)
    assert learn_by("first") == (first, some) and len(script.tasks) == tasks, "a resumed run goes on with what it asked"
    second, all_rows = learn_by("second")
    assert (second["unasked"], second["kept"]) == (0, len(some)) and some.items() <= all_rows.items()
    assert {page for row in all_rows.values() for page in row["page_ids"]} == {page.id for page in PAGES}
    assert not {row["section_ids"][0] for row in some.values()} & {all_rows[name]["section_ids"][0] for name in all_rows.keys() - some}
    tasks = len(script.tasks)
    third, rows = learn_by("third")
    assert (third["kept"], rows, len(script.tasks)) == (len(all_rows), all_rows, tasks), "each is asked about once"


def test_a_deployment_with_a_relative_folder_learns_what_the_command_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import learn as flow

    opened: list[str] = []
    (tmp_path / "docs").mkdir()

    def open_nothing(name: str, config: RunConfig, trains: bool) -> None:
        opened.append(config.tracking.registered_model)
        raise InterruptedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flow, "open_pipeline", open_nothing)
    for pages in ("docs", str(tmp_path / "docs")):
        with pytest.raises(InterruptedError):
            flow.learn.fn(RunConfig().changed({"corpus.pages": pages}))
    assert len(set(opened)) == 1 and opened[0].startswith("slmsearch-docs-")
