"""Which precision is chosen, and what follows for keys and for opening."""

from pathlib import Path
from typing import Any

import pytest

from slmsearch.config import EmbedderConfig, RetrievalConfig
from slmsearch.errors import IndexUnusableError
from slmsearch.processes import processor
from slmsearch.retrieval import embedders
from slmsearch.retrieval.build import build_index, index_key
from slmsearch.retrieval.embedders import choose_precision, mark_revision, same_space
from slmsearch.retrieval.search import open_index

AUTO = EmbedderConfig(device="cpu")


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the processor says what it can."""
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


def describe(flags: str) -> str:
    return f"processor\t: 0\nvmx flags\t: amx_bf16\nflags\t\t: fpu {flags} sse2\n\nprocessor\t: 1\nflags\t\t: amx_bf16\n"


@pytest.mark.parametrize(
    "flags, expected", [("amx_bf16", "bfloat16"), ("avx512_bf16", "bfloat16"), ("avx512f amx_int8", "float32"), ("xamx_bf16", "float32")]
)
def test_the_processor_decides(cpuinfo: Path, flags: str, expected: str):
    cpuinfo.write_text(describe(flags))
    assert choose_precision(AUTO) == expected


def test_a_processor_that_says_nothing_gets_float32(cpuinfo: Path):
    assert choose_precision(AUTO) == "float32"
    cpuinfo.write_text("processor : 0\nFeatures : fp asimd bf16\n")
    assert choose_precision(AUTO) == "float32"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_configured_holds(cpuinfo: Path, precision: Any):
    for flags in ("amx_bf16", "sse"):
        cpuinfo.write_text(describe(flags))
        assert choose_precision(EmbedderConfig(precision=precision)) == precision


@pytest.mark.parametrize("on_gpu, expected", [(True, "bfloat16"), (False, "float32"), (None, "bfloat16")])
def test_a_gpu_decides_where_there_is_one(
    cpuinfo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gpu: bool | None, expected: str
):
    monkeypatch.setattr(embedders, "_gpu_multiplies_bfloat16", lambda: on_gpu)
    monkeypatch.setattr(embedders, "CUDA_DEVICES", (tmp_path,))
    cpuinfo.write_text(describe("amx_bf16"))
    assert choose_precision(EmbedderConfig()) == expected
    assert choose_precision(AUTO) == "bfloat16"


def test_a_machine_without_a_gpu_need_not_ask_torch(cpuinfo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedders, "_gpu_multiplies_bfloat16", lambda: pytest.fail("asked"))
    monkeypatch.setattr(embedders, "CUDA_DEVICES", (tmp_path / "nothing",))
    cpuinfo.write_text(describe("sse"))
    assert choose_precision(EmbedderConfig()) == "float32"


def test_the_precision_is_in_the_key_and_no_condition_for_opening(
    corpus_dir: Path, index_dir: Path, config: RetrievalConfig, embedder: Any
):
    plain = embedder.revision
    assert (mark_revision(plain, "float32"), mark_revision(plain, "bfloat16")) == (plain, f"{plain}+bfloat16")
    before = index_key("pages", config, embedder)
    embedder.revision = mark_revision(plain, "bfloat16")
    assert index_key("pages", config, embedder) != before
    key = build_index(corpus_dir, index_dir, config, embedder=embedder)
    found = open_index(index_dir, key, config, embedder).search(["Lisbon"], 2)
    embedder.revision = plain
    assert open_index(index_dir, key, config, embedder).search(["Lisbon"], 2) == found
    embedder.revision = "other weights"
    with pytest.raises(IndexUnusableError, match="was made by"):
        open_index(index_dir, key, config, embedder)


def test_only_the_precision_is_looked_through():
    assert same_space("a", "a+bfloat16") and same_space("a+bfloat16", "a")
    assert not same_space("a", "b+bfloat16") and not same_space("a+1", "a+2")
