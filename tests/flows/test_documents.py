"""A folder of documents from the command line: what was skipped, search, ask, questions."""

import json
import random
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from flows.cli import asking
from flows.stages.policy_choice import SearcherChoice, choose_policy
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import ModelError
from slmsearch.evaluate.policies import PolicySpec
from tests.flows.test_commands import Invoke, invoke
from tests.loopback import listening

__all__ = ["invoke"]
NAMES = ("Alba", "Brixa", "Cortona", "Delos", "Elea", "Faro")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of three formats, an empty one, and an image."""
    path = tmp_path_factory.mktemp("documents")
    for number, name in enumerate(NAMES):
        founded = f"The town of {name} was founded in {1500 + number} by Admiral {name}son."
        people = f"{name} has {200 + number} inhabitants."
        if number % 2:
            (path / f"{name}.md").write_text(f"# {name}\n\nA town.\n\n## History\n\n{founded}\n\n## People\n\n{people}\n")
        else:
            (path / f"{name}.html").write_text(f"<h1>{name}</h1><p>A town.<h2>History</h2><p>{founded}<h2>People</h2><p>{people}")
    (path / "empty.md").write_text("")
    (path / "image.png").write_bytes(b"x")
    return path


@pytest.mark.parametrize("command", [("setup", "--skip-index"), ("validate",), ("index", "build")])
def test_what_was_skipped_is_shown_and_listed(invoke: Invoke, folder: Path, command: tuple[str, ...]) -> None:
    code, out, err = invoke(*command, "--corpus.pages", str(folder))
    assert code == 0, err
    shown = out + err
    assert "warning   pages: 1 file not taken: empty  [empty.md]" in shown
    assert "info      pages: 1 file not taken: of a kind that is not read" in shown
    code, out, _ = invoke(*command, "--json", "--corpus.pages", str(folder))
    skipped = json.loads(out)["skipped"]
    assert [(item["path"], item["reason"]) for item in skipped] == [
        ("empty.md", "empty"),
        (
            "image.png",
            "of a kind that is not read "
            "(.md, .txt, .rst, .html, .pdf, .docx, .pptx, .xlsx, .csv, .tsv, .epub, .ipynb, .info and man pages are)",
        ),
    ], "remembered, too"


def test_pages_shows_what_is_read_without_an_index(invoke: Invoke, folder: Path) -> None:
    code, out, err = invoke("pages", str(folder))
    assert code == 0 and "warning   pages: 1 file not taken: empty  [empty.md]" in err
    assert out.endswith("6 pages, 18 sections, 120 words; 0 pages look wrong\n") and "Cortona" in out
    code, out, err = invoke("pages", str(folder), "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [(row["id"], row["title"], row["path"]) for row in rows[:2]] == [
        ("alba", "Alba", "Alba.html"),
        ("brixa", "Brixa", "Brixa.md"),
    ]
    assert rows[1]["sections"][1] == {
        "id": "brixa:history", "heading": "History", "text": "The town of Brixa was founded in 1501 by Admiral Brixason.",
    }  # fmt: skip
    code, out, err = invoke("pages", str(folder / "nowhere"), "--json")
    assert code == 3 and "nowhere does not exist" in json.loads(out)["error"]


def test_search_finds_the_version_of_the_folder(invoke: Invoke, folder: Path) -> None:
    code, out, err = invoke("index", "build", "--json", "--corpus.pages", str(folder))
    key = json.loads(out)["key"]
    code, out, err = invoke("search", "Cortona", "--json", "--corpus.pages", str(folder))
    assert code == 0, err
    assert json.loads(out)["index_key"] == key
    assert json.loads(out)["hits"][0]["page_id"] == "cortona"


def test_a_promise_is_measured_and_served_only_if_it_is_kept(invoke: Invoke, folder: Path, tmp_path: Path) -> None:
    rows = [{"id": f"{name}{of}", "question": f"How many inhabitants has {name}?", "answer": str(200 + number), "page_ids": [name.lower()]}
            for number, name in enumerate(NAMES) for of in range(3)]  # fmt: skip
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ("--policy", "retrieve-then-answer", "--corpus.pages", str(folder), "--corpus.questions", str(tmp_path / "questions.jsonl"))
    code, out, err = invoke("calibrate", *settings, "--split", "all", "--wrong-at-most", "0.5", "--json")
    found = json.loads(out)
    assert {"threshold", "answered_frac", "wrong_frac", "low", "high", "n"} <= found.keys(), err
    assert (code, found["threshold"]) == (1, None) and Path(found["file"]).is_file(), "it answers all, and knows no twin from a question"
    code, _, err = invoke("calibrate", "--policy", "tiny-searcher", *settings[2:], "--split", "all", "--policy.device", "cpu")
    assert code == 2 and "may have learnt from the training questions" in err.splitlines()[-1]
    code, out, _ = invoke("serve", "searcher", *settings, "--wrong-at-most", "0.01", "--json")
    assert code == 3 and "to promise 0.01: promise less, or calibrate on more questions" in json.loads(out)["error"]
    code, out, _ = invoke("serve", "searcher", *settings, "--searcher.max_turns", "9", "--wrong-at-most", "0.01", "--json")
    assert code == 3 and "is not calibrated with these settings: run `slmsearch calibrate`" in json.loads(out)["error"]


def test_ask_shows_turns_answer_and_sources(invoke: Invoke, folder: Path) -> None:
    arguments = ("ask", "In which year was Brixa founded?", "--policy", "retrieve-then-answer", "--corpus.pages", str(folder))
    code, out, err = invoke(*arguments)
    assert code == 0, err
    assert '> search_pages("In which year was Brixa founded?")' in err
    assert '> read_section("brixa:history")' in err
    assert "answer   1501" in out and "sources  Brixa, History  (brixa:history)" in out
    code, out, _ = invoke(*arguments, "--json")
    result = json.loads(out)
    assert (result["answer"], result["stop_reason"], result["policy"]) == ("1501", "answered", "retrieve-then-answer")
    assert result["sources"][0] == {
        "page_id": "brixa",
        "title": "Brixa",
        "section_id": "brixa:history",
        "heading": "History",
        "quoted": False,
        "supports": "The town of Brixa was founded in 1501 by Admiral Brixason.",
        "path": "Brixa.md",
        "under": [],
        "page": None,
    }
    assert result["turns"][0]["calls"][0]["name"] == "search_pages"


def scripted(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    sampler = ScriptedSampler(lambda question, results: texts[min(len(results), len(texts) - 1)])
    monkeypatch.setattr(asking, "make_policy_sampler", lambda *_: sampler)


def test_ask_shows_a_passage_with_its_lines_and_names_its_section(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mill.md").write_text(
        "# Mill\n\nA mill.\n\n## Wheel\n\nTake care.\n\n1. Open the box.\n   - slowly\n2. Close \x1b[31mit.\n"
    )
    scripted(monkeypatch, '<tool>read_section("mill:wheel")</tool>', '<answer section="mill:wheel" lines="2-4"></answer>')
    arguments = ("ask", "How do I close it?", "--policy", "untrained", "--corpus.pages", str(tmp_path))
    code, out, err = invoke(*arguments)
    assert code == 0, err
    assert "> answer: lines 2-4 of mill:wheel\n" in err
    assert "\nanswer   1. Open the box.\n            - slowly\n         2. Close " in out and "\x1b" not in out + err
    assert "sources  Mill, Wheel  (mill:wheel, quoted)" in out
    result = json.loads(invoke(*arguments, "--json")[1])
    assert result["answer"].startswith("1. Open the box.\n   - slowly\n2. Close ")
    assert [(source["section_id"], source["quoted"]) for source in result["sources"]] == [("mill:wheel", True)]


def test_ask_without_an_answer_is_exit_1_and_escapes_what_was_written(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, '<tool>view_sections("brixa")</tool>', "\x1b[31mno idea")
    code, out, err = invoke("ask", "Who?", "--policy", "untrained", "--corpus.pages", str(folder))
    assert code == 1
    assert "3 sections: Brixa, History, People" in err
    assert "\x1b" not in err + out
    assert "neither a call nor an answer" in out and "none was read" in out


class SignIn(BaseHTTPRequestHandler):
    """Answers everything with a page and status 200, as a proxy does, or a server of another kind."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Sign in</title>")

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_ask_says_in_one_line_that_a_page_came_instead_of_a_turn(invoke: Invoke, folder: Path) -> None:
    with listening(SignIn) as address:
        code, out, err = invoke("ask", "Who?", "--policy", f"openai:m@{address}/v1", "--corpus.pages", str(folder))
    assert (code, out) == (3, "")
    assert "Traceback" not in err
    told = err.strip().splitlines()[-1]
    assert f"the question was not answered: generation: {address}/v1/ sent no chat completion but text/html '<!doctype html>" in told
    assert "does the address end in /v1?" in told


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("ask", " "), 2, "the question is empty"),
        (("ask", "x", "--policy", "worker-alone"), 2, "cannot search"),
        (("ask", "x", "--policy", "openai:model"), 2, "malformed"),
        (("questions", "--out", "q.jsonl"), 2, "--from-corpus"),
        (("questions", "--from-corpus", "--out", "q.jsonl", "--corpus.pages", "gone"), 3, "gone does not exist"),
    ],
)
def test_wrong_usage_is_one_line(invoke: Invoke, arguments: tuple[str, ...], code: int, named: str) -> None:
    found, _, err = invoke(*arguments)
    assert found == code and named in err and "Traceback" not in err


def test_who_is_asked_without_a_champion_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    config = RunConfig(policy=PolicyConfig(model="tiny"))
    monkeypatch.setattr("flows.stages.policy_choice.find_champion", lambda paths, tracking: None)
    assert SearcherChoice(config, None, said.append).choose()[0].name == "untrained"
    assert "nothing was promoted yet, so the untrained tiny answers" in said[0]
    with pytest.raises(ModelError, match="no champion yet"):
        SearcherChoice(config, "champion", said.append).choose()
    assert choose_policy(config, "retrieve-then-answer") == (PolicySpec("retrieve-then-answer", None), None)


def test_questions_of_a_folder_are_valid_and_can_be_evaluated_on(invoke: Invoke, folder: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "new" / "questions.jsonl"
    arguments = ("questions", "--from-corpus", "--out", str(out_file), "--corpus.pages", str(folder))
    code, out, err = invoke(*arguments, "--json")
    assert code == 0, err
    result = json.loads(out)
    rows = [json.loads(line) for line in out_file.read_text().splitlines()]
    assert result["valid"] and result["count"] == len(rows) == sum(result["kept"].values()) >= 6
    assert sum(result["made"].values()) == sum(result["kept"].values()) + sum(result["dropped"].values())
    assert set(rows[0]) == {"id", "question", "answer", "aliases", "page_ids", "section_ids", "hops", "kind"}
    code, out, err = invoke("validate", "--json", "--corpus.pages", str(folder), "--corpus.questions", str(out_file))
    assert code == 0 and json.loads(out)["counts"]["questions"] == len(rows)
    before = out_file.read_text()
    invoke(*arguments)
    assert out_file.read_text() == before, "the same seed gives the same"


def test_a_writer_asks_in_the_place_of_gaps(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(NAMES):
        text = f"The town was founded in {1500 + number} by Admiral {name}son. It was burnt down by the troops of Queen {name}issa at last."
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nA town.\n\n## History\n\n{text} Nobody has lived there since that day.\n")
    answers: dict[str, str] = {}

    def write(content: str, results: list[str]) -> str:
        title, asked = content.partition("\n")[0], content.rpartition("\n\n")[2]
        if not asked.startswith("Answer: "):
            return f"<answer>{answers[asked]}</answer>"
        question = f"what is number{len(answers)} of {title}"
        answers[question] = asked.removeprefix("Answer: ")
        return question

    monkeypatch.setattr("slmsearch.sampling.load_sampler.make_sampler", lambda policy, tool_role: ScriptedSampler(write))
    arguments = ("questions", "--from-corpus", "--out", str(tmp_path / "q.jsonl"), "--corpus.pages", str(tmp_path), "--json")
    code, out, _ = invoke(*arguments, "--writer", str(tmp_path / "writer"))
    assert code == 3 and "learn.writer" in json.loads(out)["error"]
    (tmp_path / "writer").mkdir()
    (tmp_path / "writer" / "config.json").write_text("{}")
    kept = {}
    for kinds in ("gaps", "written", "both"):
        code, out, err = invoke(*arguments, "--writer", str(tmp_path / "writer"), "--limit", "8", "--learn.questions", kinds)
        assert code == 0, err
        kept[kinds] = json.loads(out)["kept"]
    assert kept["gaps"] == {"cloze": 8} and kept["written"] == {"written": 8} and kept["both"]["written"] == 4 < sum(kept["both"].values())


def test_odd_queries_do_not_break_the_search(invoke: Invoke, folder: Path) -> None:
    assert invoke("index", "build", "--corpus.pages", str(folder))[0] == 0
    rng = random.Random(3)
    for _ in range(40):
        query = "".join(chr(rng.choice([rng.randrange(1, 128), rng.randrange(1, 0x3000), 0xDC80 + rng.randrange(128)])) for _ in range(12))
        code, out, err = invoke("search", "--json", "--corpus.pages", str(folder), "--", query)
        assert code == 0, err
        json.loads(out)
