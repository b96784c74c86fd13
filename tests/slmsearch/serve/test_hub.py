import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub.utils import filter_repo_objects
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.errors import ConfigError, ServiceError
from slmsearch.serve.hub import find_gguf

FILES = [
    "README.md",
    "mmproj-model-f16.gguf",
    "qwen2.5-7b-instruct-fp16-00001-of-00004.gguf",
    "qwen2.5-7b-instruct-q4_0-00002-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_0-00001-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
    "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf",
    "qwen2.5-7b-instruct.Q8_0.gguf",
]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the Hub: gives the files of `FILES` that are asked for."""

    def download(repo: str, allow_patterns: list[str]) -> str:
        for name in filter_repo_objects(FILES, allow_patterns=allow_patterns):
            (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return tmp_path


def test_a_quantisation_is_fetched_with_all_its_parts(hub: Path) -> None:
    parts = ["qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf"]
    assert find_gguf("owner/r", print) == hub / parts[0], "where none is named"
    assert sorted(path.name for path in hub.iterdir()) == parts, "and nothing else"
    assert find_gguf("owner/r:Q4_K_M", print) == hub / parts[0]
    assert find_gguf("owner/r:q8_0", print) == hub / "qwen2.5-7b-instruct.Q8_0.gguf"
    assert find_gguf("owner/r/mmproj-model-f16.gguf", print) == hub / "mmproj-model-f16.gguf"


@pytest.mark.parametrize("model", ["owner/r:q2_k", "owner/r/other.gguf"])
def test_a_missing_quantisation_says_where_to_look(hub: Path, model: str) -> None:
    with pytest.raises(ConfigError, match=r"owner/r has no (GGUF of quantisation 'q2_k'|file other.gguf): see its files on the Hub"):
        find_gguf(model, print)


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
    code = "from slmsearch.serve.hub import find_gguf; print(find_gguf('owner/repository', lambda text: None))"
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str(snapshot / "m-q4_k_m.gguf")


@given(st.text(max_size=60) | st.from_regex(r"[a-z.-]{1,6}/[a-z.-]{1,6}(:q4)?", fullmatch=True))
def test_any_text_is_a_file_a_repository_or_refused(text: str) -> None:
    with pytest.raises((ConfigError, ServiceError)):
        find_gguf(text, print)
