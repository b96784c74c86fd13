"""The page in a real browser, opened as a file: nothing is complained about or asked for, and its controls do what they say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slmsearch.report.page.render import render_page
from tests.slmsearch.report.page.chromium import Browser, find_chromium, open_browser
from tests.slmsearch.report.page.synthetic import make_run

COMMAND = find_chromium()
pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium is installed (Debian: apt-get install chromium)")

COUNT = "document.getElementById('count').textContent"
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
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
    assert opened.run(COUNT) == "1,000 episodes, 1 to 50 shown"
    assert opened.run("document.querySelectorAll('img, iframe, #episode script').length") == 0
    assert opened.complaints == []
    assert opened.requests == [page.as_uri()]


def test_filters_search_and_pages_narrow_the_list(opened: Browser) -> None:
    assert opened.run("document.querySelectorAll('#list li').length") == 50
    wrong = choose(opened, "by-outcome", "wrong")
    assert wrong != "1,000 episodes, 1 to 50 shown"
    assert set(opened.run("[...document.querySelectorAll('#list .top > :first-child')].map(e => e.textContent)")) == {"✗ wrong"}
    choose(opened, "by-outcome", "all")
    assert choose(opened, "by-group", "gained by training") != "1,000 episodes, 1 to 50 shown"
    badges = opened.run("[...document.querySelectorAll('#list li')].every(e => e.textContent.includes('gained by training'))")
    assert badges is True
    choose(opened, "by-group", "all")
    assert search(opened, "Town 10 founded") in ("1 episodes, 1 to 1 shown", "2 episodes, 1 to 2 shown")
    assert search(opened, "no such words").startswith("No episode fits")
    assert search(opened, "") == "1,000 episodes, 1 to 50 shown"
    opened.run("document.querySelector('#pages button:last-child').click()")
    assert opened.run(COUNT) == "1,000 episodes, 51 to 100 shown"
    assert opened.complaints == []


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
