"""The questions of a corpus as tasks of `verifiers`, and the grading of played ones.

One task is one question. Its setup opens the corpus and the index, its score is that of `slmsearch evaluate`: the named parts of the
reward are its rewards, so that their sum is the reward, and the summary of its row is its metrics (`docs/metrics.md`).

Settings are the sections of `RunConfig`, which `verifiers` reads itself, from flags and files; nothing here reads a file of settings
or the environment.
"""

import asyncio
import random
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field, SecretStr

from slmsearch.config import EmbedderConfig, JudgeConfig, RunConfig
from slmsearch.config.secrets import MASK
from slmsearch.corpus.questions import FIELDS, Question
from slmsearch.corpus.store import build_corpus, load_questions
from slmsearch.environments.searcher import indexed_corpus
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment, scoring
from slmsearch.episodes.grade import grade_episodes
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.errors import ConfigError, EvaluationError, JudgeError
from slmsearch.evaluate.metrics import summarise
from slmsearch.evaluate.run import select_questions
from slmsearch.evaluate.store import episode_from_dict
from slmsearch.judge import ExactJudge, Judge
from slmsearch.judge.llm import make_judge

EPISODE = "episode"
"""Key of a played episode in a trace's `info`, which is saved with the trace, so that `vf-replay` can grade it again."""
_OPENING = threading.Lock()


class SearcherState(vf.State):
    """State from the setup of a task to its score; never saved."""

    searcher: Any = Field(default=None, exclude=True, repr=False)
    """The `SearcherEnvironment` that the harness plays in; None before setup."""
    row: Any = Field(default=None, exclude=True, repr=False)
    """The graded `EpisodeRow`; None before the first score."""


class SearcherTaskData(vf.TaskData):
    """A question in the form that is sent and recorded; the fields of `Question`."""

    question_id: str
    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    page_ids: tuple[str, ...] = ()
    section_ids: tuple[str, ...] = ()
    hops: int = 0
    kind: str = "plain"
    entities: tuple[str, ...] = ()

    def to_question(self) -> Question:
        """Return the question."""
        return Question(self.question_id, **{name: getattr(self, name) for name in FIELDS if name != "id"})


class SearcherTaskConfig(vf.TaskConfig):
    """Settings of playing and grading."""

    run: RunConfig = RunConfig()
    """Settings, as in a file of `deployments/configs`: `--env.taskset.task.run @ FILE.yaml`. Sections about training and tracking are
    accepted and not read; `policy` neither: the model is `--model` at `--client.base-url`. Relative paths start at the current
    directory."""


class SearcherTasksetConfig(vf.TasksetConfig):
    """Settings that choose the questions."""

    task: SearcherTaskConfig = SearcherTaskConfig()
    split: Literal["train", "validation", "test", "all"] | None = None
    """Split of the questions; None takes `run.evaluate.split`. `run.evaluate.limit` draws the same sample of it as `slmsearch
    evaluate --limit`."""


class SearcherTask(vf.Task[SearcherTaskData, SearcherState, SearcherTaskConfig]):
    """One question."""

    @property
    def key(self) -> str:
        """Return the question's id."""
        return str(self.data.question_id)

    async def setup(self, trace: vf.Trace) -> None:
        """Open corpus and index, once in a process, and hand them to the harness."""
        indexed = await asyncio.to_thread(open_indexed_corpus, self.config.run)
        trace.state.searcher = SearcherEnvironment(self.config.run).with_tools(indexed.toolbox, ExactJudge())

    @vf.metric
    async def episode(self, trace: vf.Trace) -> Mapping[str, float]:
        """Measure the episode, under the names of `docs/metrics.md`."""
        return summarise([await self._graded(trace)])

    @vf.reward
    async def parts(self, trace: vf.Trace) -> Mapping[str, float]:
        """Return the named parts of the reward."""
        return dict((await self._graded(trace)).reward_parts)

    async def _graded(self, trace: vf.Trace) -> EpisodeRow:
        if not isinstance(trace.state, SearcherState):  # `vf-replay` reads traces back without their state
            trace.state = SearcherState()
        if trace.state.row is None:
            judge, threads = _open_judge(self.config.run.judge, self.config.run.paths.data_dir)
            trace.state.row = await asyncio.get_running_loop().run_in_executor(threads, self._grade, trace, judge)
        row: EpisodeRow = trace.state.row
        return row

    def _grade(self, trace: vf.Trace, judge: Judge) -> EpisodeRow:
        played = trace.info.get(EPISODE)
        if played is None:
            raise EvaluationError("this task was not played by the harness `slmsearch`, and no other is graded; leave the harness unset")
        draw = random.Random(trace.id).random()
        score = scoring(self.config.run.reward)
        (row,) = grade_episodes([self.data.to_question()], [episode_from_dict(played)], judge, score, measure_episode, draws=[draw])
        if row.failed:
            raise JudgeError(row.failure)
        return row


class SearcherTaskset(vf.Taskset[SearcherTask, SearcherTasksetConfig]):
    """The questions of the configured corpus."""

    def load(self) -> Iterator[SearcherTask]:
        """Yield the selected questions, in corpus order; build a missing corpus first.

        Raises:
            CorpusError: it cannot be built, or holds no such question.
        """
        run = self.config.task.run
        check_secrets(run.judge, run.retrieval.embedder)
        corpora = run.paths.corpora
        evaluate = run.evaluate.model_copy(update={"split": self.config.split or run.evaluate.split})
        with _OPENING:
            questions = load_questions(corpora, build_corpus(run.corpus, corpora))
        for number, question in enumerate(select_questions(questions, evaluate)):
            *system, user = make_prompt(question.question, run.searcher)
            values: dict[str, Any] = question.row()
            values |= {"question_id": values.pop("id"), "system_prompt": system[0]["content"] if system else None}
            data = SearcherTaskData(idx=number, name=question.id, prompt=user["content"], **values)
            yield SearcherTask(data, self.config.task)


def open_indexed_corpus(run: RunConfig) -> IndexedCorpus:
    """Open the configured corpus and index; later calls with the same settings return the same one. Safe to call from threads.

    Raises:
        CorpusError, IndexUnusableError, EmbedderError: it cannot be built or opened.
        ConfigError: a key was masked on its way here.
    """
    check_secrets(run.judge, run.retrieval.embedder)
    with _OPENING:
        return _open_indexed_corpus(run)


@lru_cache(maxsize=2)
def _open_indexed_corpus(run: RunConfig) -> IndexedCorpus:
    indexed = indexed_corpus.open_indexed_corpus(run)
    # The first query loads the embedder: that is setup, not the first episodes' time.
    indexed.toolbox.index.search(["setup"], 1)
    return indexed


@lru_cache(maxsize=2)
def _open_judge(config: JudgeConfig, data_dir: str) -> tuple[Judge, ThreadPoolExecutor]:
    return make_judge(config, data_dir), ThreadPoolExecutor(config.concurrency, thread_name_prefix="judge")


def check_secrets(judge: JudgeConfig, embedder: EmbedderConfig) -> None:
    """Refuse keys that were masked: by `verifiers` when it handed the settings to an environment server, or by `slmsearch config`.

    Raises:
        ConfigError: one is masked.
    """
    keys: dict[str, SecretStr | None] = {"judge.api_key": judge.api_key, "retrieval.embedder.api_key": embedder.api_key}
    for name, key in keys.items():
        if key is not None and key.get_secret_value() == MASK:
            raise ConfigError(f"{name} arrived masked, as verifiers hands keys to its environment servers; give it as a flag of vf-eval")
