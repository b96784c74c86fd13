"""Where data lies: paths, corpus, index."""

from typing import Literal

from pydantic import Field, SecretStr

from slmsearch.config.sections import Address, Section


class PathsConfig(Section):
    """Where things lie; relative paths are resolved against the project root by `flows/settings.py`."""

    data_dir: str = "data"
    """Corpora, models, index versions, evaluations and training directories."""
    mlruns_dir: str = "mlruns"
    """MLflow's SQLite store, its artifacts and `latest.json`."""


class WorldConfig(Section):
    """The fictional encyclopedia."""

    pages: int = Field(default=1600, ge=40)
    """Number of pages."""
    seed: int = 11
    """Seeds names, facts, wording and questions."""
    questions_per_page: float = Field(default=4.0, gt=0)
    """Questions written per page, over all splits."""


class DocumentsConfig(Section):
    """Limits of reading a folder of documents; what exceeds them is left out and named."""

    max_file_mb: float = Field(default=50.0, gt=0)
    """Larger files are not opened; in millions of bytes."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Time one document may take; a PDF of a thousand pages takes about a minute."""


class CorpusConfig(Section):
    """Pages and questions."""

    pages: str | None = None
    """A `.jsonl` or `.parquet` file, a folder of documents (Markdown, text, HTML, PDF), or `hub:owner/name`; None generates the world
    below."""
    questions: str | None = None
    """A `.jsonl` or `.parquet` file or `hub:owner/name`; None with `pages` given means no questions."""
    world: WorldConfig = WorldConfig()
    documents: DocumentsConfig = DocumentsConfig()
    revision: str | None = None
    """Commit of Hub data sets; None takes the newest."""
    sections: Literal["headings", "paragraphs"] = "headings"
    """What a section is: the text under a heading (a page without headings is one), or one paragraph, long ones cut at sentences."""
    split_seed: int = 0
    """Seeds the 80/10/10 split by page."""
    limit_pages: int = Field(default=0, ge=0)
    """Keep only the first pages and the questions on them; 0 keeps all. `DEV=1` sets 10."""
    max_question_chars: int = Field(default=600, ge=1)
    """Longer questions are reported by validation."""
    max_page_chars: int = Field(default=400_000, ge=1)
    """Longer pages are reported by validation."""


class EmbedderConfig(Section):
    """The model that turns text into vectors; part of the index key."""

    kind: Literal["sentence-transformers", "openai"] = "sentence-transformers"
    """A local model, or an OpenAI-compatible `/v1/embeddings` endpoint."""
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Hub id or path; for `openai` the served model's name."""
    revision: str | None = None
    """Commit on the Hub; None takes what the cache holds, or the newest."""
    base_url: Address | None = None
    """Endpoint for `openai`."""
    api_key: SecretStr | None = None
    """Key for `openai`; never recorded."""
    batch_size: int = Field(default=64, ge=1)
    """Texts of a request to an endpoint while building; a local model takes 16 tokens for each together (on a GPU 512)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of passages in a local model, and so part of the index key; `auto` takes bfloat16 where the processor multiplies it in
    hardware (AMX, AVX512-BF16, a GPU since Ampere). Queries are always float32 and search an index of either."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where a local model runs; no part of the index key."""


class RetrievalConfig(Section):
    """The index and what a search returns."""

    embedder: EmbedderConfig = EmbedderConfig()
    ranking: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Embeddings and BM25 together, or one of them alone; no part of the index key, every version serves all three."""
    top_k: int = Field(default=3, ge=1, le=50)
    """Pages a search returns."""
    max_passage_chars: int = Field(default=1000, ge=50)
    """A longer section is embedded in several passages."""
    chroma_url: Address | None = Field(default=None, pattern=r"^https?://")
    """Chroma server that holds the vectors; None keeps them in the version's directory. No part of the index key."""
    chroma_token: SecretStr | None = None
    """Sent to the server as `x-chroma-token`; never recorded."""
    hnsw_ef_construction: int = Field(default=100, ge=1)
    """Candidates weighed for each vector that enters Chroma's graph. 200 takes 1.6 times as long as 100; of the ten nearest among 117,800
    passages a search finds 99.6 instead of 98.9 %."""
    hnsw_max_neighbors: int = Field(default=16, ge=2)
