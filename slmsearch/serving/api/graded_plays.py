"""Play of a calibration's questions on the documents that are loaded, and again on later versions of them.

The policy plays greedily, so its play follows from the question, the opening and the results of its calls. Where these are the same on
another version of the documents, the play is: after an edit of a page only the questions that saw it are played again.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.answer_sources import find_sources
from slmsearch.environments.searcher.rollout import open_prompts
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.twins import UNKNOWABLE, make_twins
from slmsearch.episodes.episode import Episode, ToolCall
from slmsearch.episodes.sampler import Sampling
from slmsearch.evaluate.confidence import Graded, describe, is_given
from slmsearch.evaluate.run import select_questions
from slmsearch.serving.api import playing


@dataclass(frozen=True, slots=True)
class GradedPlay:
    """A question that was played, with what its play follows from."""

    question: str
    """Id of the question, or of its twin."""
    page: str
    """First gold page."""
    calls: tuple[ToolCall, ...]
    seen: str
    """Digest of question, gold answers, opening and results of the calls."""
    graded: Graded | None
    """The answer; None if none was given."""


@dataclass(frozen=True, slots=True)
class GradedPlays:
    """All questions of a calibration."""

    split: str
    limit: int
    """Maximum number of questions, without their twins; 0: all."""
    plays: tuple[GradedPlay, ...]

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
            row["page"],
            tuple(ToolCall(**call) for call in row["calls"]),
            row["seen"],
            row["graded"] and Graded(tuple(row["graded"]["shown"]), row["graded"]["wrong"], row["graded"]["cluster"]),
        )
        for row in held["plays"]
    ]
    return GradedPlays(held["split"], held["limit"], tuple(plays))


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
    config = environment.config.evaluate.model_copy(update={"split": known.split, "limit": known.limit})
    asked = select_questions(loaded.known_questions(), config)
    halves = ([one for one in asked if zlib.crc32(one.id.encode()) % 2 == side] for side in (0, 1))
    questions = [*asked, *(twin for half, kind in zip(halves, UNKNOWABLE, strict=True) for twin in make_twins(half, kind, toolbox))]
    found = find_same(questions, {play.question: play for play in known.plays}, environment)
    missing = [question for question in questions if question.id not in found]
    if most is not None and len(missing) > most:
        return None
    sampling = Sampling(0.0, config.seed, environment.limits.max_turn_tokens)
    for start in range(0, len(missing), config.batch_size):
        batch = missing[start : start + config.batch_size]
        episodes = environment.complete(batch, environment.play(batch, loaded.sampler, sampling))
        openings = open_prompts(batch, toolbox, environment.config.searcher)
        for question, opening, episode, row in zip(batch, openings, episodes, environment.grade(batch, episodes), strict=True):
            graded = None
            if is_given(episode.answer) and not row.failed:
                shown = describe(episode, find_sources(episode, toolbox.library, question.question))
                graded = Graded(shown, not row.correct, _first_page(question))
            results = [made.result.text for turn in episode.turns for made in turn.made]
            seen = "" if row.failed else _digest(question, opening, results)
            found[question.id] = GradedPlay(question.id, _first_page(question), _calls_of(episode), seen, graded)
        progress(len(questions) - len(missing) + start + len(batch), len(questions))
    return GradedPlays(known.split, known.limit, tuple(found[question.id] for question in questions))


def find_same(questions: Sequence[Question], known: Mapping[str, GradedPlay], environment: SearcherEnvironment) -> dict[str, GradedPlay]:
    """Return the known plays, by question, that would be the same on the documents of an environment; their calls are served again."""
    again = [question for question in questions if question.id in known]
    openings = open_prompts(again, environment.toolbox, environment.config.searcher)
    calls = [(call, question.view) for question in again for call in known[question.id].calls]
    results = iter(environment.toolbox.serve([call for call, _ in calls], [view for _, view in calls]))
    same = dict[str, GradedPlay]()
    for question, opening in zip(again, openings, strict=True):
        play = known[question.id]
        if _digest(question, opening, [next(results).text for _ in play.calls]) == play.seen:
            same[question.id] = play
    return same


def _digest(question: Question, opening: object, results: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([question.question, question.answers, opening, results]).encode()).hexdigest()[:16]


def _calls_of(episode: Episode) -> tuple[ToolCall, ...]:
    return tuple(made.call for turn in episode.turns for made in turn.made)


def _first_page(question: Question) -> str:
    return (question.page_ids or ("",))[0]
