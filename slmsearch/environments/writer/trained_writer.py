"""A model that learnt to ask as a writer of questions, and the choice of the configured writer."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from slmsearch.config import PolicyConfig, RunConfig, SearcherConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.writer.writing import answer_drafts, choose_answers, read_question, write_questions
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.sampler import Sampler, Sampling
from slmsearch.judge.clients import make_client
from slmsearch.made_questions.cloze import Draft, Excerpt
from slmsearch.made_questions.make import WRITTEN, Filters, QuestionWriter
from slmsearch.made_questions.written import FORM, Reader, ServedQuestionWriter
from slmsearch.sampling import load_sampler

ASKED_PER_SECTION = 3
"""Maximum number of answers asked for per section; the filters drop some of the questions."""
TEMPERATURE = 0.7
"""Temperature of the questions: people ask for one fact in many ways."""


class TrainedQuestionWriter:
    """Writer of questions by a sampler, several sections at a time; it asks for answers that the filters would keep."""

    def __init__(
        self, sampler: Sampler, config: SearcherConfig, rows: int, reader: Reader | None = None, seed: int = 0, ends: float = math.inf
    ) -> None:
        """Wrap a sampler.

        Args:
            sampler: plays the model.
            config: limits of messages.
            rows: maximum number of questions written at the same time.
            reader: see `QuestionWriter.reader`.
            seed: decides answers and questions.
            ends: value of `time.monotonic` after which no further batch is written.
        """
        self._sampler, self._config, self._rows, self._seed, self._ends = sampler, config, rows, seed, ends
        self.reader, self.faults = reader, Counter[str]()

    def write(self, sections: Sequence[Excerpt], filters: Filters) -> Iterator[list[Draft]]:
        """See `QuestionWriter.write`."""
        written, step = 0, max(1, self._rows // ASKED_PER_SECTION)
        for start in range(0, len(sections), step):
            if time.monotonic() > self._ends:
                return
            batch = sections[start : start + step]
            asked = [Draft("", answer, WRITTEN, section) for section in batch for answer in self._choose(section, filters)]
            drafts = self._write(asked, written)
            written += len(asked)
            yield from ([draft for draft in drafts if draft.place is section] for section in batch)

    def _choose(self, section: Excerpt, filters: Filters) -> list[str]:
        """Choose answers for which no question would be dropped without a search."""
        wanted = (
            answer
            for answer in choose_answers(section, filters.common, self._seed)
            if filters.reason_against(Draft("", answer, WRITTEN, section)) is None
        )
        return list(islice(wanted, ASKED_PER_SECTION))

    def _write(self, asked: Sequence[Draft], first_row: int) -> list[Draft]:
        """Write the questions of drafts that have none; those without a usable reply are counted and left out."""
        if not asked:
            return []
        config, drafts = self._config, list[Draft]()
        questions = [Question(str(first_row + number), "", draft.answer) for number, draft in enumerate(asked)]
        sampling = Sampling(TEMPERATURE, self._seed, config.max_turn_tokens, first_row)
        episodes = write_questions(questions, [draft.place for draft in asked], self._sampler, sampling, config)
        for draft, episode in zip(asked, episodes, strict=True):
            question = read_question(episode.turns[0].text) if episode.stop_reason is StopReason.ANSWERED else None
            if question is None:
                self.faults[f"reply: {episode.stop_reason}"] += 1
            else:
                drafts.append(Draft(question, draft.answer, WRITTEN, draft.place))
        return drafts


def make_question_writer(config: RunConfig, seed: int = 0, ends: float = math.inf) -> QuestionWriter | None:
    """Make the configured writer of questions with its reader: a trained model, else the judge's; None where all questions have gaps.

    Args:
        config: sections `learn`, `policy`, `judge`, `searcher` and `evaluate`.
        seed: as in `TrainedQuestionWriter`.
        ends: as in `TrainedQuestionWriter`.

    Raises:
        ModelError: a model cannot be loaded.
        JudgeError: the judge's server does not answer, or lacks the model.
    """
    asked, judge = config.learn, config.judge
    if asked.questions == "gaps" or not (asked.writer or judge.kind != "exact"):
        return None
    samplers = {name: _load(name, config.policy, config.searcher.tool_role) for name in {asked.writer, asked.reader} if name}
    reads = asked.reader or asked.writer
    reader = partial(answer_drafts, sampler=samplers[reads], config=config.searcher) if reads else None
    if asked.writer:
        return TrainedQuestionWriter(samplers[asked.writer], config.searcher, config.evaluate.batch_size, reader, seed, ends)
    served = ServedQuestionWriter(make_client(judge, FORM), judge, reader, ends)
    served.check()
    return served


def _load(model: str, policy: PolicyConfig, tool_role: str) -> Sampler:
    alone = policy.model_copy(update={"model": model, "adapter": None, "base_url": None, "api_key": None})
    return load_sampler.make_sampler(alone, tool_role)
