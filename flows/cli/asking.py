"""Play one question of a user live: choose the policy and the corpus, show turns and sources.

Pages and models write untrusted text: control characters are escaped before it reaches a terminal.
"""

import textwrap
from dataclasses import asdict

from flows.cli.session import Session
from flows.runtime.fetching import require_policy
from slmsearch.corpus.library import Library
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher import indexed_corpus
from slmsearch.environments.searcher.answer_sources import find_sources
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus
from slmsearch.environments.searcher.rollout import Watch, play_episodes
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW
from slmsearch.episodes.episode import CallMade, Episode, StopReason, Turn
from slmsearch.episodes.playable import without_token_limits
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import GenerationError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import make_policy_sampler
from slmsearch.foreign import one_line, visible
from slmsearch.judge import ExactJudge
from tasks.progress import Progress

SHOWN_CHARS = 300
"""Characters shown of a section that was read."""
SHOWN_SECTIONS = 8
"""Headings shown of a page that was viewed."""
WIDTH = 110
ENDS = {
    StopReason.MAX_TURNS: "no answer within searcher.max_turns",
    StopReason.MAX_TOKENS: "no answer within the limits of searcher.max_turn_tokens and searcher.max_episode_tokens",
    StopReason.MALFORMED: "no answer: the policy wrote neither a call nor an answer",
}


def open_indexed_corpus(session: Session) -> IndexedCorpus:
    """Open the configured corpus and its index version; build what is missing."""
    with Progress("index", "passages") as progress:
        return indexed_corpus.open_indexed_corpus(session.config, progress=progress)


def ask(text: str, spec: PolicySpec, indexed: IndexedCorpus, session: Session) -> Episode:
    """Play one question and show each turn as it ends.

    Raises:
        ModelError: the policy cannot be loaded.
        GenerationError: a service failed while the question was played.
    """
    config = session.config
    environment = SearcherEnvironment(config).with_tools(indexed.toolbox, ExactJudge())
    if spec.policy is None:
        environment = without_token_limits(environment)
    sampling = Sampling(0.0, config.evaluate.seed, environment.limits.max_turn_tokens)
    if spec.policy is not None:
        require_policy(spec.policy, config.paths)
    question = Question("asked", text, "")
    sampler = make_policy_sampler(spec, environment, [question])

    def show(_: Question, turn: Turn) -> None:
        session.say(render_turn(turn, indexed.toolbox.library))

    (episode,) = play_episodes([question], sampler, indexed.toolbox, environment.config.searcher, sampling, Watch(on_turn=show))
    if episode.stop_reason is StopReason.FAILED:
        raise GenerationError(f"the question was not answered: {episode.failure}")
    return episode


def describe_episode(episode: Episode, library: Library) -> dict[str, object]:
    """Describe an episode for programs: turns without token ids, answer, sources, stop reason."""
    turns = []
    for turn in episode.turns:
        calls = [{**asdict(made.call), "served": made.result.served, "result": made.result.text} for made in turn.made]
        program = {"program": turn.program, "output": turn.result.text if turn.result else ""} if turn.program is not None else {}
        turns.append({"text": turn.text, "calls": calls, **program})
    sources = [{name: value for name, value in asdict(source).items() if name != "text"} for source in find_sources(episode, library)]
    told = {"answer": episode.answer, "stop_reason": str(episode.stop_reason), "sources": sources}
    return {**told, "turns": turns, "seconds": round(episode.seconds, 3)}


def render_turn(turn: Turn, library: Library) -> str:
    """Render the calls of a turn and a short form of their results."""
    if turn.program is not None:
        head = f"> program of {len(turn.program.splitlines())} lines"
    elif turn.call is not None:
        head = f'> {turn.call.name}("{one_line(turn.call.argument)}")'
    elif turn.quotation is not None:
        lines = "lines {}-{} of ".format(*turn.quotation.lines) if turn.quotation.lines else ""
        return f"> answer: {lines}{one_line(turn.quotation.section_id)}"
    elif turn.answer is not None:
        return f"> answer: {one_line(turn.answer)}"
    else:
        head = f"> {one_line(turn.text)[:SHOWN_CHARS]}"
    made = turn.made[0] if turn.call is not None and turn.made else None
    text = _render_result(made, library) if made else (turn.result.text if turn.result else "")
    shown = [textwrap.shorten(one_line(line), SHOWN_CHARS, placeholder=" ...") for line in text.splitlines() if line.strip()]
    wrapped = [textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="  ") for line in shown]
    return "\n".join([head, *wrapped])


def _render_result(made: CallMade, library: Library) -> str:
    if not made.result.served or made.call.name == SEARCH:
        return made.result.text
    if made.call.name == VIEW:
        headings = [section.heading for section in library.sections(made.result.page_ids[0])]
        more = f", and {len(headings) - SHOWN_SECTIONS} more" if len(headings) > SHOWN_SECTIONS else ""
        return f"{len(headings)} section{'s'[: len(headings) > 1]}: {', '.join(headings[:SHOWN_SECTIONS])}{more}"
    return " ".join(made.result.text.split()) if made.call.name == READ else made.result.text


def render_end(episode: Episode, library: Library) -> str:
    """Render answer and sources; a quoted answer keeps its lines."""
    answer = visible(episode.answer) if episode.answer is not None else ENDS.get(episode.stop_reason, str(episode.stop_reason))
    lines = ["answer   " + answer.replace("\n", "\n" + " " * 9)]
    for number, source in enumerate(find_sources(episode, library)):
        place = source.title if source.heading == source.title else f"{source.title}, {source.heading}"
        mark = ", quoted" if source.quoted else "" if source.supports else ", does not state it"
        lines.append(f"{'' if number else 'sources':<8} {one_line(place)}  ({one_line(source.section_id)}{mark})")
    return "\n".join(lines if len(lines) > 1 else [*lines, "sources  none was read"])
