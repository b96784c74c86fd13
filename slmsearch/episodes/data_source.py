"""Data of an environment: questions, and the corpus or any other source behind them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from slmsearch.config import CorpusConfig, RunConfig
from slmsearch.corpus.data_report import DataReport
from slmsearch.corpus.documents.skipped import Skipped


@dataclass(frozen=True)
class DataSource(ABC):
    """Data of a run's environment: a source of questions, which becomes a corpus on disk."""

    config: RunConfig
    label: ClassVar[str] = "questions"
    """Name of the data, in one word."""
    code: ClassVar[tuple[str, ...]] = ("corpus",)
    """Packages of `slmsearch` whose code decides the result of `check`."""
    unused: ClassVar[tuple[str, ...]] = ("searcher.", "planner.", "reward.", "control.")
    """Prefixes of settings that the environment ignores."""
    output: ClassVar[str] = ""
    """Folder in the data directory in which a finished run is laid out as one directory; empty: no such folder."""

    @abstractmethod
    def sources(self) -> dict[str, str | None]:
        """Return the configured files and data sets by setting; None where data are generated."""

    def key_parts(self) -> Mapping[str, object] | None:
        """Collect everything that decides the data; None if that requires loading them."""
        return None

    @classmethod
    def collect_again(cls, config: CorpusConfig, recorded: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Collect a key's parts from recorded settings, to compare them with `recorded`; None if those are of another source."""
        return None

    @abstractmethod
    def build(self, corpora_dir: Path, skipped: list[Skipped] | None = None, progress: Callable[[int, int], None] | None = None) -> str:
        """Materialise the data as a corpus, unless it exists, and return its digest.

        Args:
            corpora_dir: directory of all corpora.
            skipped: takes the files that could not be read.
            progress: receives the number of files read, and their total.

        Raises:
            CorpusError: a source is missing or broken, or the corpus cannot be written.
        """

    def check(self, corpora_dir: Path, digest: str) -> DataReport:
        """Check a corpus; by default nothing is checked."""
        return DataReport(digest)

    def describe(self) -> str:
        """Return the source of the data: the first configured source, else the environment's name."""
        return next((source for source in self.sources().values() if source), self.config.environment)

    def index_key(self, digest: str) -> str:
        """Return the name of the index version of a corpus; empty without an index."""
        return ""

    def fresh(self, seed: int, pages: int, questions: int) -> RunConfig:
        """Return the configuration of unseen data for a nightly run; by default the data stay the same."""
        return self.config

    def servers(self) -> Mapping[str, bool]:
        """Return prefixes of settings with addresses and secrets, except policy and judge, and whether playing uses such a server."""
        return {"planner.": False, "retrieval.": False, "sandbox.": False}
