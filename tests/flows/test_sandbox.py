"""The sandbox as a user starts it: a server of its own process, real tools, the real embedder."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from flows.ops.sandbox import find_sandbox, small_world, start_sandbox, state_dir, stop_sandbox
from flows.runtime.settings import load_config
from slmsearch.config import CorpusConfig, RunConfig, SandboxConfig
from slmsearch.environments.searcher.indexed_corpus import IndexedCorpus, open_indexed_corpus
from slmsearch.environments.searcher.rollout import play_episodes
from slmsearch.environments.searcher.searcher_environment import check_sandbox
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import SandboxError, ServiceError
from slmsearch.extensions.sandbox import sessions
from slmsearch.extensions.sandbox.bubblewrap import find_bwrap
from slmsearch.extensions.sandbox.checks import check_tools
from slmsearch.extensions.sandbox.client import sandbox_address, with_token
from slmsearch.extensions.sandbox.server import WARM
from slmsearch.http_client import answers
from slmsearch.processes.ports import free_port
from tasks.owners import started_s

PAGES = 60


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    try:
        find_bwrap()
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    data = tmp_path_factory.mktemp("sandbox") / "data"
    told = {"SLMSEARCH_PATHS__DATA_DIR": str(data), "SLMSEARCH_CORPUS__WORLD__PAGES": str(PAGES), "SANDBOX_PORT": str(free_port())}
    return load_config((), ["--searcher.programs=true", "--searcher.max_turn_tokens=2000"], told)


@pytest.fixture(scope="module")
def indexed(config: RunConfig) -> IndexedCorpus:
    return open_indexed_corpus(config)


@pytest.fixture(scope="module")
def server(config: RunConfig, indexed: IndexedCorpus) -> Iterator[str]:
    record = start_sandbox(config, print)
    yield record.address
    stop_sandbox(config.paths)
    assert find_sandbox(config.paths) is None


def has_ended(pid: int) -> bool:
    """Say whether a process is gone, or only waits for its parent to notice."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_every_tool_and_the_embedder_through_a_live_server(config: RunConfig, indexed: IndexedCorpus, server: str) -> None:
    tools = sessions.SessionCorpus(indexed.corpus_digest, indexed.index_key, config.retrieval.top_k)
    findings = check_tools(with_token(config.sandbox, config.paths), tools, indexed.toolbox)
    assert [finding for finding in findings if not finding.passed] == []
    assert {"embedder", "search_pages", "view_sections", "read_section", "loop"} <= {finding.name for finding in findings}
    ranked = next(finding for finding in findings if finding.name == "embedder")
    assert ranked.found.startswith(("40 of 40", "39 of 40", "38 of 40"))


def test_an_index_that_is_not_there_is_an_outage_with_its_own_name(config: RunConfig, indexed: IndexedCorpus, server: str) -> None:
    from slmsearch.errors import IndexUnusableError
    from slmsearch.extensions.sandbox.client import SandboxClient

    client = SandboxClient(with_token(config.sandbox, config.paths), sessions.SessionCorpus(indexed.corpus_digest, "f" * 20, 3))
    (result,) = client.run(["print(1)"])
    client.close()
    assert isinstance(result, IndexUnusableError)


def test_an_episode_runs_its_programs_in_the_sandbox(config: RunConfig, indexed: IndexedCorpus, server: str) -> None:
    question = indexed.questions["train"][0]
    loop = f"for page_id, title in search_pages({question.question!r}):"
    program = f"<code>\n{loop}\n    print(page_id, len(view_sections(page_id)))\n</code>"
    sampler = ScriptedSampler(lambda _, results: program if not results else f"<answer>{question.answer}</answer>")
    limits = config.searcher.model_copy(update={"max_episode_tokens": 10_000})
    episodes = play_episodes([question] * 4, sampler, indexed.toolbox, limits, Sampling())
    assert [episode.stop_reason for episode in episodes] == [StopReason.ANSWERED] * 4
    assert len({episode.turns[0].result for episode in episodes}) == 1
    result = episodes[0].turns[0].result
    assert result is not None and result.served
    assert [line.split()[0] for line in result.text.splitlines()] == list(result.made[0].result.page_ids)
    assert len(episodes[0].calls) == 1 + config.retrieval.top_k
    assert check_sandbox(indexed.toolbox).passed


def test_a_second_server_is_refused(config: RunConfig, server: str) -> None:
    with pytest.raises(ServiceError, match="the sandbox is up already"):
        start_sandbox(config, print)


def test_a_killed_server_leaves_no_program_and_makes_episodes_fail(config: RunConfig, indexed: IndexedCorpus, server: str) -> None:
    record = find_sandbox(config.paths)
    assert record is not None
    children = psutil.Process(record.pid).children(recursive=True)
    assert len(children) >= WARM
    os.kill(record.pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    _, alive = psutil.wait_procs(children, timeout=10.0)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    assert find_sandbox(config.paths) is None
    question = indexed.questions["train"][0]
    limits = config.searcher.model_copy(update={"max_episode_tokens": 10_000})
    (episode,) = play_episodes([question], ScriptedSampler(lambda *_: "<code>print(1)</code>"), indexed.toolbox, limits, Sampling())
    assert episode.stop_reason is StopReason.FAILED
    assert episode.failure.startswith("sandbox: no sandbox answers at http://127.0.0.1:")
    assert not check_sandbox(indexed.toolbox).passed
    again = start_sandbox(config, print)
    assert again.address == record.address
    (episode,) = play_episodes([question], ScriptedSampler(lambda *_: "<code>print(1)</code>"), indexed.toolbox, limits, Sampling())
    assert episode.stop_reason is not StopReason.FAILED


def test_up_and_down_as_commands(isolated_environment: Path) -> None:
    port = free_port()

    def slmsearch(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flows", "sandbox", *arguments, "--json", "--sandbox.port", str(port)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    up = slmsearch("up")
    assert up.returncode == 0, up.stderr
    told = json.loads(up.stdout)
    assert answers(f"{told['address']}/health")
    second = slmsearch("up")
    assert second.returncode == 3
    assert "is up already" in json.loads(second.stdout)["error"]
    assert json.loads(slmsearch("down").stdout) == {"stopped": True}
    assert has_ended(told["pid"])
    assert not answers(f"{told['address']}/health")
    assert json.loads(slmsearch("down").stdout) == {"stopped": False}


BORROW = """
import sys, time
from pathlib import Path
from slmsearch.extensions.sandbox.configured import some_sandbox
from slmsearch.processes.ports import free_port
from flows.runtime.settings import load_config
config = load_config((), [f"--sandbox.port={free_port()}"])
with some_sandbox(config, Path(config.paths.data_dir) / "sandbox") as address:
    print(address, flush=True)
    time.sleep(600)
"""


def test_a_borrowed_server_ends_with_who_borrowed_it(isolated_environment: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", BORROW], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert answers(f"{address}/health")
    left = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    process.stdout.close()
    psutil.wait_procs(left, timeout=15.0)
    assert all(has_ended(child.pid) for child in left)


def test_without_an_engine_the_server_does_not_start(isolated_environment: Path, tmp_path: Path) -> None:
    for name in ("setpriv", "ldd"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/nonexistent")
    command = [sys.executable, "-m", "flows", "sandbox", "up", "--foreground", "--sandbox.port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("slmsearch: bubblewrap is missing, so no program is run; install it (Debian, Ubuntu: apt-get install bubblewrap")


def test_names_in_env(tmp_path: Path) -> None:
    environment = {"SANDBOX_PORT": "8765", "DOCKER_MEMORY_LIMIT": "1g", "DOCKER_CPU_LIMIT": "0.5"}
    sandbox = load_config(environment=environment).sandbox
    assert (sandbox.port, sandbox.docker_memory_limit, sandbox.docker_cpu_limit) == (8765, "1g", 0.5)
    assert sandbox_address(sandbox) == "http://127.0.0.1:8765"
    assert sandbox_address(SandboxConfig(base_url="http://127.0.0.1:1/")) == "http://127.0.0.1:1"


def test_a_small_world_stands_in_only_for_the_default() -> None:
    assert small_world(CorpusConfig()).world.pages < CorpusConfig().world.pages
    own = CorpusConfig.model_validate({"world": {"pages": 50}})
    assert small_world(own) == own


def test_the_record_of_another_process_is_not_believed(config: RunConfig, tmp_path: Path) -> None:
    from flows.ops.sandbox import SandboxRecord

    elsewhere = RunConfig.model_validate({"paths": {"data_dir": str(tmp_path)}})
    state_dir(elsewhere.paths).mkdir(parents=True)
    record = SandboxRecord(os.getpid(), started_s(psutil.Process()), "http://127.0.0.1:9", "bubblewrap", "log")
    path = state_dir(elsewhere.paths) / "server.json"
    path.write_text(json.dumps(vars(record)))
    assert find_sandbox(elsewhere.paths) == record
    path.write_text(json.dumps(vars(replace(record, started_at=1.0))))
    assert find_sandbox(elsewhere.paths) is None
    assert stop_sandbox(elsewhere.paths) is None
    assert not path.exists()
