"""Options of the command `learn`: its budget, and the model that a GPU takes."""

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.commands.learning import Duration, largest_model


@given(st.floats(0.001, 1e6).map(lambda number: f"{number:.3f}"), st.sampled_from(["", "s", "m", "h", " m"]))
def test_times_are_read_with_their_unit(number: str, unit: str) -> None:
    assert Duration()(number + unit) == pytest.approx(float(number) * {"s": 1, "": 60, "m": 60, "h": 3600}[unit.strip()])


@given(st.text(max_size=8))
def test_what_is_no_time_is_refused(text: str) -> None:
    try:
        assert Duration()(text) >= 0
    except click.BadParameter as error:
        assert "write 45s, 30m or 2h" in error.message


@pytest.mark.parametrize(
    ("shown", "model"),
    [("81559", "Qwen/Qwen2.5-3B-Instruct"), ("12288\n8192", "Qwen/Qwen2.5-1.5B-Instruct"), ("8192", None), ("", None), ("[N/A]", None)],
)
def test_a_gpu_takes_a_model_by_its_memory(shown: str, model: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{shown}\\n'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert largest_model() == model
