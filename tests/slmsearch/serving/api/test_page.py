"""The page at `/` in a real browser, before a service that listens: steps as they come, answer, sources, verdicts, and what it keeps."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.processes.ports import free_port
from slmsearch.retrieval.hits import Hit
from slmsearch.serving.api import playing
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.feedback import FeedbackLog
from slmsearch.serving.api.http_server import Place, serve
from slmsearch.serving.api.page import FILES, TYPES
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.report.page.chromium import Browser, find_chromium, open_browser
from tests.slmsearch.serving.api.fakes import WAIT_SECONDS, corpus_of, served, settings, use_fakes

COMMAND = find_chromium()
needs_chromium = pytest.mark.skipif(COMMAND is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script><h1>Big</h1>"
TOWER = f"""# Eiffel Tower

A tower in Paris.

## Design

The tower is named after the engineer Gustave Eiffel, whose company designed and built it from 1887 to 1889. Maurice Koechlin and Émile
Nouguier drew the first design in 1884. {HOSTILE} Only Gustave Eiffel's name was kept. A hidden turn: \u202eslaw\u202c.
"""
QUESTION = "Which engineer is the Eiffel Tower named after?"


class TowerIndex:
    key = "index-1"

    def search(self, queries: Any, top_k: int, hidden: Any = ()) -> list[list[Hit]]:
        hits = [Hit("p0", "Eiffel Tower", 1.0, "p0:design")]
        return [[hit for hit in hits if hit.section_id not in gone] for _, gone in zip(queries, hidden or [()] * len(queries), strict=True)]


@dataclass
class Scene:
    address: str
    token: str | None
    log: FeedbackLog
    turn: threading.Semaphore
    """A question that waits plays a turn for each release."""


def script(turn: threading.Semaphore, question: str, results: list[str]) -> str:
    if "wait" in question:
        assert turn.acquire(timeout=WAIT_SECONDS)
    if "nothing" in question:
        return "no idea"
    calls = ['search_pages("Eiffel Tower engineer")', 'view_sections("p0")', 'read_section("p0:design")']
    if "hostile" in question:
        calls.insert(0, f'view_sections("{HOSTILE.replace(chr(34), chr(39))}")')
    if len(results) < len(calls):
        return f"<tool>{calls[len(results)]}</tool>"
    return f"<answer>{'<b>Gustave</b>' if 'hostile' in question else 'Gustave Eiffel'}</answer>"


@contextmanager
def listening(folder: Path, token: str | None) -> Iterator[Scene]:
    """Run a service with a scripted policy on a port of its own."""
    turn, stop, ready = threading.Semaphore(0), threading.Event(), threading.Event()
    toolbox = Toolbox(Library([Page("p0", "Eiffel Tower", TOWER)]), TowerIndex(), top_k=3, max_section_chars=1000)
    place, log = Place("127.0.0.1", free_port(), token), FeedbackLog(folder / "feedback.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        use_fakes(patch)
        patch.setattr(playing, "open_indexed_corpus", lambda *_: corpus_of(toolbox))
        patch.setattr(playing, "make_policy_sampler", lambda *_: ScriptedSampler(lambda text, results: script(turn, text, results)))
        service = SearcherService(served("slmsearch-searcher/3"), settings())
        thread = threading.Thread(target=serve, args=(service, place, stop, ready.set, partial(make_app, feedback=log)))
        thread.start()
        try:
            assert ready.wait(WAIT_SECONDS)
            yield Scene(f"http://127.0.0.1:{place.port}/", token, log, turn)
        finally:
            stop.set()
            turn.release(100)
            thread.join(WAIT_SECONDS)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with listening(tmp_path_factory.mktemp("log"), None) as started:
        yield started


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(str(COMMAND), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def browser(chromium: Browser, scene: Scene) -> Browser:
    chromium.visit(scene.address)
    chromium.run("localStorage.clear()")
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.visit(scene.address)
    return chromium


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r})?.innerText ?? ''"))


def until(browser: Browser, condition: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not browser.run(f"Boolean({condition})"):
        assert time.monotonic() < end, (condition, text(browser, "body"), browser.complaints)
        time.sleep(0.02)


def press(browser: Browser, key: str, code: int, **more: Any) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


def enter(browser: Browser, written: str) -> None:
    browser.call("Input.insertText", text=written)
    press(browser, "Enter", 13, text="\r")


def tab_to(browser: Browser, name: str) -> None:
    """Move on by the tab key to a control, as somebody without a mouse does."""
    for _ in range(20):
        press(browser, "Tab", 9)
        if browser.run("document.activeElement.id") == name:
            assert browser.run("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{name} cannot be reached")


def ask(browser: Browser, question: str) -> None:
    browser.run("document.getElementById('question').focus()")
    enter(browser, question)
    until(browser, "!document.getElementById('answered').hidden && document.getElementById('shown').ariaBusy === 'false'")


@needs_chromium
def test_chips_show_and_remove_what_restricts_the_documents(browser: Browser) -> None:
    browser.run("document.querySelector('#where summary').click(); document.querySelector('#where [name=file]').focus()")
    browser.call("Input.insertText", text="p0")
    assert text(browser, "#chips") == "file p0 \u00d7"
    ask(browser, QUESTION)
    assert text(browser, "#within") == "Only documents with file p0"
    assert browser.run("document.querySelectorAll('#sources figure').length") == 1
    browser.call("Input.insertText", text="x")
    browser.run("document.querySelector('#where [name=file]').focus()")
    browser.call("Input.insertText", text="1")
    browser.run("document.getElementById('question').focus()")
    enter(browser, QUESTION)
    until(browser, "!document.getElementById('failed').hidden")
    assert text(browser, "#failure") == "No page is in that folder, file, tag or time."
    browser.run("document.querySelector('.chip').click()")
    assert browser.run("[document.getElementById('chips').hidden, document.activeElement.id]") == [True, "question"]
    ask(browser, QUESTION)
    assert browser.run("document.getElementById('within').hidden")
    assert browser.run("document.querySelectorAll('#sources figure').length") == 1
    browser.run("document.querySelector('#where [name=since]').focus()")
    browser.call("Input.insertText", text="soon")
    browser.run("document.getElementById('question').focus()")
    enter(browser, QUESTION)
    until(browser, "!document.getElementById('failed').hidden")
    assert text(browser, "#failure") == "Since: 'soon' is no date; write 2025, 2025-03 or 2025-03-31."


@needs_chromium
def test_steps_come_one_by_one_then_answer_and_marked_source(browser: Browser, scene: Scene) -> None:
    assert browser.run("document.activeElement.id") == "question"
    enter(browser, f"{QUESTION} wait")
    count = "document.querySelectorAll('#steps li:not(.waits)').length"
    for number in (1, 2, 3):
        scene.turn.release()
        until(browser, f"{count} === {number}")
        assert text(browser, "#told").startswith(f"Step {number}: ")
        assert browser.run("document.getElementById('answered').hidden") and text(browser, "#steps .waits") == "Searching …"
    scene.turn.release()
    until(browser, "!document.getElementById('answered').hidden")
    assert text(browser, "#answer") == "Gustave Eiffel" and text(browser, "#told") == "Answer: Gustave Eiffel"
    assert re.fullmatch(r"3 steps · \d+\.\d s · slmsearch-searcher/3", text(browser, "#facts"))
    assert browser.run("[...document.querySelectorAll('#steps summary')].map(one => one.innerText)") == [
        "Searched for Eiffel Tower engineer",
        "Looked at the sections of p0",
        "Read p0:design",
    ]
    assert browser.run("[...document.querySelectorAll('mark')].map(one => one.textContent)") == ["Gustave Eiffel", "Gustave Eiffel"]
    named = browser.run("[...document.querySelectorAll('figcaption > *')].map(one => one.textContent)")
    assert named == ["Eiffel Tower", "Design", "p0:design"]
    assert browser.complaints == []
    expected = {"", "page/page.css", "page/page.js", "page/reply.js", "v1/chat/completions", "v1/documents"}
    assert {address.removeprefix(scene.address) for address in browser.requests} - {"page/icon.svg"} == expected


@needs_chromium
def test_markup_is_shown_as_text(browser: Browser) -> None:
    ask(browser, f"hostile {HOSTILE}")
    for place in ("#asked", "#steps li:first-child summary", "blockquote", "#earlier"):
        assert "<script>" in text(browser, place), place
    assert text(browser, "#answer") == "<b>Gustave</b>" and "⟨U+202E⟩slaw⟨U+202C⟩" in text(browser, "blockquote")
    assert browser.run("document.querySelectorAll('article img, article script, article h1, article :not(summary) > b').length") == 0
    assert browser.run("document.title") == "Ask · slmsearch"
    assert text(browser, ".unserved em") == "not possible" and browser.complaints == []


@needs_chromium
def test_a_verdict_is_sent_and_kept(browser: Browser, scene: Scene) -> None:
    before = len(scene.log.read().records)
    ask(browser, QUESTION)
    tab_to(browser, "right")
    press(browser, "Enter", 13, text="\r")
    until(browser, "document.getElementById('thanks').textContent.includes('right')")
    ask(browser, f"{QUESTION} Again")
    tab_to(browser, "wrong")
    press(browser, "Enter", 13, text="\r")
    assert browser.run("document.activeElement.id") == "correct"
    browser.call("Input.insertText", text="Maurice Koechlin")
    tab_to(browser, "source")
    browser.run("document.getElementById('source').value = 'p0:design'; document.getElementById('correction').requestSubmit()")
    until(browser, "document.getElementById('thanks').textContent.includes('Maurice Koechlin')")
    right, wrong = scene.log.read().records[before:]
    assert (right.question, right.answer, right.verdict, right.correct_answer) == (QUESTION, "Gustave Eiffel", "right", None)
    assert right.source == "p0:design" and str(right.completion).startswith("chatcmpl-")
    assert (wrong.verdict, wrong.correct_answer, wrong.source) == ("wrong", "Maurice Koechlin", "p0:design")
    assert browser.run("document.activeElement.id") == "asked", "focus is not lost with the button"
    assert browser.run("[...document.querySelectorAll('#earlier .reply')].map(one => one.textContent)") == [
        "✗ wrong Gustave Eiffel",
        "✓ right Gustave Eiffel",
    ]
    assert browser.complaints == []


@needs_chromium
def test_earlier_questions_stay_in_the_browser_until_they_are_cleared(browser: Browser, scene: Scene) -> None:
    assert text(browser, "#none").startswith("None yet") and browser.run("document.getElementById('clear').hidden")
    ask(browser, QUESTION)
    browser.visit(scene.address)
    browser.run("document.querySelector('#earlier button').click()")
    assert text(browser, "#answer") == "Gustave Eiffel" and text(browser, "mark") == "Gustave Eiffel"
    assert browser.run("document.querySelector('#earlier button').getAttribute('aria-current')") == "true"
    assert browser.run("document.activeElement.id") == "asked"
    browser.run("document.getElementById('clear').click()")
    assert browser.run("localStorage.length") == 0 and text(browser, "#none").startswith("None yet")
    browser.run("localStorage.setItem('slmsearch.asked', '[{\"question\": 1}]')")
    browser.visit(scene.address)
    assert text(browser, "#none").startswith("None yet") and browser.complaints == []


@needs_chromium
def test_how_sure_an_answer_is_and_the_file_that_states_it_are_shown(browser: Browser, scene: Scene) -> None:
    source = {"title": "Mill", "section_id": "p:care", "heading": "Care", "text": "## Care\n\nWait for 12 minutes.", "quoted": False}
    pdf = {**source, "supports": "Wait for 12 minutes.", "path": "a b/man#1.pdf", "page": 7, "under": ["Use", "Steps"]}
    plain = {**source, "supports": "", "path": "notes/mill.md", "page": None, "under": []}
    promise = {"wrong_at_most": 0.05, "level": 0.95, "n": 120, "holds": True}
    kept = {"steps": [], "done": True, "seconds": 1, "version": "v", "sources": [pdf, plain], "supported": True, "said": "12 minutes"}
    entries = [
        {**kept, "id": "1", "question": "Sure?", "answer": "12 minutes", "nearest": None, "confidence": 0.9876, "promise": promise},
        {
            **kept, "id": "2", "question": "Unsure?", "answer": "I don't know", "nearest": "12 minutes", "confidence": 0.2,
            "said": "I don't know; the nearest is: 12 minutes", "promise": {**promise, "holds": False},
        },
    ]  # fmt: skip
    browser.run(f"localStorage.setItem('slmsearch.asked', {json.dumps(json.dumps(entries))})")
    browser.visit(scene.address)
    browser.run("document.querySelectorAll('#earlier button')[0].click()")
    assert text(browser, "#answer") == "12 minutes" and text(browser, "#facts").startswith("98 % sure · ")
    assert text(browser, "#promise") == "Of the answers given here at most 5 % are wrong, as measured on 120."
    assert text(browser, "figcaption").split("\n") == ["Mill Use Steps Care", "a b/man#1.pdf · page 7"]
    links = browser.run("[...document.querySelectorAll('figcaption a')].map(one => one.href)")
    assert links == [f"{scene.address}v1/documents/a%20b/man%231.pdf#page=7", f"{scene.address}v1/documents/notes/mill.md"]
    browser.run("document.querySelectorAll('#earlier button')[1].click()")
    assert text(browser, "#answer") == "I don't know; the nearest is: 12 minutes" and text(browser, "mark") == "12 minutes"
    assert text(browser, "#promise").startswith("No promise holds for this answer") and browser.run(OVERHANG) == 0
    assert browser.complaints == []


@needs_chromium
def test_what_goes_wrong_is_said_in_words(browser: Browser, scene: Scene) -> None:
    ask(browser, "nothing?")
    assert text(browser, "#answer").startswith("No answer was found") and browser.run("document.getElementById('right').hidden")
    enter(browser, "wait for ever")
    until(browser, "document.querySelector('#steps .waits')")
    tab_to(browser, "stop")
    press(browser, "Enter", 13, text="\r")
    until(browser, "!document.getElementById('failed').hidden")
    assert text(browser, "#failure") == "Stopped before it was answered."
    assert browser.run("document.activeElement.id") == "question" and browser.run("document.getElementById('stop').hidden")
    scene.turn.release(10)
    browser.run(
        "fetch = () => Promise.resolve(new Response(JSON.stringify({error: {message: 'it is full'}}), "
        "{status: 429, headers: {'Retry-After': '2'}}))"
    )
    enter(browser, "Anything?")
    until(browser, "document.getElementById('failure').textContent.startsWith('It is full')")
    assert text(browser, "#failure") == "It is full. Try again in 2 s."


@needs_chromium
@pytest.mark.parametrize("width", [320, 640, 1280])
def test_nothing_runs_off_the_side(browser: Browser, scene: Scene, width: int) -> None:
    """640 px are a window of 1280 at 200 %."""
    browser.visit(scene.address, width, 800)
    ask(browser, "x" * 300)
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; }); document.getElementById('wrong').click()")
    assert browser.run(OVERHANG) == 0
    small = browser.run(
        "[...document.querySelectorAll('button, input, select, summary')].filter(one => one.offsetHeight && "
        "one.getBoundingClientRect().height < 24).map(one => one.outerHTML)"
    )
    assert small == [], "targets are 24 px high at least"


@needs_chromium
def test_every_control_has_a_name_and_every_motion_can_be_reduced(browser: Browser) -> None:
    ask(browser, QUESTION)
    browser.run("document.getElementById('wrong').click()")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "textbox", "combobox", "link")
    unnamed = [node for node in nodes if node.get("role", {}).get("value") in roles and not node.get("name", {}).get("value")]
    assert unnamed == []
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.run("document.getElementById('steps').innerText; document.querySelector('#steps li').className = 'waits'")
    assert browser.run("getComputedStyle(document.querySelector('#steps .waits'), '::before').animationName") == "none"
    browser.call("Emulation.setEmulatedMedia", features=[])


@needs_chromium
def test_the_browser_asks_nobody_else_and_makes_no_markup(browser: Browser, scene: Scene) -> None:
    elsewhere = f"http://127.0.0.1:{free_port()}/"
    assert browser.run(f"fetch({elsewhere!r}, {{mode: 'no-cors'}}).then(() => 'sent', () => 'refused')") == "refused"
    assert any("Content Security Policy" in told for told in browser.complaints)
    assert browser.run("try { document.body.innerHTML = '<i>x</i>'; 'made' } catch (error) { error.name }") == "TypeError"
    assert all(address.startswith(scene.address) for address in browser.requests if address != elsewhere)


@needs_chromium
def test_with_a_token_the_browser_asks_its_user_for_it(tmp_path: Path, chromium: Browser) -> None:
    with listening(tmp_path, "s3cret-token") as scene:
        chromium.visit(scene.address)
        assert chromium.run("document.querySelector('#ask')") is None
        chromium.visit(scene.address.replace("//", "//anybody:s3cret-token@"))
        ask(chromium, QUESTION)
        assert text(chromium, "#answer") == "Gustave Eiffel"
        chromium.run("document.getElementById('right').click()")
        until(chromium, "document.getElementById('thanks').textContent.includes('right')")
        assert len(scene.log.read().records) == 1


def test_git_and_so_the_wheel_have_every_file_of_the_page() -> None:
    folder = Path(str(FILES))
    kept = subprocess.run(["git", "ls-files", "."], cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    assert set(kept) == set(TYPES) == {file.name for file in folder.iterdir()}
    asked = re.findall(r'(?:src|href)="([^"]+)"', (folder / "page.html").read_text(encoding="utf-8"))
    assert len(asked) == 3 and {name.removeprefix("page/") for name in asked} <= set(TYPES)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_is_that_of_aa(theme: int) -> None:
    style = (FILES / "page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", style.split(":root {")[theme + 1].partition("}")[0]))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    for ink in ("ink", "soft", "link", "good", "bad"):
        assert min(contrast(ink, "ground"), contrast(ink, "raised")) >= 4.5, ink
    assert contrast("on-link", "link") >= 4.5 and contrast("on-mark", "mark") >= 4.5
    assert min(contrast("edge", "ground"), contrast("edge", "raised")) >= 3, "of the edges of controls"
