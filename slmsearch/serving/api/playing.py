"""Work of the service's child process: hold a policy and an index, play batches of questions on them, serve calls of tools."""

import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from slmsearch.config import RunConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.corpus.store import load_questions, read_pages
from slmsearch.corpus.view import View
from slmsearch.environments.searcher.answer_sources import AnswerSource, find_sources, is_supported
from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
from slmsearch.environments.searcher.rollout import Watch, play_episodes
from slmsearch.environments.searcher.scope import EVERYWHERE, Scope
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.twins import find_stating
from slmsearch.episodes.episode import Episode, StopReason, ToolCall, Turn
from slmsearch.episodes.playable import without_token_limits
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.errors import ContextError, SlmSearchError
from slmsearch.evaluate.confidence import Calibration, KeptAnswers, describe, is_given
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import make_policy_sampler, without_tokens
from slmsearch.foreign import encodable
from slmsearch.judge import ExactJudge
from slmsearch.judge.exact import typed_match
from slmsearch.retrieval.search import SearchIndex
from slmsearch.serving.documents.gate import is_stated

RESULT_CHARS = 500
"""Characters of a tool's result in a step."""
ARGUMENT_CHARS = 1000
NO_PAGES = "no page is in that folder, file, tag or time"
"""Failure of a question whose scope admits no page."""
VERIFIED_WITHIN = 3
"""Share of the time limit of a question, as a divisor, after which it is not played a second time."""
KEPT_SCOPES = 16
"""Number of scopes whose hidden sections are kept."""
PROGRAM, MALFORMED = "program", "malformed"
"""Name of a step without a call of a tool."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A share of wrong answers that is not exceeded, and what keeps it."""

    wrong_at_most: float
    calibration: Calibration
    kept: KeptAnswers


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy, the index version that it searches, and the settings it plays with."""

    version: str
    """Name for clients: `slmsearch-searcher/3` for a registered version, else the policy's name."""
    spec: PolicySpec
    config: RunConfig
    corpus_digest: str | None = None
    index_key: str | None = None
    """Key of the index version; None, here and for the digest, takes those of the configured corpus."""
    measured_on: str | None = None
    """Digest of the corpus with the questions that it was measured on; None: that of the documents."""
    promise: Promise | None = None
    """Promise that is kept by "I don't know"; None: every answer is given."""


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """A question of a client."""

    text: str
    scope: Scope = EVERYWHERE
    """Pages that it may use."""
    verify: bool = False
    """Play it again without the texts that state its answer."""
    traceparent: str | None = None
    """Header that goes on to the server of the policy's model (W3C Trace Context)."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A turn without an answer."""

    call: str
    """Name of the tool, `program`, or `malformed`."""
    argument: str
    result: str
    """Beginning of the result."""
    served: bool
    """False if the call could not be served; then `result` has the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a question that was played to its end."""

    episode: Episode
    sources: tuple[AnswerSource, ...]
    version: str
    """Version of the policy that played."""
    index_key: str
    scope: Scope = EVERYWHERE
    """Pages that the question could use."""
    is_whole: bool = True
    """False if pages of the index version were withdrawn."""
    promise: Promise | None = None
    confidence: float | None = None
    """Probability that the answer is right; None for no answer, for "I don't know", and without a promise."""
    verified: bool | None = None
    """True if the answer was another one without the texts that state it; None if that was not asked for, or nothing that was read
    states it."""

    @property
    def is_unsure(self) -> bool:
        """True if the answer is not sure enough to be given."""
        return self.promise is not None and self.confidence is not None and self.confidence < self.promise.kept.threshold


@dataclass(frozen=True, slots=True)
class ServedCall:
    """Result of a call that a client made itself."""

    text: str
    """Result as a policy reads it."""
    served: bool
    """False if the call could not be served; then `text` has the reason."""
    pages: tuple[tuple[str, str], ...] = ()
    """Id and title of the pages in the result, in its order."""
    sections: tuple[tuple[str, str], ...] = ()
    """Id and heading of the sections in the result, in its order."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    served: ServedPolicy
    environment: SearcherEnvironment
    sampler: Sampler
    index_key: str
    questions: dict[str, list[Question]]
    """Questions of the corpus by split."""
    hidden: Callable[[frozenset[str], Scope], frozenset[str]]
    """Function that returns the sections of some pages, and those outside a scope; it keeps the last results."""
    admits: Callable[[Scope], bool]
    """Function that returns whether any page is in a scope; likewise."""

    def view(self, withdrawn: Collection[str], scope: Scope) -> View | None:
        """Return the corpus without some pages and what is outside a scope; None if all is there."""
        hidden = self.hidden(frozenset(withdrawn), scope)
        return View(hidden) if hidden else None

    def known_questions(self) -> dict[str, list[Question]]:
        """Return the questions that the policy was measured on, by split; those about changed pages if one still states the answer."""
        known = self.served.measured_on
        if known is None or known == self.served.corpus_digest:
            return self.questions
        corpora, find = self.served.config.paths.corpora, self.environment.toolbox.library.page
        same = {page.id for page in read_pages(corpora / known) if (now := find(page.id)) and now.content == page.content}
        asked = load_questions(corpora, known).items()
        return {split: [one for one in found if same.issuperset(one.page_ids) or is_stated(one, find)] for split, found in asked}


IMPORTED = ("slmsearch.serving.api.playing", "slmsearch.sampling.torch_sampler", "peft", "sentence_transformers")
"""Modules that `load` needs; their import takes several times as long as the rest of it."""
log = logging.getLogger(__name__)
_loaded: list[_Loaded] = []
"""Policy that this process plays with: one, or none yet."""


def take_loaded() -> list[_Loaded]:
    """Return what was loaded last, for `play_with`."""
    return _loaded[:]


def play_with(loaded: list[_Loaded]) -> None:
    """Let all functions of this module play with a policy that was loaded before another one, or with none."""
    _loaded[:] = loaded


def load(served: ServedPolicy) -> tuple[ServedPolicy, bool]:
    """Load policy, index and embedder.

    Returns:
        The policy with the documents and the index that were loaded, and whether it computes on one core.

    Raises:
        SlmSearchError: one of them is missing or does not fit.
    """
    indexed = open_indexed_corpus(served.config, served.corpus_digest, served.index_key)
    environment = SearcherEnvironment(served.config).with_tools(indexed.toolbox, ExactJudge())
    if served.spec.policy is None:
        environment = without_token_limits(environment)
    indexed.toolbox.index.search(["setup"], 1)  # loads the embedder, which is not the first question's time
    sampler = make_policy_sampler(served.spec, environment, [])
    library = indexed.toolbox.library
    hidden = lru_cache(KEPT_SCOPES)(partial(find_hidden, library))
    admits = lru_cache(KEPT_SCOPES)(lambda scope: scope == EVERYWHERE or any(map(scope.admits, library.pages())))
    _loaded[:] = [_Loaded(served, environment, sampler, indexed.index_key, indexed.questions, hidden, admits)]
    # The child looks for dead cycles after every call: among all that torch has loaded it took half a second.
    gc.collect()
    gc.freeze()
    return replace(served, corpus_digest=indexed.corpus_digest, index_key=indexed.index_key), getattr(sampler, "is_small", False)


def keep(promise: Promise) -> None:
    """Let the loaded policy keep another promise."""
    (loaded,) = _loaded
    _loaded[:] = [replace(loaded, served=replace(loaded.served, promise=promise))]


def find_hidden(library: Library, withdrawn: Collection[str], scope: Scope) -> frozenset[str]:
    """Return the ids of the sections of some pages, and of those outside a scope."""
    gone = frozenset(section.id for page in withdrawn for section in library.sections(page))
    return gone if scope == EVERYWHERE else gone | scope.hidden(library)


def play(
    asked: Mapping[str, ClientQuestion],
    withdrawn: Collection[str],
    on_turn: Callable[[str, PlayedStep], None],
    on_end: Callable[[str, Answer], None],
) -> None:
    """Play questions together, greedily; report each step and each end as it comes, by the question's id.

    A question whose scope admits no page fails with `NO_PAGES`. One that is too long for the policy's context ends as `max_tokens`, and the
    others continue.

    Args:
        asked: the questions by id.
        withdrawn: ids of pages that are neither found nor read.
        on_turn: receives the id of a question and a step.
        on_end: receives the id of a question and its answer.
    """
    (loaded,) = _loaded
    questions, held = list[Question](), list[tuple[Question, Answer]]()
    for name, one in asked.items():
        if loaded.admits(one.scope):
            questions.append(Question(name, one.text, "", view=loaded.view(withdrawn, one.scope), traceparent=one.traceparent))
        else:
            episode = Episode(name, (), StopReason.FAILED, failure=NO_PAGES)
            on_end(name, Answer(episode, (), loaded.served.version, loaded.index_key, one.scope, not withdrawn))
    if not questions:
        return
    environment = loaded.environment
    toolbox, config = environment.toolbox, environment.config

    def tell_turn(question: Question, turn: Turn) -> None:
        if turn.answer is None:
            on_turn(question.id, make_step(turn))

    def tell_end(question: Question, episode: Episode) -> None:
        played = episode if loaded.served.spec.policy is not None else without_tokens(episode)
        sources = tuple(find_sources(episode, toolbox.library, question.question))
        promise, sure = loaded.served.promise, None
        if promise is not None and is_given(episode.answer):
            sure = promise.calibration.confidence(describe(episode, sources))
        answer = Answer(played, sources, loaded.served.version, loaded.index_key, asked[question.id].scope, not withdrawn, promise, sure)
        if asked[question.id].verify and is_supported(episode, sources):
            held.append((question, answer))
        else:
            on_end(question.id, answer)

    sampling, began = Sampling(0.0, config.evaluate.seed, environment.limits.max_turn_tokens), time.monotonic()
    try:
        play_episodes(questions, loaded.sampler, toolbox, config.searcher, sampling, Watch(tell_end, tell_turn))
    except ContextError:  # raised before the first turn, for the longest of them
        if len(questions) == 1:
            tell_end(questions[0], Episode(questions[0].id, (), StopReason.MAX_TOKENS))
            return
        for question in questions:
            play({question.id: asked[question.id]}, withdrawn, on_turn, on_end)
        return
    verified: Sequence[bool | None] = [None] * len(held)
    if held and time.monotonic() - began < config.service.deadline_s / VERIFIED_WITHIN:
        try:
            verified = _verify(loaded, held, sampling)
        except SlmSearchError as error:  # the answer stands
            log.warning("answers were not verified: %s", error)
    for (question, answer), found in zip(held, verified, strict=True):
        on_end(question.id, replace(answer, verified=found))


def _verify(loaded: _Loaded, held: Sequence[tuple[Question, Answer]], sampling: Sampling) -> list[bool | None]:
    """Play questions again without the sections that state their answers; return for each whether the answer was another one.

    None: the second play came to no end of its own.
    """
    toolbox, given = loaded.environment.toolbox, [answer.episode.answer or "" for _, answer in held]
    stating = [[source for source in answer.sources if source.supports] for _, answer in held]
    stated = [
        replace(question, answer=text, page_ids=tuple(one.page_id for one in found), section_ids=tuple(one.section_id for one in found))
        for (question, _), text, found in zip(held, given, stating, strict=True)
    ]
    again = []
    for (question, _), known, gone in zip(held, stated, find_stating(stated, toolbox), strict=True):
        hidden = frozenset((*(question.view.hidden if question.view else ()), *known.section_ids, *gone))
        again.append(replace(question, view=View(hidden)))
    played = play_episodes(again, loaded.sampler, toolbox, loaded.environment.config.searcher, sampling)
    return [
        None if episode.stop_reason is not StopReason.ANSWERED else not typed_match(episode.answer, (text,))
        for episode, text in zip(played, given, strict=True)
    ]


def replay(questions: Sequence[Question], digest: str, key: str) -> list[tuple[bool, bool]]:
    """Play questions on another version of the documents and on the loaded one; return for each whether it was answered rightly there.

    Args:
        questions: with answers.
        digest: corpus of the other version.
        key: its index.

    Raises:
        IndexUnusableError, EmbedderError: an index or its embedder failed.
    """
    (loaded,) = _loaded
    other = open_indexed_corpus(loaded.served.config, digest, key)
    try:
        environments = (loaded.environment.with_tools(other.toolbox, loaded.environment.judge), loaded.environment)
        before, after = (_grade(questions, environment, loaded.sampler) for environment in environments)
    finally:
        if isinstance(other.toolbox.index, SearchIndex):
            other.toolbox.index.close()
    return list(zip(before, after, strict=True))


def _grade(questions: Sequence[Question], environment: SearcherEnvironment, sampler: Sampler) -> list[bool]:
    sampling = Sampling(0.0, environment.config.evaluate.seed, environment.limits.max_turn_tokens)
    episodes = environment.complete(questions, environment.play(questions, sampler, sampling))
    return [bool(row.correct) for row in environment.grade(questions, episodes)]


def serve_calls(calls: Sequence[tuple[ToolCall, Scope]], withdrawn: Collection[str] = ()) -> list[ServedCall]:
    """Serve calls of tools, each within a scope, with the toolbox of the policy; one result each, in order; `withdrawn` is as in `play`.

    Raises:
        IndexUnusableError, EmbedderError: the index or its embedder failed.
    """
    (loaded,) = _loaded
    toolbox = loaded.environment.toolbox
    served = []
    for result in toolbox.serve([call for call, _ in calls], [loaded.view(withdrawn, scope) for _, scope in calls]):
        pages = [page for page_id in result.page_ids if (page := toolbox.library.page(page_id))]
        sections = [section for section_id in result.section_ids if (section := toolbox.library.section(section_id))]
        named = tuple((encodable(page.id), encodable(page.title)) for page in pages)
        headed = tuple((encodable(section.id), encodable(section.heading)) for section in sections)
        served.append(ServedCall(encodable(result.text), result.served, named, headed))
    return served


def make_step(turn: Turn) -> PlayedStep:
    """Return a short form of a turn: its call and its result."""
    if turn.call is not None:
        name, argument = turn.call.name, turn.call.argument
    else:
        name, argument = (PROGRAM, turn.program) if turn.program is not None else (MALFORMED, turn.text)
    text, served = (turn.result.text, turn.result.served) if turn.result else ("", False)
    return PlayedStep(name, _shorten(argument, ARGUMENT_CHARS), _shorten(text, RESULT_CHARS), served)


def _shorten(text: str, size: int) -> str:
    return encodable(text if len(text) <= size else f"{text[:size]} …")
