"""Data of an environment without pages: a set of questions."""

from collections.abc import Callable
from pathlib import Path

from slmsearch.config import CorpusConfig
from slmsearch.corpus.documents.skipped import Skipped
from slmsearch.corpus.questions import Question
from slmsearch.corpus.sources import read_questions
from slmsearch.corpus.store import store_questions
from slmsearch.episodes.data_source import DataSource
from slmsearch.errors import ConfigError


class QuestionSet(DataSource):
    """Questions without pages, by default those of `corpus.questions`."""

    def sources(self) -> dict[str, str | None]:
        """See `DataSource.sources`."""
        return {"corpus.questions": self.config.corpus.questions}

    def load_questions(self) -> list[Question]:
        """Load or generate the questions.

        Raises:
            CorpusError: a source is missing or broken.
            ConfigError: no questions are configured.
        """
        if self.config.corpus.questions is None:
            raise ConfigError(f"environment {self.config.environment} needs questions: set corpus.questions")
        return read_questions(self.config.corpus.questions)

    def build(self, corpora_dir: Path, skipped: list[Skipped] | None = None, progress: Callable[[int, int], None] | None = None) -> str:
        """See `DataSource.build`."""
        source = CorpusConfig(questions=next(iter(self.sources().values()), None))
        return store_questions(source, corpora_dir, self.load_questions, self.key_parts())
