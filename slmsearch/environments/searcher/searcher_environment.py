"""The searcher: it answers questions from a corpus that it searches with tools."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Self

from slmsearch.config import CorpusConfig, JudgeConfig, RewardConfig, RunConfig, SftConfig, WorldConfig
from slmsearch.corpus.data_report import DataReport
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import source_parts
from slmsearch.corpus.store import build_corpus
from slmsearch.environments.environment import Environment, through
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer
from slmsearch.environments.searcher.demonstrations import TINY_SEARCHER, demonstrate_by_gold, demonstrate_narrowly, make_demonstrations
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.environments.searcher.indexed_corpus import name_index, open_indexed_corpus
from slmsearch.environments.searcher.parsing import parse_turn, render_answer, render_call
from slmsearch.environments.searcher.prompt import PROMPT_VERSION, TOOLS, describe_searcher, make_prompt
from slmsearch.environments.searcher.random_turns import random_turn
from slmsearch.environments.searcher.reward import score_episode
from slmsearch.environments.searcher.rollout import Watch, play_episodes
from slmsearch.environments.searcher.tools import READ, SEARCH, TOOL_NAMES, VIEW, Toolbox
from slmsearch.environments.searcher.twins import TWINS_VERSION, make_twins, mix_twins
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.controls import Controls
from slmsearch.episodes.data_source import DataSource
from slmsearch.episodes.demonstration import Demonstration
from slmsearch.episodes.episode import Episode, ToolCall, ToolResult
from slmsearch.episodes.grade import Score, judging_ahead
from slmsearch.episodes.playable import Check, Limits
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import EpisodeRow, Measures
from slmsearch.episodes.sampler import Message, Sampler, Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.teaching import BESIDE, Teaching, select_questions
from slmsearch.errors import SandboxError
from slmsearch.judge import Judge
from slmsearch.judge.exact import RULES_VERSION
from slmsearch.judge.prompt import load_prompt
from slmsearch.made_questions.make import CORRECTION
from slmsearch.retrieval.ranking import RANKING_VERSION

MIN_FOUND = 0.5
"""Smallest share of pages that a search for their own title must show."""
TITLES = 32
"""Number of titles searched for."""
DRAWN = 64
"""Number of training questions that are demonstrated together for worked examples; the shortest of them come first."""
NO_THOUGHT = re.compile(r"<think>\s*</think>\s*")
RANDOM, RETRIEVE_THEN_ANSWER = "random", "retrieve-then-answer"


class SearcherData(DataSource):
    """A corpus of pages with questions: files, documents, a data set of the Hub, or a generated world."""

    label = "corpus"
    unused = ("environment", "planner.")

    def sources(self) -> dict[str, str | None]:
        corpora = {"corpus": self.config.corpus, "sft.beside": self.config.sft.beside}
        return {f"{name}.{part}": getattr(corpus, part) for name, corpus in corpora.items() for part in ("pages", "questions")}

    def key_parts(self) -> Mapping[str, object] | None:
        return source_parts(self.config.corpus)

    @classmethod
    def collect_again(cls, config: CorpusConfig, recorded: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Compare the parts of the key; another configuration may have given the same corpus."""
        return None if "kind" in recorded else source_parts(config.model_copy(update={"limit_pages": recorded["limit_pages"]}))

    def build(self, corpora_dir: Path, skipped: list[Skipped] | None = None, progress: Callable[[int, int], None] | None = None) -> str:
        return build_corpus(self.config.corpus, corpora_dir, skipped, progress)

    def check(self, corpora_dir: Path, digest: str) -> DataReport:
        """Check with Great Expectations."""
        from slmsearch.corpus.expectations import validate_corpus

        return validate_corpus(corpora_dir / digest)

    def describe(self) -> str:
        return self.config.corpus.pages or f"world:{self.config.corpus.world.seed}"

    def index_key(self, digest: str) -> str:
        return name_index(digest, self.config.paths, self.config.retrieval)

    def fresh(self, seed: int, pages: int, questions: int) -> RunConfig:
        """Configure another world."""
        world = WorldConfig(pages=pages, seed=seed)
        return self.config.changed({"corpus.pages": None, "corpus.questions": None, "corpus.limit_pages": 0, "corpus.world": world})

    def servers(self) -> Mapping[str, bool]:
        served = self.config.retrieval.embedder.base_url is not None
        return {"planner.": False, "retrieval.embedder.": served, "sandbox.": self.config.searcher.programs}


class SearcherTeaching(Teaching["SearcherEnvironment"]):
    """Demonstrations by a scripted reader, and of questions by their gold sections."""

    tiny = TINY_SEARCHER
    advice = "name gold sections in corpus.questions, raise retrieval.top_k or searcher.max_episode_tokens"

    def demonstrations(self, settings: SftConfig) -> Iterator[Demonstration]:
        """Demonstrate by a scripted reader in fresh random worlds."""
        return make_demonstrations(settings, self.config.retrieval.top_k, settings.seed, self.config.searcher.missing_names)

    def examples(self, source: str, wrong: Mapping[str, Episode] | None = None) -> tuple[list[Demonstration], Counter[str]]:
        """See `Teaching.examples`: `gold` demonstrates training questions by their gold sections, `beside` all those of `sft.beside`."""
        if source == BESIDE and (other := self._configure_beside()):
            return SearcherTeaching(other)._demonstrate_split(None, current=False)
        return self._demonstrate_split(wrong) if source == "gold" else super().examples(source, wrong)

    def _configure_beside(self) -> RunConfig | None:
        """Return the settings with the corpus of `sft.beside`; None without one."""
        beside = self.config.sft.beside
        return self.config.changed({"corpus.pages": beside.pages, "corpus.questions": beside.questions}) if beside.pages else None

    def _demonstrate_split(self, wrong: Mapping[str, Episode] | None, current: bool = True) -> tuple[list[Demonstration], Counter[str]]:
        """Demonstrate the training questions, see `examples`; `current` as in `open_indexed_corpus`."""
        indexed, train = open_indexed_corpus(self.config, self.digest, self.index_key, current=current), self.config.train
        questions = select_questions(indexed.questions[train.split], train.limit)
        questions = mix_twins(questions, train.twins_frac, indexed.toolbox, slice(*self.part))
        questions = [question for question in questions if wrong is None or question.question in wrong]
        begins = {
            text: next((call.argument for call in episode.calls if call.name == SEARCH), text) for text, episode in (wrong or {}).items()
        }
        narrow = demonstrate_narrowly(questions, indexed.toolbox, begins) if self.config.searcher.reads == "tools" else {}
        wide = [question for question in questions if question.question not in narrow]
        shown, left_out = demonstrate_by_gold(wide, indexed.toolbox, self.config.searcher, begins)
        found = {**narrow, **{demonstration.question: demonstration for demonstration in shown}}
        known = [(question, found[question.question]) for question in questions if question.question in found]
        return [replace(one, new=wrong is not None or question.kind == CORRECTION) for question, one in known], left_out

    def worked_examples(self, environment: "SearcherEnvironment", questions: Sequence[Question]) -> Iterator[Demonstration]:
        """See `Teaching.worked_examples`: questions by their gold sections, one of several hops first, then those of one."""
        several = self._demonstrate(environment, [question for question in questions if question.hops > 1])
        yield from islice(several, 1)
        yield from self._demonstrate(environment, [question for question in questions if question.hops <= 1])
        yield from several

    def _demonstrate(self, environment: "SearcherEnvironment", questions: Sequence[Question]) -> Iterator[Demonstration]:
        """Demonstrate questions in random order, the shortest of `DRAWN` first: a prompt has little room."""
        searcher = self.config.searcher
        drawn = random.Random("worked examples").sample(questions, len(questions))
        for start in range(0, len(drawn), DRAWN):
            shown, _ = demonstrate_by_gold(drawn[start : start + DRAWN], environment.toolbox, searcher)
            yield from sorted((each for each in shown if len(each.turns) <= searcher.max_turns), key=_count_chars)

    def start_sources(self) -> tuple[str, ...]:
        beside = (BESIDE,) if self.config.sft.beside.pages else ()
        return (*beside, "own", "gold") if self.config.sft.start == "own" else (*beside, self.config.sft.start)

    def start_parts(self, digest: str) -> Mapping[str, object] | None:
        config = self.config
        if config.sft.start == "none":
            return None
        own = {"sampled": [config.train.temperature, config.evaluate.batch_size]} if config.sft.start == "own" else {}
        played = SearcherEnvironment(config).key_parts(name_index(digest, config.paths, config.retrieval))
        parts = {"corpus": digest, "limit": config.train.limit, **own, **self.train_parts(), **played}
        if other := self._configure_beside():
            found = build_corpus(other.corpus, config.paths.corpora)
            parts["beside"] = [found, name_index(found, config.paths, config.retrieval)]
        return parts

    def train_parts(self) -> Mapping[str, object]:
        return {"twins": [self.config.train.twins_frac, TWINS_VERSION]} if self.config.train.twins_frac else {}

    def training_questions(self, environment: "SearcherEnvironment", questions: Sequence[Question]) -> list[Question]:
        """See `Teaching.training_questions`: replace `train.twins_frac` of them by twins."""
        chosen = select_questions(questions, self.config.train.limit)
        return select_questions(mix_twins(chosen, self.config.train.twins_frac, environment.toolbox), 0)


def _count_chars(demonstration: Demonstration) -> int:
    texts = [text for turn in demonstration.turns for text in turn]
    return sum(map(len, [*texts, *(message["content"] for message in demonstration.prompt)]))


class SearcherControls(Controls["SearcherEnvironment"]):
    """Controls: a random policy, a reader with one search, supervised training for as long, and twins of questions."""

    baselines = (RANDOM, RETRIEVE_THEN_ANSWER)
    has_sft = True

    def evaluated(self) -> tuple[str, ...]:
        """See `Controls.evaluated`: the policies of `evaluate.baselines`, models included."""
        return tuple(self.config.evaluate.baselines)

    def sampler(self, environment: "SearcherEnvironment", name: str, questions: Sequence[Question], written: Mapping[str, str]) -> Sampler:
        if name == RETRIEVE_THEN_ANSWER:
            return ScriptedSampler(RetrieveThenAnswer(environment.toolbox, self.config.searcher.max_turns))
        if name == RANDOM:
            return ScriptedSampler(partial(random_turn, seed=self.config.evaluate.seed))
        return super().sampler(environment, name, questions, written)

    def twins(self, environment: "SearcherEnvironment", questions: Sequence[Question], view: str) -> list[Question]:
        return make_twins(questions, view, environment.toolbox)

    def has_reader(self) -> bool:
        """See `Controls.has_reader`: True if a run begins with gold demonstrations of its own pages."""
        return self.config.sft.start != "none"


class SearcherEnvironment(Environment):
    """The searcher environment: the policy searches a corpus with tools."""

    does = "searches a corpus in several turns"
    name = "searcher"
    reward_kind = "reward.kind"
    tool_names = TOOL_NAMES
    data = SearcherData
    teaching = SearcherTeaching
    controls = SearcherControls
    toolbox: Toolbox

    def with_tools(self, toolbox: Toolbox, judge: Judge) -> Self:
        """Return a copy that is open, with these tools and this judge."""
        opened = copy(self)
        opened.toolbox, opened.judge = toolbox, judge
        return opened

    def make_limits(self) -> Limits:
        searcher = self.config.searcher
        settings = ("searcher.max_episode_tokens", "searcher.max_turn_tokens")
        return Limits(searcher.max_turn_tokens, searcher.max_episode_tokens, searcher.tool_role, settings, searcher.max_section_chars)

    def opening(self, question: str) -> list[Message]:
        return make_prompt(question, self.config.searcher)

    def message(self, text: str) -> Message:
        if self.config.searcher.format == "tags":
            return super().message(text)
        parsed = parse_turn(text)
        if parsed.call is None:
            return super().message(text if parsed.answer is None else parsed.answer)  # a quotation keeps its tag
        parameter, _ = TOOLS.get(parsed.call.name, TOOLS[SEARCH])
        call = json.dumps({"name": parsed.call.name, "arguments": {parameter: parsed.call.argument}})
        return {"role": "assistant", "content": "", "call": call}

    def key_parts(self, index_key: str) -> Mapping[str, object]:
        config = self.config
        return {
            "index": index_key,
            "prompt": [PROMPT_VERSION, *(dict(message) for message in self.opening("?"))],
            "judge": _describe_judge(config.judge),
            "top_k": config.retrieval.top_k,
            "ranking": [config.retrieval.ranking, RANKING_VERSION],
            "searcher": describe_searcher(config.searcher, config.sandbox.limits),
            "reward": config.reward.key_parts(),
        }

    def open(self, judge: Judge, digest: str | None = None, index_key: str | None = None) -> Self:
        """Open corpus and index, which stay open, because many policies are played over them."""
        config = self.config
        opened = _open(config, digest, index_key) if digest and index_key else open_indexed_corpus(config, digest, index_key)
        return self.with_tools(opened.toolbox, judge)

    def play(self, questions: Sequence[Question], sampler: Sampler, sampling: Sampling) -> list[Episode]:
        with judging_ahead(self.judge) as on_end:
            return play_episodes(questions, sampler, self.toolbox, self.config.searcher, sampling, Watch(on_end))

    def score(self, question: Question, episode: Episode, correct: bool, draw: float) -> Reward:
        return scoring(self.config.reward)(question, episode, correct, draw)

    def measure(self, question: Question, episode: Episode) -> Measures:
        return measure_episode(question, episode)

    def checks(self, renderer: ChatRenderer) -> Iterable[Check]:
        yield check_tool_calls(renderer, self.message)
        yield check_template(renderer, self.opening("Where is Norwick?"), self.message(render_call(ToolCall(SEARCH, "Norwick"))))
        yield check_index(self.toolbox)
        if self.config.searcher.programs:
            yield check_sandbox(self.toolbox)

    def check_rows(self, rows: Sequence[EpisodeRow]) -> Iterable[Check]:
        silent = mean(row.tool_calls == 0 for row in rows)
        remedy = "the model never searches: check searcher.system_prompt, or train it with `slmsearch sft` first"
        yield Check("searching", silent < 1.0, f"{silent:.0%} of {len(rows)} episodes without a tool call", remedy)


def scoring(reward: RewardConfig) -> Score:
    """Return the function that computes a searcher's reward."""
    return lambda question, episode, correct, draw: score_episode(episode, question, correct, reward, draw)


_open = lru_cache(maxsize=1)(open_indexed_corpus)


def _describe_judge(config: JudgeConfig) -> dict[str, str | int | None]:
    if config.kind == "exact":
        return {"kind": config.kind, "rules": RULES_VERSION}
    return {"rules": RULES_VERSION, **config.model_dump(mode="json", include={"kind", "model", "base_url"}), "prompt": load_prompt()}


def check_tool_calls(renderer: ChatRenderer, write: Callable[[str], Message]) -> Check:
    """Check that a call of every tool, and an answer, survive the tokenizer and the parser; `write` gives them to the chat template."""
    calls = [ToolCall(SEARCH, 'the "Old" Mill'), ToolCall(VIEW, "4821"), ToolCall(READ, "4821:early_life")]
    lost = [call.name for call in calls if parse_turn(through(renderer, write(render_call(call)))).call != call]
    if parse_turn(through(renderer, write(render_answer("Mount Selund"))), plain=True).answer != "Mount Selund":
        lost.append("answer")
    found = f"do not survive tokenizer and parser: {', '.join(lost)}" if lost else "3 tools and an answer survive tokenizer and parser"
    return Check("tool calls", not lost, found, "the model's tokenizer or the parser drops part of a call: take another model")


def check_template(renderer: ChatRenderer, opening: Sequence[Message], call: Message) -> Check:
    """Compare the ids of an episode, its opening and a call, with the model's own rendering of the same messages."""
    result = '4821: Norwick\n4822: "Old" Mill'
    ids = (*renderer.encode_prompt(opening), *renderer.message_ids(call), renderer.end_id, *renderer.encode_result(result))
    prefix = renderer.render(opening)
    rendered = renderer.render([*opening, call, {"role": renderer.tool_role, "content": result}])
    # With thinking off, templates of thinking models print an empty thought, and only before the newest turn.
    laid_out, rendered, prefix = (NO_THOUGHT.sub("", text) for text in (renderer.tokenizer.decode(ids), rendered, prefix))
    same = laid_out == rendered and rendered.startswith(prefix)
    found = "a conversation only grows at its end" if same else "the chat template rewrites earlier turns when a conversation grows"
    return Check("template", same, found, "use a template without that (an instruct, not a thinking model), or searcher.tool_role=user")


def check_index(toolbox: Toolbox) -> Check:
    """Check the index: search for pages by their own titles, spread over the corpus."""
    pages = list(toolbox.library.pages())
    chosen = pages[:: max(1, len(pages) // TITLES)][:TITLES]
    hits = toolbox.index.search([page.title for page in chosen], max(toolbox.top_k, 5))
    found = mean(page.id in {hit.page_id for hit in shown} for page, shown in zip(chosen, hits, strict=True)) if chosen else 0.0
    figures = f"{found:.0%} of {len(chosen)} pages found by their own title"
    return Check("index", found >= MIN_FOUND, figures, "index and embedder do not belong together: slmsearch reindex")


def check_sandbox(toolbox: Toolbox) -> Check:
    """Check the sandbox: run a program that searches."""
    page = next(iter(toolbox.library.pages()))
    program = f"print(len(search_pages({page.title!r})))"
    result = toolbox.programs.run([program])[0] if toolbox.programs is not None else SandboxError("these tools have no sandbox")
    passed = isinstance(result, ToolResult) and result.served and [made.result.served for made in result.made] == [True]
    found = result.text if isinstance(result, ToolResult) else str(result)
    figures = "a program searched, and what it printed came back" if passed else f"a program that searches came to: {found}"
    return Check("sandbox", passed, figures, "slmsearch sandbox up, or searcher.programs=false")
