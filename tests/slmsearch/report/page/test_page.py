"""The page as a whole: whatever the data, it asks nobody for anything, runs only its own script and stays small."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from slmsearch.episodes.episode import ToolCall, ToolResult, Turn
from slmsearch.report.page.browse import pack_episodes
from slmsearch.report.page.render import render_page
from slmsearch.report.page.results import RunResults
from tests.slmsearch.report.page.synthetic import NASTY, make_run, without_training


class Reader(HTMLParser):
    """Collects the elements of a page, and what stands in its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._open = ""
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.inside:
            self._open = tag
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open][-1] += data
        else:
            self.text += data


def parse(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture(scope="module")
def run() -> RunResults:
    return make_run()


@pytest.fixture(scope="module")
def page(run: RunResults) -> str:
    named = replace(run, name=NASTY[1], reason=NASTY[0], warnings=(NASTY[2],), settings={"policy.model": NASTY[0]})
    return render_page([named], "today")


def test_untrusted_text_stays_text(page: str) -> None:
    reader = parse(page)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"img", "iframe", "object", "embed", "link", "base", "b"}
    assert len(reader.inside["script"]) == 3, "two of data and the page's own"
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith("on") or name in ("src", "style")]
    assert "<script>alert(1)</script>" in reader.text, "shown as it was written"
    data = json.loads(reader.inside["script"][1])
    assert any("</script><img" in text for text in data["texts"])
    assert "⟨U+202E⟩" in page and "\u202e" not in page and "\u2028" not in page and "\x00" not in page


def test_nothing_is_asked_of_anybody_and_only_its_own_script_runs(page: str) -> None:
    reader = parse(page)
    policy = next(a["content"] or "" for tag, a in reader.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for kind, content in (("script-src", reader.inside["script"][2]), ("style-src", reader.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    links = [attributes["href"] for tag, attributes in reader.elements if tag == "a"]
    assert all(link and link.startswith("#") for link in links)
    assert "url(" not in reader.inside["style"][0] and "@import" not in reader.inside["style"][0]


def test_it_is_made_for_everybody(page: str) -> None:
    reader = parse(page)
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("caption") == tags.count("table") > 5
    assert all(attributes.get("scope") for tag, attributes in reader.elements if tag == "th")
    assert all(attributes.get("aria-label") for tag, attributes in reader.elements if tag == "svg")
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {(attributes.get("href") or "")[1:] for tag, attributes in reader.elements if tag == "a"}
    assert anchors <= set(ids)


def test_every_part_is_there(page: str) -> None:
    titles = ("Before and after", "Training", "Training rollouts", "How episodes ended", "Tool calls", "By kind, hops and source",
              "The judge")  # fmt: skip
    for title in (*titles, "Suspected reward hacks", "How it was made", "Episodes"):
        assert re.search(rf"<h2>{title}</h2>", page), title


def test_training_rollouts_show_turns_and_rewards_by_step(page: str) -> None:
    section = page.partition('id="r0-rollouts"')[2].partition("</section>")[0]
    assert section.count("<details>") == 20 and "Step 1: best " in section and "Step 20: best " in section
    first = section.partition("<summary>Step 2:")[0]
    assert first.count('class="sample"') == 3 and first.count("<pre") == 3 * 5, "three turns, two of them with a result"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in first and "<script>" not in section
    assert "call_cost -0.04)" in first and "gold answer: <bdi>1500</bdi>" in first
    assert "characters more" in section, "long texts are cut and say so"
    assert len(section.encode()) < 500_000


def test_what_a_worker_was_asked_is_shown(run: RunResults) -> None:
    sample = run.steps[0].samples[0]
    turns = (Turn("a plan"), Turn("", ToolCall("subproblem", "1 plus 2?"), None, ToolResult("", False)), Turn("", answer="7"))
    told = replace(run.steps[0], samples=(replace(sample, episode=replace(sample.episode, turns=turns)),))
    shown = parse(render_page([replace(run, steps=[told])], "today")).text
    for text in ("Turn 1: the policy wrote\na plan", "Turn 2: asked\n1 plus 2?\nnot served, because", "Turn 3: came out\n7"):
        assert text in shown, text


def test_runs_beside_each_other(run: RunResults) -> None:
    other = replace(run, name="other", run_id="b" * 32)
    both = render_page([run, other], "today", max_episodes=20)
    assert "2 runs side by side" in both and "All runs were evaluated on the same questions." in both
    data = json.loads(parse(both).inside["script"][1])
    assert [episode["run"] for episode in data["episodes"]] == [0, 0, 1, 1] * 5, "aligned by question"
    assert len({episode["id"] for episode in data["episodes"]}) == 5
    fewer = make_run(30)
    assert "on different questions" in render_page([run, fewer], "today")


@pytest.mark.parametrize("case", ["no training", "no evaluation", "no episode wanted"])
def test_a_run_shows_what_it_has(run: RunResults, case: str) -> None:
    cases = {"no training": without_training(run), "no evaluation": replace(run, evaluations={}, comparisons={}), "no episode wanted": run}
    shown = render_page([cases[case]], "today", 0 if case == "no episode wanted" else 1000)
    assert ("<h2>Training</h2>" in shown) is (case != "no training")
    assert json.loads(parse(shown).inside["script"][1])["episodes"] == [] or case == "no training"


def test_a_thousand_episodes_stay_under_five_megabytes() -> None:
    big = make_run(n=1000, steps=2000)
    page = render_page([big], "today")
    assert len(page.encode()) <= 5_000_000
    data = json.loads(parse(page).inside["script"][1])
    assert len(data["episodes"]) == 1000
    assert any(" characters more" in text for text in data["texts"])


def test_where_even_short_texts_do_not_fit_episodes_are_left_out_and_counted(run: RunResults) -> None:
    from slmsearch.report.page.browse import choose_episodes

    chosen = choose_episodes([run])
    packed, held, _ = pack_episodes(chosen, max_chars=20_000)
    assert len(packed.encode()) <= 20_000
    assert 0 < held < len(chosen) and len(json.loads(packed)["episodes"]) == held
