"""Answers that quote a section of a manual: played, judged, paid, demonstrated, validated, stored."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.config import CorpusConfig, RewardConfig, SearcherConfig
from slmsearch.corpus.expectations import validate_corpus
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page, Section
from slmsearch.corpus.questions import Question, is_passage
from slmsearch.corpus.store import build_corpus
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.answer_sources import QUOTED_CHARS, find_sources
from slmsearch.environments.searcher.demonstrations import demonstrate_gold
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.environments.searcher.quoting import body_of, find_lines, find_quotation
from slmsearch.environments.searcher.reward import score_episode
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import NOT_SHOWN, READ, SEARCH, Toolbox
from slmsearch.episodes.episode import Episode, Quotation, StopReason, ToolCall
from slmsearch.episodes.grade import grade_episodes
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.evaluate.store import episode_from_dict, episode_to_dict
from slmsearch.judge import ExactJudge
from slmsearch.judge.exact import PASSAGE_F1, f1, typed_match
from slmsearch.judge.llm import judge_by_rule
from slmsearch.retrieval.hits import Hit

STEPS = """1. Open Settings and tap Display.
2. Tap Advanced options at the end of the list.

3. Switch on the screenshot toolbar.
4. Drag the toolbar to the edge of the screen."""
MANUAL = f"""# Phone

A manual.

## Screenshots

A toolbar takes screenshots; it was added in version 7.

{STEPS}

Note: the toolbar is off after each update.

## Sound

Turn the wheel at the left side of the phone, and hold it until the display shows a bell.
"""
LIBRARY = Library([Page("phone", "Phone", MANUAL)])
SECTION, WHEEL = "phone:screenshots", "phone:sound"
PASSAGE = "\r\n".join(line for line in STEPS.split("\n") if line)
HOW = Question("how", "How can I enable the screenshot toolbar?", PASSAGE, page_ids=("phone",), section_ids=(SECTION,))
WHICH = Question("which", "Which version added the toolbar?", "version 7", page_ids=("phone",), section_ids=(SECTION,))
BELL = Question("bell", "How do I mute it?", body_of(LIBRARY.section(WHEEL)), page_ids=("phone",), section_ids=(WHEEL,))
SEARCHES, READS = '<tool>search_pages("toolbar")</tool>', f'<tool>read_section("{SECTION}")</tool>'
ROOM = SearcherConfig(max_episode_tokens=9000)


class OneIndex:
    """Finds the section about screenshots."""

    key = "one"

    def search(self, queries: Sequence[str], top_k: int, *, hidden: Sequence[object] = ()) -> list[list[Hit]]:
        return [[Hit("phone", "Phone", 1.0, SECTION)] for _ in queries]


def tools(shows: str = "titles", size: int = 1500) -> Toolbox:
    return Toolbox(LIBRARY, OneIndex(), 3, size, shows=shows)


def quote(lines: str = "", section: str = SECTION) -> str:
    return f'<answer section="{section}"{lines and f" lines={lines}"}></answer>'


def play(*messages: str, question: Question = HOW, toolbox: Toolbox | None = None) -> Episode:
    sampler = ScriptedSampler(lambda question, results: messages[len(results)])
    (episode,) = play_episodes([question], sampler, toolbox or tools(), ROOM, Sampling())
    return episode


def grade(episode: Episode, question: Question = HOW) -> EpisodeRow:
    def score(*played):
        return score_episode(played[1], played[0], played[2], RewardConfig(), played[3])

    (row,) = grade_episodes([question], [episode], ExactJudge(), score, measure_episode)
    return row


def test_the_lines_that_are_quoted_are_the_answer_as_they_stand() -> None:
    episode = play(SEARCHES, READS, quote('"2-5"'))
    assert (episode.answer, episode.quotation) == (STEPS, Quotation(SECTION, (2, 5)))
    assert (episode.stop_reason, episode.num_told, episode.num_unserved) == (StopReason.ANSWERED, 0, 0)
    assert episode.turns[-1].text == quote('"2-5"'), "what was sampled is what is trained on"
    row = grade(episode)
    assert (row.answer, row.typed_match, row.correct, row.f1) == (STEPS, 1.0, 1.0, 1.0)
    assert row.reward_parts["correct"] == 1.0 and row.reward == pytest.approx(0.96), "two calls"
    assert episode_from_dict(json.loads(json.dumps(episode_to_dict(episode)))).turns[-1].quotation == Quotation(SECTION, (2, 5))
    assert "quotation" not in episode_to_dict(play(SEARCHES, "<answer>7</answer>"))["turns"][-1]  # type: ignore[index]


def test_a_passage_is_paid_by_recall_and_precision() -> None:
    whole, half = play(READS, quote()), play(READS, quote("4-5"))
    span = play(READS, "<answer>Open Settings and tap Display</answer>")
    rows = [grade(episode) for episode in (whole, half, span)]
    assert whole.answer == body_of(LIBRARY.section(SECTION)) and half.answer == STEPS.partition("\n\n")[2]
    assert [row.correct for row in rows] == [1.0, 1.0, 0.0]
    assert [row.reward_parts["correct"] for row in rows] == [f1(episode.answer, [PASSAGE]) for episode in (whole, half, span)]
    assert 1 > rows[0].reward_parts["correct"] > rows[1].reward_parts["correct"] > 0.5 > rows[2].reward_parts["correct"] > 0


@pytest.mark.parametrize("shows", ["titles", "text"])
def test_lines_are_counted_as_a_read_and_a_search_show_them(shows: str) -> None:
    toolbox = tools(shows)
    (result,) = toolbox.serve([ToolCall(SEARCH, "toolbar") if shows == "text" else ToolCall(READ, SECTION)])
    heading, *lines = [line for line in result.text.split("\n") if line.strip()]
    assert heading in ("## Screenshots", f"{SECTION}: Phone")
    first = SEARCHES if shows == "text" else READS
    assert [play(first, quote(str(n)), toolbox=toolbox).answer for n in range(1, len(lines) + 1)] == lines
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("before", "message", "fault"),
    [
        (SEARCHES, quote(), NOT_SHOWN),
        ('<tool>view_sections("phone")</tool>', quote(), NOT_SHOWN),
        (READS, quote(section=WHEEL), NOT_SHOWN),
        (READS, quote(section="gone:gone"), NOT_SHOWN),
        ('<tool>read_section("gone:gone")</tool>', quote(section="gone:gone"), NOT_SHOWN),
        (READS, quote("0-2"), "this section has 6 lines"),
        (READS, quote("3-2"), "this section has 6 lines"),
        (READS, quote("5-7"), "this section has 6 lines"),
        (READS, quote('"some"'), "an answer that quotes is"),
    ],
)
def test_what_cannot_be_quoted_is_malformed_and_told_once(before: str, message: str, fault: str) -> None:
    episode = play(before, message, message)
    assert (episode.stop_reason, episode.answer, episode.num_told) == (StopReason.MALFORMED, None, 1)
    assert episode.turns[1].result.text.startswith(f"error: {fault}") and len(episode.turns[1].result.text.splitlines()) == 1
    assert grade(episode).reward_parts["malformed"] < 0
    again = play(before, message, READS, quote("2-5"))
    assert (again.stop_reason, again.answer) == (StopReason.ANSWERED, STEPS)


def test_a_section_that_is_read_in_parts_is_counted_as_a_whole() -> None:
    episode = play(f'<tool>read_section("{SECTION}#2")</tool>', quote("2-5", f"{SECTION}#2"), toolbox=tools(size=120))
    assert (episode.answer, episode.quotation) == (STEPS, Quotation(SECTION, (2, 5)))


def test_a_view_is_quoted_as_it_is_shown() -> None:
    changed = Question("q", "How?", "x", view=View(old=("Display",), new="Sound"))
    assert play(READS, quote("2"), question=changed).answer == "1. Open Settings and tap Sound."
    hidden = Question("q", "How?", "x", view=View(hidden=(SECTION,)))
    assert play(READS, quote(), quote(), question=hidden).stop_reason is StopReason.MALFORMED


def test_the_kind_of_answer_is_demonstrated_by_the_kind_of_the_gold_one() -> None:
    fly = "Spread both arms, run down the hill, and do not look at the ground below you."
    elsewhere = Question("no", "How can I fly?", fly, page_ids=("phone",), section_ids=(SECTION,))
    questions = [HOW, WHICH, BELL, elsewhere]
    found, left_out = demonstrate_gold(questions, tools())
    assert not left_out
    assert [demonstration.turns[-1][0] for demonstration in found] == [
        quote('"2-5"'),
        "<answer>version 7</answer>",
        quote(section=WHEEL),
        f"<answer>{fly}</answer>",
    ]
    for question, demonstration in zip(questions[:3], found, strict=False):
        row = grade(play(*(message for message, _ in demonstration.turns), question=question), question)
        assert (row.correct, row.f1) == (1.0, 1.0)
    (shown,), _ = demonstrate_gold([HOW], tools("text"))
    assert [message for message, _ in shown.turns[1:]] == [quote('"2-5"')]


def test_a_passage_over_two_parts_of_a_section_is_read_to_its_end() -> None:
    (shown,), _ = demonstrate_gold([HOW], tools(size=120))
    assert [message for message, _ in shown.turns if READ in message] == [READS, f'<tool>read_section("{SECTION}#2")</tool>']
    assert "edge of the screen" in shown.turns[-2][1] and "page 2 of 3" in shown.turns[-2][1]


WORDS = st.lists(st.sampled_from(["open", "tap", "drag", "settings", "list", "7", "*", "-", "|", "the"]), min_size=1, max_size=12)


@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=12), st.data())
def test_lines_of_a_section_are_found_again(lines: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    section = Section("p:s", "p", "S", 2, "## S\n\n" + data.draw(st.sampled_from(["\n", "\n\n", "\n \n"])).join(lines))
    passage = "  ".join(lines[first : last + 1])
    found = find_quotation([Section("p:t", "p", "T", 2, "## T"), section], passage)
    if found is None:
        assert f1(passage, [passage]) == 0 or not any(word.isalnum() and word != "the" for word in passage.split())
        return
    spans, body = find_lines(section), body_of(section)
    start, end = found.lines or (1, len(spans))
    assert found.section_id == "p:s" and f1(body[spans[start - 1][0] : spans[end - 1][1]], [passage]) == 1.0
    assert end - start <= last - first


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_breaks_the_search_for_a_passage(text: str, passage: str) -> None:
    section = Section("p:s", "p", "S", 2, text)
    assert len(find_lines(section)) == sum(bool(line.strip()) for line in body_of(section).split("\n"))
    found = find_quotation([section], passage)
    assert found is None or f1(body_of(section), [passage]) > 0


def test_a_passage_is_stated_from_half_of_the_overlap_and_a_span_as_before() -> None:
    words = [f"word{n}" for n in range(30)]
    passage, question = " ".join(words), Question("q", "How?", " ".join(words))
    assert is_passage(passage) and not is_passage(" ".join(words[:10])) and is_passage(" ".join(words[:11]))
    third, less = " ".join(words[:10]), " ".join(words[:9])
    assert (f1(third, [passage]), PASSAGE_F1) == (0.5, 0.5)
    assert [typed_match(said, [passage]) for said in (third, less, passage.upper(), "I don't know", "", None)] == [
        *(True, False, True, False, False, False)
    ]
    assert not typed_match(passage, [third]), "the right answer decides, not the given one"
    ruled = [judge_by_rule(question, said) for said in (third, less)]
    assert [verdict.correct for verdict in ruled if verdict] == [True, False], "no model is asked"


def test_the_section_that_is_quoted_is_named_and_shown_whole() -> None:
    long = "\n".join(f"{n}. Press the button number {n} until the lamp is green." for n in range(1, 40))
    library = Library([Page("p", "Lamps", f"# Lamps\n\n{'Lamps. ' * 100}\n\n## Green\n\nDo this.\n\n{long}\n\nDone.\n")])
    toolbox = Toolbox(library, OneIndex(), 3, 4000)
    messages = ('<tool>read_section("p:lamps")</tool>', '<tool>read_section("p:green")</tool>')
    (other, source) = find_sources(play(*messages, quote("2-40", "p:green"), toolbox=toolbox), library)
    assert (other.quoted, source.quoted, source.section_id) == (False, True, "p:green")
    assert source.text == long and len(other.text) == QUOTED_CHARS
    (other, source) = find_sources(play(*messages, "<answer>number 20</answer>", toolbox=toolbox), library)
    assert not source.quoted and "number 20" in source.text and len(source.text) == QUOTED_CHARS


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_questions_of_a_user_may_have_passages_as_answers(tmp_path: Path, suffix: str) -> None:
    page = {"id": "phone", "title": "Phone", "content": MANUAL}
    (tmp_path / "pages.jsonl").write_text(json.dumps(page) + "\n")
    spaced = PASSAGE.replace("\r\n", "\n\n\t").replace("Open Settings", "Open  Settings")
    missing = PASSAGE.replace("Advanced options", "Simple options")
    rows = [{"id": name, "question": f"{name}?", "answer": answer} for name, answer in (("sound", spaced), ("broken", missing))]
    path = tmp_path / f"questions.{suffix}"
    with path.open("w", newline="") as file:
        if suffix == "csv":
            writer = csv.DictWriter(file, ["id", "question", "answer", "page_ids", "section_ids"])
            writer.writeheader()
            writer.writerows({**row, "page_ids": "phone", "section_ids": SECTION} for row in rows)
        else:
            file.writelines(json.dumps({**row, "page_ids": ["phone"], "section_ids": [SECTION]}) + "\n" for row in rows)
    digest = build_corpus(CorpusConfig(pages=str(tmp_path / "pages.jsonl"), questions=str(path)), tmp_path / "corpora")
    report = validate_corpus(tmp_path / "corpora" / digest)
    assert [(finding.column, finding.sample_ids) for finding in report.findings if finding.severity == "critical"] == [
        ("answer_missing", ("broken",))
    ]
