"""Generated worlds: the same bytes for a seed, gold that is right, questions that need what they claim to need."""

import gc
import hashlib
import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from slmsearch.config import WorldConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.corpus.records import page_row
from slmsearch.corpus.sections import split_sections
from slmsearch.corpus.world import World, generate_world, write_world
from slmsearch.corpus.world.build import REGION_PAGES
from slmsearch.corpus.world.kinds import ALL_KINDS, choose_wording
from slmsearch.corpus.world.prose import write_article
from slmsearch.corpus.world.region import Entity, RegionNames, build_region
from slmsearch.errors import CorpusError

SEEDS = (11, 5, 90)
DIGEST_SCRIPT = """
import hashlib
from slmsearch.config import WorldConfig
from slmsearch.corpus.world import generate_world
print(hashlib.sha256(repr(generate_world(WorldConfig(pages=60, seed=4))).encode()).hexdigest())
"""


@pytest.fixture(scope="module", params=SEEDS)
def world(request: pytest.FixtureRequest) -> World:
    return generate_world(WorldConfig(pages=320, seed=request.param))


@pytest.fixture(scope="module")
def sections(world: World) -> dict[str, str]:
    return {section.id: section.text for page in world.pages for section in split_sections(page)}


def of_kind(world: World, kind: str) -> list[Question]:
    return [question for question in world.questions if question.kind == kind]


def test_same_seed_same_bytes_whatever_the_hash_seed() -> None:
    here = hashlib.sha256(repr(generate_world(WorldConfig(pages=60, seed=4))).encode()).hexdigest()
    there = subprocess.run([sys.executable, "-c", DIGEST_SCRIPT], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"})
    assert there.stdout.strip() == here


def test_another_seed_has_other_names_headings_and_wording() -> None:
    one, other = (generate_world(WorldConfig(pages=240, seed=seed)) for seed in (1, 2))
    shared_titles = {page.title for page in one.pages} & {page.title for page in other.pages}
    assert len(shared_titles) < 5
    headings = [Counter(re.findall(r"^## (.+)$", "\n".join(page.content for page in w.pages), re.M)) for w in (one, other)]
    common = sum((headings[0] & headings[1]).values()) / sum(headings[0].values())
    assert common < 0.7


def test_questions_come_in_the_promised_mix(world: World) -> None:
    counts, total = Counter(question.kind for question in world.questions), len(world.questions)
    assert total == 320 * 4
    assert counts["two_hop"] / total >= 0.40
    assert counts["count"] / total >= 0.05
    assert 0.09 <= counts["unanswerable"] / total <= 0.13
    for kind, share in {"two_hop": 0.45, "one_hop": 0.36, "count": 0.08, "unanswerable": 0.11}.items():
        assert counts[kind] / total == pytest.approx(share, abs=0.015)


def test_ids_titles_and_question_texts_are_unique(world: World) -> None:
    for values in (
        [page.id for page in world.pages],
        [page.title for page in world.pages],
        [question.id for question in world.questions],
        [question.question for question in world.questions],
    ):
        assert len(values) == len(set(values))
    assert all(re.fullmatch(r"[1-9]\d{3}", page.id) for page in world.pages)


def test_pages_are_short_markdown_with_two_to_six_sections(world: World) -> None:
    for page in world.pages:
        lead, *body = split_sections(page)
        assert page.content.startswith(f"# {page.title}\n") and lead.level == 1
        assert 2 <= len(body) <= 6 and all(section.level == 2 for section in body)
        assert all(4 <= len(section.text.split()) <= 50 for section in body)
        assert "{" not in page.content and ".." not in page.content
        assert all(len(number) == 4 for number in re.findall(r"\d+", page.content))


def test_gold_sections_exist_and_hold_the_answer(world: World, sections: dict[str, str]) -> None:
    for question in of_kind(world, "one_hop") + of_kind(world, "two_hop"):
        assert len(question.section_ids) == len(question.page_ids) == len(question.entities) == question.hops
        assert question.answer in sections[question.section_ids[-1]]
    for question in world.questions:
        assert set(question.section_ids) <= set(sections)
        assert [section_id.split(":")[0] for section_id in question.section_ids] == list(question.page_ids)
        assert question.entities[0] in question.question


def test_two_hop_questions_need_the_bridge(world: World, sections: dict[str, str]) -> None:
    pages = {page.id: page for page in world.pages}
    for question in of_kind(world, "two_hop"):
        first, second = (pages[page_id] for page_id in question.page_ids)
        assert question.entities == (first.title, second.title) and question.hops == 2
        assert second.title in sections[question.section_ids[0]]
        assert second.title not in question.question
        assert question.answer not in first.content
        assert question.answer not in question.question


def test_counts_are_counted_and_not_written(world: World, sections: dict[str, str]) -> None:
    words = {"2": "two", "3": "three", "4": "four", "5": "five", "6": "six"}
    seen = Counter()
    for question in of_kind(world, "count"):
        text = sections[question.section_ids[0]]
        (sentence,) = (part for part in text.split("\n", 1)[1].split(".") if " and " in part)
        assert sentence.count(",") + 2 == int(question.answer)
        assert question.aliases == (words[question.answer],)
        assert question.answer not in text and not re.search(rf"\b{question.aliases[0]}\b", text)
        seen[question.answer] += 1
    assert set(seen) == set(words) and max(seen.values()) < 0.5 * seen.total()


def test_unanswerable_questions_ask_for_what_nobody_states(world: World, sections: dict[str, str]) -> None:
    titles = {page.title for page in world.pages}
    contents = "\n".join(page.content for page in world.pages)
    unheard_of = [question for question in of_kind(world, "unanswerable") if not question.page_ids]
    untold = [question for question in of_kind(world, "unanswerable") if question.page_ids]
    assert 0.25 <= len(unheard_of) / (len(unheard_of) + len(untold)) <= 0.55
    assert all(question.answer == UNKNOWN_ANSWER for question in unheard_of + untold)
    for question in unheard_of:
        assert question.hops == 0 and question.section_ids == () and question.entities[0] not in titles
        assert not re.search(rf"\b{question.entities[0]}\b", contents)
    assert len({question.entities for question in unheard_of}) == len(unheard_of)
    assert {question.hops for question in untold} == {1, 2}
    assert all(question.hops == len(question.section_ids) for question in untold)


def test_what_a_page_leaves_out_is_not_said_in_its_section() -> None:
    kinds, rng, checked = choose_wording(8), Random(8), 0
    for entity in build_region(kinds, [str(1000 + i) for i in range(60)], RegionNames(), rng):
        article = write_article(entity, rng)
        texts = {section.id: section.text for section in split_sections(article.page)}
        assert {fact.name for fact, _ in article.untold}.isdisjoint(entity.facts)
        for fact, section_id in article.untold:
            for said in fact.says:
                before, after = re.split(r"\{v\}", said)
                before, after = (part.removeprefix("{s} ").replace("{p} ", "") for part in (before, after))
                assert not re.search(re.escape(before) + r"[^.]+" + re.escape(after), texts[section_id]), (said, texts[section_id])
                checked += 1
    assert checked > 50


def test_gold_pages_never_connect_regions(world: World) -> None:
    parent = {page.id: page.id for page in world.pages}

    def find(page_id: str) -> str:
        while parent[page_id] != page_id:
            page_id = parent[page_id]
        return page_id

    for question in world.questions:
        for page_id in question.page_ids[1:]:
            parent[find(page_id)] = find(question.page_ids[0])
    sizes = Counter(find(page_id) for page_id in parent)
    assert max(sizes.values()) <= REGION_PAGES and len(sizes) >= 10


def test_a_quarter_of_the_names_can_be_mistaken_for_another(world: World) -> None:
    by_root, titles = defaultdict(set), [page.title for page in world.pages]
    pattern_words = set(re.findall(r"\w+", " ".join(form for kind in ALL_KINDS for form in kind.forms)))
    for title in titles:
        for word in set(title.split()[-2:]) - pattern_words:
            by_root[word].add(title)
    twins = {title for group in by_root.values() if len(group) > 1 for title in group}
    twins |= {a for a in titles for b in titles if a != b and differ_by_a_syllable(a, b)}
    assert 0.20 <= len(twins) / len(titles) <= 0.45


def differ_by_a_syllable(a: str, b: str) -> bool:
    """Whether two titles differ in up to four letters that stand together, and share at least six others and the first word."""
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    end = next((i for i, (x, y) in enumerate(zip(rest_a[::-1], rest_b[::-1], strict=False)) if x != y), min(len(rest_a), len(rest_b)))
    return max(len(rest_a), len(rest_b)) - end <= 4 and start + end >= 6 and a.split()[0] == b.split()[0]


def test_many_relations_and_paths_are_asked_about(world: World) -> None:
    shapes = {kind: {q.question.replace(q.entities[0], "") for q in of_kind(world, kind)} for kind in ("one_hop", "two_hop")}
    assert len(shapes["one_hop"]) >= 40 and len(shapes["two_hop"]) >= 100


def test_no_answer_pays_as_a_guess(world: World) -> None:
    answers = Counter(question.answer for question in world.questions if question.kind in ("one_hop", "two_hop"))
    assert answers.most_common(1)[0][1] / answers.total() < 0.03


@pytest.mark.parametrize("pages", [40, 45, 64, 100, 155, 161])
@pytest.mark.parametrize("questions_per_page", [0.5, 4, 8])
def test_worlds_of_any_size_are_complete(pages: int, questions_per_page: float) -> None:
    world = generate_world(WorldConfig(pages=pages, seed=pages, questions_per_page=questions_per_page))
    assert len(world.pages) == pages and len(world.questions) == round(pages * questions_per_page)


def test_large_worlds_have_ids_of_six_digits() -> None:
    world = generate_world(WorldConfig(pages=9_001, questions_per_page=0.01))
    assert all(len(page.id) == 6 for page in world.pages)
    assert len({page.title for page in world.pages}) == 9_001


def test_asking_too_much_names_the_remedy() -> None:
    with pytest.raises(CorpusError, match=r"lower world\.questions_per_page"):
        generate_world(WorldConfig(pages=40, questions_per_page=200))


def test_fresh_worlds_are_cheap() -> None:
    start = time.process_time()
    generate_world(WorldConfig(pages=240, seed=77, questions_per_page=2))
    assert time.process_time() - start < 0.5


def test_written_world_equals_generated_world(tmp_path: Path) -> None:
    config = WorldConfig(pages=90, seed=6)
    world, calls = generate_world(config), []
    write_world(config, tmp_path / "new" / "folder", lambda done, total: calls.append((done, total)))
    out = tmp_path / "new" / "folder"
    rows = {name: [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()] for name in ("pages", "questions")}
    assert rows["pages"] == [page_row(page) for page in world.pages]
    assert rows["questions"] == json.loads(json.dumps([question.row() for question in world.questions]))
    assert len(calls) > 3 and calls[-1] == (90, 90)
    assert sorted(path.name for path in out.iterdir()) == ["pages.jsonl", "questions.jsonl"]


def test_writing_holds_one_region_at_a_time(tmp_path: Path) -> None:
    alive = []

    def count(done: int, total: int) -> None:
        if done in (320, 640):
            gc.collect()
            alive.append(sum(isinstance(thing, Entity) for thing in gc.get_objects()))

    write_world(WorldConfig(pages=640, questions_per_page=1), tmp_path, count)
    assert len(alive) == 2 and max(alive) <= 2 * REGION_PAGES


def test_a_full_disk_leaves_the_old_files_alone(tmp_path: Path) -> None:
    write_world(WorldConfig(pages=40, seed=1), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fill_up(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CorpusError, match="No space left"):
        write_world(WorldConfig(pages=40, seed=2), tmp_path, fill_up)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_where_the_folder_should_be_is_a_corpus_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CorpusError, match="choose another folder"):
        write_world(WorldConfig(pages=40), tmp_path / "taken")
