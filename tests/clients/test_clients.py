"""Each client asks, lists, calls and is refused. What it does is in `scripts/`; the versions are those that are pinned."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import HERE, TOKEN, Served, environment_of

SCRIPTS = HERE / "scripts"
PYTHON = ["openai", "langchain-openai", "litellm", "mcp"]
NODE = ["openai-node", "mcp-typescript"]
TOOLS = ["search_pages", "view_sections", "read_section", "ask"]


@pytest.mark.parametrize("name", PYTHON)
def test_python(served: Served, name: str, tmp_path: Path) -> None:
    python = environment_of(name) / "bin" / "python"
    said = served.run(python, SCRIPTS / f"use_{name}.py", json.dumps(served.told), home=tmp_path)
    (pinned,) = re.findall(rf"^{name}==(\S+)$", (HERE / "constraints.txt").read_text(), re.MULTILINE)
    assert said == f"{name} {pinned}\n"


@pytest.mark.parametrize("name", NODE)
def test_node(served: Served, name: str, tmp_path: Path) -> None:
    script = environment_of(name) / f"use_{name}.mjs"  # beside node_modules, where its imports are looked for
    shutil.copy(SCRIPTS / script.name, script)
    assert served.run("node", script, json.dumps(served.told), home=tmp_path).startswith(name)


def test_the_inspector(served: Served, tmp_path: Path) -> None:
    program = environment_of("mcp-inspector") / "node_modules" / ".bin" / "mcp-inspector"

    def inspect(*words: str) -> Any:
        server = [served.told["mcp_url"], "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"]
        return json.loads(served.run(program, "--cli", *server, "--method", *words, home=tmp_path))

    assert [tool["name"] for tool in inspect("tools/list", "--strict")["tools"]] == TOOLS
    for method, name in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates"), ("prompts/list", "prompts")):
        assert inspect(method)[name] == []
    page_id, title = served.told["page_id"], served.told["title"]
    viewed = inspect("tools/call", "--tool-name", "view_sections", "--tool-arg", f"page_id={page_id}")
    assert viewed["structuredContent"]["title"] == title
    asked = inspect("tools/call", "--tool-name", "ask", "--tool-arg", f"question={served.told['question']}")
    assert asked["structuredContent"]["answer"] == served.told["answer"]
