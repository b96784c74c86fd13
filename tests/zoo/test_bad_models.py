"""Models that cannot be played or trained: one line with cause and remedy, exit code 3, and what was there before is still there."""

import json
import shutil
from pathlib import Path

import pytest

from slmsearch.models.known import models_dir
from tests.zoo.conftest import Slmsearch, Zoo
from tests.zoo.models import DEFAULT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.parametrize("zoo", [DEFAULT], indirect=True)]

DROPS_TOOLS = (
    "{% for m in messages if m['role'] in ('system', 'user', 'assistant') %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def spoiled(zoo: Zoo, tmp_path: Path, how: str) -> Path:
    """Copy the zoo's model and spoil the copy."""
    path = Path(shutil.copytree(zoo.model, tmp_path / how))
    template = path / "chat_template.jinja"
    if how == "no-template":
        template.unlink()
    elif how == "drops-tools":
        template.write_text(DROPS_TOOLS)
    else:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 48}))
    return path


@pytest.mark.parametrize(
    ("how", "cause", "remedy"),
    [
        ("no-template", "no chat template", "instruct model"),
        ("drops-tools", "does not print a 'tool' message unchanged", "searcher.tool_role"),
        ("short", "context ends at 48", "shorten the system prompt"),
    ],
)
def test_it_is_one_line(zoo: Zoo, slmsearch: Slmsearch, tmp_path: Path, how: str, cause: str, remedy: str) -> None:
    assert slmsearch("index", "build", *zoo.flags())[0] == 0
    index = (models_dir(zoo.folder / "data").parent / "index" / "CURRENT").read_text()
    code, out, err = slmsearch(
        "ask", "When was TownC2 founded?", "--policy", "untrained", *zoo.flags(policy__model=spoiled(zoo, tmp_path, how))
    )
    last = err.strip().splitlines()[-1]
    assert (code, out) == (3, ""), err
    assert last.startswith("slmsearch: ") and cause in last and remedy in last, err
    assert (models_dir(zoo.folder / "data").parent / "index" / "CURRENT").read_text() == index
    assert list((zoo.folder / "data").rglob(".tmp-*")) == []
