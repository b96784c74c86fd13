import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serve.hub import choose_files, find_gguf

FILES = [
    "README.md",
    "mmproj-model-f16.gguf",
    "qwen2.5-7b-instruct-fp16-00001-of-00004.gguf",
    "qwen2.5-7b-instruct-q4_0-00002-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_0-00001-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf",
    "qwen2.5-7b-instruct-q8_0.gguf",
]


def test_a_quantisation_is_chosen_with_all_its_parts() -> None:
    parts = ["qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf"]
    assert choose_files(FILES, "Q4_K_M", "r") == parts
    assert choose_files(FILES, None, "r") == parts, "the first of the preferred"
    assert choose_files(FILES, "q8_0", "r") == ["qwen2.5-7b-instruct-q8_0.gguf"]
    assert choose_files(["phi-3-mini-fp16.gguf", "phi-3-mini-q4.gguf"], "q4", "r") == ["phi-3-mini-q4.gguf"]
    assert choose_files(["odd.gguf"], None, "r") == ["odd.gguf"]


def test_a_missing_quantisation_says_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"r has no GGUF of quantisation 'q2_k': it has qwen2.5-7b-instruct-fp16-00001"):
        choose_files(FILES, "q2_k", "r")
    with pytest.raises(ConfigError, match="it has no GGUF at all"):
        choose_files(["README.md"], None, "r")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    assert find_gguf(str(tmp_path / "x.gguf"), print) == tmp_path / "x.gguf"


@pytest.mark.parametrize("model", ["owner/repository", "owner/repository:q4_k_m", "owner/repository/folder/file.gguf"])
def test_without_network_and_cache_it_is_one_line(model: str) -> None:
    with pytest.raises(
        ServiceError, match=r"owner/repository is not in the Hub's cache and cannot be fetched \(.*\): connect once"
    ) as raised:
        find_gguf(model, print)
    assert "\n" not in str(raised.value)


def test_what_lies_in_the_cache_is_found_without_network(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--owner--repository" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "m-q8_0.gguf").touch()
    (snapshot / "m-q4_k_m.gguf").touch()
    refs = tmp_path / "hub" / "models--owner--repository" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    code = "from slmsearch.serve.hub import find_gguf; print(find_gguf('owner/repository', print))"
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str(snapshot / "m-q4_k_m.gguf")


@given(st.text(max_size=60) | st.from_regex(r"[a-z.-]{1,6}/[a-z.-]{1,6}(:q4)?", fullmatch=True))
def test_any_text_is_a_file_a_repository_or_refused(text: str) -> None:
    with pytest.raises((ConfigError, ServiceError)):
        find_gguf(text, print)


@given(st.lists(st.from_regex(r"[a-z]{1,5}-(q4_0|q8_0|f16)(-0000[12]-of-00002)?\.gguf", fullmatch=True), min_size=1, unique=True))
def test_what_is_chosen_is_there_and_of_one_model(files: list[str]) -> None:
    chosen = choose_files(files, None, "r")
    assert chosen and set(chosen) <= set(files)
    assert len({name.split("-00")[0].removesuffix(".gguf") for name in chosen}) == 1
