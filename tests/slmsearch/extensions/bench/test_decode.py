"""Engines side by side on a small world, with the real llama.cpp."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slmsearch.extensions.bench import decode

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (extra `llamacpp`)")


def test_the_same_episodes_are_played_by_every_engine(
    slmsearch: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "EPISODES", 6)
    monkeypatch.setattr(decode, "COPIED_MB", 8)
    paths = ["--paths.data_dir", tmp_path / "data", "--paths.mlruns_dir", tmp_path / "mlruns"]
    code, out, err = slmsearch("bench", "decode", "--shape", "demo", "--runs", 1, "--corpus.world.pages", 60, "--json", *paths)
    assert code == 0, err
    told = json.loads(out)
    assert told == json.loads((tmp_path / "mlruns" / "bench" / "decode.json").read_text())
    assert told["same_episodes_frac"] == {"torch": 1.0, "llama.cpp": 1.0} and told["episodes"] == 6
    assert told["llamacpp_ratio"] == pytest.approx(told["seconds"]["llama.cpp"]["median"] / told["seconds"]["torch"]["median"])
    assert told["vllm_ratio"] is None and told["bandwidth_frac"] > 0 and told["sampled_tokens"] > 50
