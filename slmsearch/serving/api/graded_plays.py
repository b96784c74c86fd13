"""Play of a calibration's questions on the documents that are loaded, and again on later versions of them.

The policy plays greedily, so its play follows from the question, the opening and the results of its calls. Where these are the same on
another version of the documents, the play is: after an edit of a page only the questions that saw it are played again.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.answer_sources import find_sources
from slmsearch.environments.searcher.rollout import open_prompts
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.environments.searcher.twins import UNKNOWABLE, base_id, make_twins
from slmsearch.episodes.episode import Episode, ToolCall
from slmsearch.episodes.sampler import Sampling
from slmsearch.evaluate.confidence import Graded, describe, is_given
from slmsearch.evaluate.run import select_questions
from slmsearch.serving.api import playing

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class GradedPlay:
    """A question that was played, with what its play follows from."""

    question: str
    """Id of the question, or of its twin."""
    text: str
    page: str
    """First gold page."""
    calls: tuple[ToolCall, ...]
    seen: str
    """Digest of question, gold answers, opening, results of the calls and the whole of their sections; empty if the play failed."""
    graded: Graded | None
    """The answer; None if none was given."""


@dataclass(frozen=True, slots=True)
class GradedPlays:
    """All questions of a calibration."""

    split: str
    limit: int
    """Maximum number of questions, without their twins; 0: all."""
    asked: tuple[str, ...] = ()
    """Ids of the questions without their twins; empty if they are still to be chosen."""
    plays: tuple[GradedPlay, ...] = ()

    def write(self, path: Path) -> None:
        """Write them to a file, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_json(path, asdict(self))


def read_plays(path: Path) -> GradedPlays | None:
    """Read the questions of a calibration; None if there are none."""
    held = read_json(path)
    if "plays" not in held:
        return None
    plays = [
        GradedPlay(
            row["question"],
            row["text"],
            row["page"],
            tuple(ToolCall(**call) for call in row["calls"]),
            row["seen"],
            row["graded"] and Graded(tuple(row["graded"]["shown"]), row["graded"]["wrong"], row["graded"]["cluster"]),
        )
        for row in held["plays"]
    ]
    return GradedPlays(held["split"], held["limit"], tuple(held["asked"]), tuple(plays))


def collect(
    known: GradedPlays, most: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> GradedPlays | None:
    """Play the questions of a split and their unanswerable twins with the loaded policy.

    Args:
        known: split and limit, and plays of the same policy with the same settings.
        most: maximum number of questions that are played, the others being known; None: any.
        progress: receives the number of questions played, or known, and of all.

    Returns:
        Their plays; None if more than `most` would have to be played.

    Raises:
        CorpusError: the split has no questions.
    """
    (loaded,) = playing.take_loaded()
    environment, toolbox = loaded.environment, loaded.environment.toolbox
    limit = 0 if known.asked else known.limit  # a sample of fewer questions would be another one
    config = environment.config.evaluate.model_copy(update={"split": known.split, "limit": limit})
    chosen = set(known.asked)
    asked = [one for one in select_questions(loaded.known_questions(), config) if not chosen or one.id in chosen]
    before = {play.question: play for play in known.plays}
    questions = [*asked, *_make_twins(asked, before, toolbox)]
    found = find_same(questions, before, environment)
    missing = [question for question in questions if question.id not in found]
    if most is not None and len(missing) > most:
        return None
    sampling = Sampling(0.0, config.seed, environment.limits.max_turn_tokens)
    for start in range(0, len(missing), config.batch_size):
        batch = missing[start : start + config.batch_size]
        episodes = environment.complete(batch, environment.play(batch, loaded.sampler, sampling))
        seen = _see(batch, [_calls_of(episode) for episode in episodes], environment)
        for question, episode, row in zip(batch, episodes, environment.grade(batch, episodes), strict=True):
            graded = None
            if is_given(episode.answer) and not row.failed:
                shown = describe(episode, find_sources(episode, toolbox.library, question.question))
                graded = Graded(shown, not row.correct, _first_page(question))
            digest = "" if row.failed else seen[question.id]
            page, calls = _first_page(question), _calls_of(episode)
            found[question.id] = GradedPlay(question.id, question.question, page, calls, digest, graded)
        progress(len(questions) - len(missing) + start + len(batch), len(questions))
    return GradedPlays(known.split, known.limit, tuple(one.id for one in asked), tuple(found[question.id] for question in questions))


def _make_twins(asked: Sequence[Question], known: Mapping[str, GradedPlay], toolbox: Toolbox) -> Iterator[Question]:
    """Yield a twin of each question that has one; a name that was invented before is kept while no page has it."""
    words = {word for page in toolbox.library.pages() for word in _words(f"{page.title} {page.content}")}
    texts = {question.id: question.question for question in asked}
    for side, kind in enumerate(UNKNOWABLE):
        for twin in make_twins([one for one in asked if zlib.crc32(one.id.encode()) % 2 == side], kind, toolbox):
            text = known[twin.id].text if twin.id in known else twin.question
            if text != twin.question and words.isdisjoint(_words(text) - _words(texts[base_id(twin.id)])):
                twin = replace(twin, question=text)
            yield twin


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def find_same(questions: Sequence[Question], known: Mapping[str, GradedPlay], environment: SearcherEnvironment) -> dict[str, GradedPlay]:
    """Return the known plays, by question, that would be the same on the documents of an environment; their calls are served again."""
    again = [question for question in questions if question.id in known]
    seen = _see(again, [known[question.id].calls for question in again], environment)
    return {question.id: known[question.id] for question in again if known[question.id].seen == seen[question.id]}


def _see(questions: Sequence[Question], calls: Sequence[Sequence[ToolCall]], environment: SearcherEnvironment) -> dict[str, str]:
    """Return for each question the digest of what its play follows from: an answer may quote all of a section of which a part was shown."""
    toolbox, seen = environment.toolbox, dict[str, str]()
    openings = open_prompts(questions, toolbox, environment.config.searcher)
    flat = [(call, question.view) for question, made in zip(questions, calls, strict=True) for call in made]
    results = iter(toolbox.serve([call for call, _ in flat], [view for _, view in flat]))
    for question, opening, made in zip(questions, openings, calls, strict=True):
        served = [next(results) for _ in made]
        sections = [toolbox.library.section(name) for result in served for name in result.section_ids]
        texts = [*(result.text for result in served), *(section.text for section in sections if section)]
        parts = json.dumps([question.question, question.answers, opening, texts])
        seen[question.id] = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return seen


def _calls_of(episode: Episode) -> tuple[ToolCall, ...]:
    return tuple(made.call for turn in episode.turns for made in turn.made)


def _first_page(question: Question) -> str:
    return (question.page_ids or ("",))[0]
