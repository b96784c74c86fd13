"""The page in a real browser, opened as a file: nothing is complained about or asked for, and its controls do what they say."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.report.page.render import render_page
from slmsearch.report.page.results import AFTER
from tests.slmsearch.report.page.chromium import Browser, find_chromium, open_browser
from tests.slmsearch.report.page.synthetic import NASTY, make_evaluation, make_run, without_training

COMMAND = find_chromium()
pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium is installed (Debian: apt-get install chromium)")

COUNT = "document.getElementById('count').textContent"
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LABELS = "[...document.querySelectorAll('#list .top > :first-child')].map(e => e.textContent)"
CHOOSE = "(e => { e.value = [...e.options].find(o => o.text.startsWith('%s')).value; e.dispatchEvent(new Event('change')); })(%s)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(str(COMMAND), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page([make_run(n=1000, steps=50)], "today"), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page)
    return browser


def choose(browser: Browser, select: str, option: str) -> str:
    browser.run(CHOOSE % (option, f"document.getElementById('{select}')"))
    return str(browser.run(COUNT))


def search(browser: Browser, text: str) -> str:
    """Type into the search and wait until the list has followed."""
    return str(
        browser.run(
            f"""new Promise(done => {{
              new MutationObserver((_, o) => {{ o.disconnect(); done({COUNT}); }})
                .observe(document.getElementById('count'), {{childList: true, characterData: true, subtree: true}});
              const find = document.getElementById('find');
              find.value = {text!r};
              find.dispatchEvent(new Event('input'));
            }})"""
        )
    )


def test_it_opens_without_a_network_and_without_a_complaint(opened: Browser, page: Path) -> None:
    assert opened.run(COUNT) == "500 questions, 1 to 50 shown"
    assert opened.run("document.querySelectorAll('img, iframe, #episode script').length") == 0
    assert opened.complaints == []
    assert opened.requests == [page.as_uri()]


def test_filters_search_and_pages_narrow_the_list(opened: Browser) -> None:
    assert opened.run("document.querySelectorAll('#list li').length") == 50
    assert choose(opened, "by-policy", "after") == "500 questions, 1 to 50 shown", "each was answered by both"
    wrong = choose(opened, "by-outcome", "wrong")
    assert wrong != "500 questions, 1 to 50 shown"
    assert set(opened.run(LABELS)) <= {"✗ lost", "both wrong"}
    choose(opened, "by-outcome", "all")
    choose(opened, "by-policy", "all")
    assert search(opened, "Town 10 founded") == "1 questions, 1 to 1 shown"
    assert search(opened, "no such words").startswith("No question fits")
    assert search(opened, "") == "500 questions, 1 to 50 shown"
    opened.run("document.querySelector('#pages button:last-child').click()")
    assert opened.run(COUNT) == "500 questions, 51 to 100 shown"
    assert opened.complaints == []


def test_what_was_lost_is_first_and_a_click_leaves_it_alone(opened: Browser) -> None:
    order = ["✗ lost", "✓ won", "both wrong", "both right"]
    counts = dict(
        re.findall(r"([^()]+) \((\d+)\)", "".join(opened.run("[...document.querySelectorAll('#changes button')].map(e => e.textContent)")))
    )
    assert list(counts) == ["all", *order] and sum(int(counts[name]) for name in order) == int(counts["all"]) == 500
    assert set(opened.run(LABELS)) == {"✗ lost"}
    for i, name in enumerate(order, 1):
        opened.run(f"document.querySelectorAll('#changes button')[{i}].focus()")
        for kind in ("keyDown", "keyUp"):
            opened.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
        assert opened.run(COUNT).startswith(f"{counts[name]} questions, ")
        assert set(opened.run(LABELS)) == {name}
        pressed = "[...document.querySelectorAll('#changes [aria-pressed=true]')].map(e => e.textContent)"
        assert opened.run(pressed) == [f"{name} ({counts[name]})"]
        assert opened.run("document.activeElement.getAttribute('aria-pressed')") == "true", "the keyboard stays where it was"
    assert opened.complaints == []


def test_answers_of_all_runs_stand_together_and_each_can_be_read(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "several.html"
    runs = [make_run(30), replace(make_run(30), name=NASTY[0], evaluations={AFTER: make_evaluation(30, 0.5, 9)})]
    path.write_text(render_page(runs, "today"), encoding="utf-8")
    browser.complaints.clear()
    browser.open(path)
    pairs = browser.run("[...document.getElementById('pair').options].map(e => e.text)")
    assert pairs == [f"clever-otter, after → {NASTY[0]}, after", "clever-otter, before → clever-otter, after"]
    names = browser.run("[...document.querySelectorAll('#episode tbody th')].map(e => e.textContent)")
    assert names == ["clever-otter, before", "clever-otter, after", f"{NASTY[0]}, after"]
    assert browser.run("document.querySelector('#list .answer').textContent").startswith("clever-otter, after ✓ ")
    browser.run("document.querySelector('#episode tbody button').click()")
    assert "policyclever-otter, before" in browser.run("document.querySelector('#episode').textContent")
    assert browser.run("document.activeElement.tagName") != "SCRIPT" and browser.complaints == []
    first = browser.run(LABELS)
    choose(browser, "pair", "clever-otter, before")
    assert browser.run(LABELS) != first or browser.run("document.querySelector('#list .answer').textContent").startswith(
        "clever-otter, before"
    )


def test_where_nothing_is_compared_no_change_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    path.write_text(render_page([without_training(make_run(20))], "today"), encoding="utf-8")
    browser.complaints.clear()
    browser.open(path)
    assert browser.run("document.querySelectorAll('#changes button').length") == 0
    assert browser.run("document.getElementById('pair')") is None
    assert set(browser.run(LABELS)) <= {"✓ right", "✗ wrong"} and browser.complaints == []


def test_an_episode_shows_its_turns_as_text_and_keys_move_on(opened: Browser) -> None:
    search(opened, "<script>alert(1)")
    opened.run("document.querySelector('#list button').click()")
    shown = opened.run("document.getElementById('episode').textContent")
    assert "<script>alert(1)</script>" in shown and "came back" in shown and "right without evidence" not in shown
    search(opened, "")
    opened.run("document.querySelector('#list button').focus()")
    first = opened.run("document.querySelector('#episode h3').textContent")
    for kind in ("keyDown", "keyUp"):
        opened.call("Input.dispatchKeyEvent", type=kind, key="ArrowDown", code="ArrowDown", windowsVirtualKeyCode=40)
    assert opened.run("document.querySelectorAll('#list button')[1] === document.activeElement")
    assert opened.run("document.querySelectorAll('#list button')[1].getAttribute('aria-current')") == "true"
    assert opened.run("document.querySelectorAll('#list [aria-current]').length") == 1
    assert first
    assert opened.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_off_the_side(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width, 844)
    search(browser, "x" * 100)
    browser.run("document.querySelector('#list button')?.click()")
    assert browser.run(OVERHANG) == 0
