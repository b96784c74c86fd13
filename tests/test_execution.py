"""Nothing but the sandbox executes what a model wrote."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNNER = "slmsearch/extensions/sandbox/runner.py"
"""Runs inside the sandbox, and nowhere else."""
EXECUTING = {
    RUNNER: {"exec", "compile", "marshal.loads"},
    "slmsearch/processes/call.py": {"pickle.loads"},
    "slmsearch/processes/watchdog.py": {"os.execve"},
}
"""The first reads marshalled what the server says; the second what its own starter pickled into a socket that only the two share; the
third becomes the Python process that its starter named."""
BUILTINS = {"exec", "eval", "compile", "__import__"}
METHODS = {
    "os": {"system", "popen", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp", "fork"},
    "runpy": {"run_module", "run_path"},
    "pickle": {"load", "loads"},
    "marshal": {"load", "loads"},
    "shelve": {"open"},
    "code": {"interact", "InteractiveConsole", "InteractiveInterpreter"},
    "builtins": BUILTINS,
    "types": {"FunctionType", "CodeType"},
    "yaml": {"load", "unsafe_load", "full_load"},
}
PROCESSES = {
    "flows/cli/commands/bench.py": "this project's own commands, with flags that stand in the code and those of the command line",
    "flows/cli/commands/learning.py": "nvidia-smi",
    "slmsearch/bundle/remote.py": "on the other machine: Python, pip of the bundle, tee, and slmsearch itself",
    "slmsearch/bundle/wheels.py": "uv, with names and hashes that it wrote",
    "slmsearch/training/card.py": "nvidia-smi",
    "slmsearch/corpus/documents/reader.py": "the reader of documents, with its own module's name; paths go in hexadecimal",
    "flows/ops/gguf.py": "ollama create, with the name of a directory that was written here",
    "slmsearch/artifacts/packages.py": "pip or uv, with names and hashes that stand in the code",
    "slmsearch/processes/child.py": "modules by name: servers, training, computations; settings and secrets go in as JSON",
    "slmsearch/processes/watchdog.py": "a model server by its command line",
    "slmsearch/extensions/bench/recorded.py": "git archive of a recorded commit, and that commit's own modules",
    "slmsearch/extensions/sandbox/bubblewrap.py": "bwrap; the program goes through a pipe when the isolation layers stand",
    "slmsearch/extensions/sandbox/docker.py": "docker; as for bwrap",
    "slmsearch/extensions/sandbox/engine.py": "bwrap and docker, for both",
    "slmsearch/extensions/sandbox/escape.py": "a victim for escapes",
    "slmsearch/extensions/sandbox/reaper.py": "itself, and docker ps and rm",
    "slmsearch/extensions/sandbox/root.py": "ldd",
    "slmsearch/extensions/sandbox/suite.py": "bwrap without some layers, for controls of escapes",
}
"""Who starts processes, and which."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("slmsearch", "tasks", "flows"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def executing_calls(tree: ast.Module) -> Iterator[str]:
    """Find calls that execute code, unpickle, become another program, or go through a shell."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) if name in BUILTINS:
                yield name
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in METHODS.get(module, ()):
                yield f"{module}.{name}"
        for keyword in node.keywords:
            if keyword.arg == "shell" and getattr(keyword.value, "value", None) is not False:
                yield "shell=True"


def test_only_the_runner_executes_text() -> None:
    found = {name: set(executing_calls(tree)) for name, tree in sources()}
    assert {name: calls for name, calls in found.items() if calls} == EXECUTING


def test_processes_are_started_where_it_is_known_why() -> None:
    starting = {name for name, tree in sources() if any(isinstance(node, ast.Name) and node.id == "subprocess" for node in ast.walk(tree))}
    assert starting == set(PROCESSES)


def test_nobody_imports_the_runner_but_to_copy_it() -> None:
    importing = set()
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
                importing |= {name} if "slmsearch.extensions.sandbox.runner" in imported else set()
    assert importing == {"slmsearch/extensions/sandbox/root.py"}


@pytest.mark.parametrize(
    "text", ["exec(x)", "eval('1')", "os.system(x)", "subprocess.run(x, shell=True)", "pickle.loads(x)", "builtins.exec(x)"]
)
def test_the_search_would_notice(text: str) -> None:
    assert list(executing_calls(ast.parse(text)))


PLAY = """
import sys
MARK = "mark_of_the_model"
seen = []
WATCHED = ("compile", "exec", "import", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
def watch(event, arguments):
    if event in WATCHED and any(MARK in repr(given) or MARK in str(getattr(given, "co_names", "")) for given in arguments):
        seen.append(event)
sys.addaudithook(watch)

import json
from slmsearch.config import JudgeConfig, RewardConfig, SearcherConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.episodes.grade import grade_episodes
from slmsearch.environments.searcher.searcher_environment import scoring
from slmsearch.evaluate.store import episode_from_dict, episode_to_dict
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.episodes.sampler import Sampling
from slmsearch.judge.llm import make_judge
from slmsearch.episodes.episode import ToolResult
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.tools import Toolbox

class Index:
    key = "x"
    def search(self, queries, top_k):
        return [[] for _ in queries]

class Runner:
    def run(self, programs):
        return [ToolResult("out", True) for _ in programs]

texts = [
    f"<code>{MARK} = 1\\nprint({MARK})</code>",
    f"<tool>search_pages('{MARK}')</tool>",
    f'<tool>search_pages(__import__("os").system("{MARK}"))</tool>',
    f"<answer>__import__('os').system('{MARK}')</answer>",
]
library = Library([Page("1", "A", "# A\\n\\ntext\\n")])
toolbox = Toolbox(library, Index(), 3, 1500, Runner())
for programs in (False, True):
    questions = [Question(str(i), f"{i}", MARK) for i in range(len(texts))]
    writer = ScriptedSampler(lambda question, results: texts[int(question)] if not results else texts[3])
    episodes = play_episodes(questions, writer, toolbox, SearcherConfig(programs=programs), Sampling())
    rows = grade_episodes(questions, episodes, make_judge(JudgeConfig()), scoring(RewardConfig()), measure_episode)
    [episode_from_dict(json.loads(json.dumps(episode_to_dict(episode)))) for episode in episodes]
compile(f"{MARK} = 1", "control", "exec")
print(json.dumps({"seen": seen, "stops": [episode.stop_reason for episode in episodes], "rows": len(rows)}))
"""


def test_playing_grading_and_storing_execute_no_word_of_the_model() -> None:
    """Python reports what it compiles, executes, imports and starts; only the control at the end may show."""
    done = subprocess.run([sys.executable, "-c", PLAY], cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["seen"] == ["compile"], "the control, and nothing before it"
    assert result["stops"] == ["answered"] * 4
