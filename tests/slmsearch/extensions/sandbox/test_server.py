"""The server over HTTP, and its client."""

import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from slmsearch.config import PathsConfig, ProgramLimits, SandboxConfig
from slmsearch.environments.searcher.tools import NOTHING_PRINTED, render_outcome
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.errors import EmbedderError, IndexUnusableError, SandboxError, error_of
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap
from slmsearch.extensions.sandbox.checks import SCRIPTED_CORPUS, ScriptedTools, check_scripted
from slmsearch.extensions.sandbox.client import SandboxClient, with_token
from slmsearch.extensions.sandbox.execution import execute_program
from slmsearch.extensions.sandbox.server import Service, live_server, lower_limits
from slmsearch.extensions.sandbox.sessions import MAX_SESSIONS, SessionCorpus, Sessions

from .conftest import LIMITS, Kept  # type: ignore[import-not-found]

INDEXED = {"corpus": "0" * 20, "index": "0" * 20, "top_k": 3}


def best_weights_of() -> list[str]:
    """Name the threads of pools."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("sandbox_"))


def get(address: str, path: str, **options: Any) -> httpx.Response:
    return httpx.get(address + path, trust_env=False, **options)


def post(address: str, path: str, **options: Any) -> httpx.Response:
    return httpx.post(address + path, trust_env=False, timeout=60.0, **options)


def test_health_says_what_stands(service: tuple[Service, str]) -> None:
    health = get(service[1], "/health").json()
    assert health["status"] == "ok"
    assert health["engine"] == "bubblewrap"
    assert {"network", "syscalls", "identity", "root"} <= set(health["walls"])
    assert health["limits"]["calls"] == LIMITS.calls


def test_scripted_tools_alone(service: tuple[Service, str]) -> None:
    findings = check_scripted(SandboxConfig(base_url=service[1], limits=LIMITS))
    assert [finding for finding in findings if not finding.passed] == []
    assert len(findings) >= 5


def test_a_session_has_a_token_and_nobody_else_has(service: tuple[Service, str]) -> None:
    address = service[1]
    opened = [post(address, "/tools", json=INDEXED).json() for _ in range(2)]
    tokens = [{"Authorization": f"Bearer {one['token']}"} for one in opened]
    assert opened[0]["token"] != opened[1]["token"]
    one = {"program": "print(1)"}
    answer = post(address, "/execute", json={"program": "print(search_pages('x'))"}, headers=tokens[0]).json()
    assert answer["stdout"] == "[('x', 'Page of x')]\n"
    assert [call["argument"] for call in answer["calls"]] == ["x"]
    for headers in ({}, {"Authorization": "Bearer guess"}, {"Authorization": opened[0]["token"]}):
        assert post(address, "/execute", json=one, headers=headers).status_code == 401
        assert httpx.delete(f"{address}/tools", headers=headers, trust_env=False).status_code == 401
    httpx.delete(f"{address}/tools", headers=tokens[0], trust_env=False)
    assert post(address, "/execute", json=one, headers=tokens[0]).status_code == 401
    assert post(address, "/execute", json=one, headers=tokens[1]).status_code == 200


@pytest.mark.parametrize("change", [{"corpus": "../../etc"}, {"index": ""}, {"top_k": 0}, {"walls": []}, {"corpus": "0" * 200}])
def test_a_ground_is_checked(service: tuple[Service, str], change: dict[str, Any]) -> None:
    assert post(service[1], "/tools", json={**INDEXED, **change}).status_code == 422


def test_no_request_takes_a_wall_down(service: tuple[Service, str]) -> None:
    token = {"Authorization": f"Bearer {post(service[1], '/tools', json=INDEXED).json()['token']}"}
    for extra in ({"walls": []}, {"engine": "none"}, {"limits": {**LIMITS.model_dump(), "walls": []}}):
        assert post(service[1], "/execute", json={"program": "print(1)", **extra}, headers=token).status_code == 422


def test_a_page_of_another_name_is_refused(service: tuple[Service, str]) -> None:
    assert get(service[1], "/health", headers={"Host": "evil.example"}).status_code == 400


def test_a_client_may_lower_limits_and_not_raise_them(service: tuple[Service, str]) -> None:
    own = ProgramLimits(wall_s=5, memory_mb=256)
    assert lower_limits(own, None) == own
    assert lower_limits(own, ProgramLimits(wall_s=1, memory_mb=4096)) == own.model_copy(update={"wall_s": 1.0})
    client = SandboxClient(SandboxConfig(base_url=service[1]), SCRIPTED_CORPUS)
    asked = LIMITS.model_copy(update={"calls": 100, "output_chars": 3})
    answer = client.execute("for i in range(20): search_pages('x')", asked)
    assert "a program may make 8" in answer.error
    assert client.execute("print('abcdef')", asked).stdout.startswith("abc\n(the rest")
    client.close()


def test_results_as_the_policy_reads_them(client: SandboxClient) -> None:
    results = client.run(["print(search_pages('x')[0][1])", "print('a')\nread_section('')", "pass", "print('\\ud800')", "x" * 3000])
    assert all(isinstance(result, ToolResult) for result in results)
    texts = [(result.text, result.served) for result in results if isinstance(result, ToolResult)]
    assert texts[:4] == [
        ("Page of x", True),
        ("a\nerror: ToolError: empty argument (line 2)", False),
        (NOTHING_PRINTED, True),
        ("?", True),
    ]
    assert texts[4] == ("error: too long: 3000 characters, 2000 are allowed", False)
    first = results[0]
    assert isinstance(first, ToolResult)
    assert [(made.call, made.result.served, made.result.page_ids) for made in first.made] == [(ToolCall("search_pages", "x"), True, ("x",))]


def test_programs_of_a_turn_run_together_and_keep_their_order(client: SandboxClient) -> None:
    results = client.run([f"print({i})" for i in range(12)])
    assert [result.text for result in results if isinstance(result, ToolResult)] == [str(i) for i in range(12)]


def test_an_outcome_in_words() -> None:
    assert render_outcome("a\n\n", "") == "a"
    assert render_outcome("", "") == NOTHING_PRINTED
    assert render_outcome("", "x") == "error: x"
    assert render_outcome("a\n", "x") == "a\nerror: x"


def test_a_sandbox_that_is_down_says_how_to_start_it() -> None:
    client = SandboxClient(SandboxConfig(base_url="http://127.0.0.1:9"), SCRIPTED_CORPUS)
    (result,) = client.run(["print(1)"])
    assert isinstance(result, SandboxError)
    assert "slmsearch sandbox up" in str(result)
    client.close()


def test_another_server_is_recognised(service: tuple[Service, str]) -> None:
    client = SandboxClient(SandboxConfig(base_url=f"{service[1]}/elsewhere"), SCRIPTED_CORPUS)
    with pytest.raises(SandboxError, match="answered 404"):
        client.execute("print(1)")
    client.close()


def test_a_session_that_is_gone_is_opened_anew(service: tuple[Service, str], client: SandboxClient) -> None:
    assert client.execute("print(1)").stdout == "1\n"
    for token in list(service[0].sessions._sessions):
        service[0].sessions.close(token)
    assert client.execute("print(2)").stdout == "2\n"


def test_a_tool_that_is_down_fails_the_episode_under_its_own_name(engine: Any) -> None:
    class Broken(ScriptedTools):
        def serve_one(self, call: ToolCall) -> ToolResult:
            raise EmbedderError("the embedder does not answer")

    made = Service(SandboxConfig(limits=LIMITS), Kept(engine), lambda indexed: Broken(), warm=1)
    with live_server(made) as address:
        client = SandboxClient(SandboxConfig(base_url=address), SCRIPTED_CORPUS)
        broken, fine = client.run(["try:\n    search_pages('x')\nexcept BaseException:\n    print('mine')", "print(1)"])
        client.close()
    assert isinstance(broken, EmbedderError)
    assert str(broken) == "the embedder does not answer"
    assert isinstance(fine, ToolResult)


def test_tools_that_cannot_be_opened_are_named(engine: Any) -> None:
    def missing(indexed: SessionCorpus) -> Any:
        raise IndexUnusableError(f"no index version {indexed.index}")

    with live_server(Service(SandboxConfig(limits=LIMITS), Kept(engine), missing, warm=1)) as address:
        client = SandboxClient(SandboxConfig(base_url=address), SCRIPTED_CORPUS)
        with pytest.raises(IndexUnusableError, match="no index version 000"):
            client.execute("print(1)")
        client.close()


def test_errors_keep_their_boundary() -> None:
    assert type(error_of("embedder", "x", SandboxError)) is EmbedderError
    assert type(error_of("unheard of", "x", SandboxError)) is SandboxError


def test_a_server_without_a_working_engine_does_not_come_up(engine: Any) -> None:
    class Dead(Kept):  # type: ignore[misc]
        def start(self) -> Any:
            raise SandboxError("no user namespaces here")

    before = best_weights_of()
    with pytest.raises(SandboxError, match="no user namespaces here"):
        Service(SandboxConfig(), Dead(engine), lambda indexed: ScriptedTools(), warm=2)
    assert best_weights_of() == before


def test_sessions_are_few_and_the_oldest_go() -> None:
    opened: list[SessionCorpus] = []

    def open_tools(indexed: SessionCorpus) -> ScriptedTools:
        opened.append(indexed)
        return ScriptedTools()

    sessions = Sessions(open_tools)
    first = sessions.open(SCRIPTED_CORPUS)
    for _ in range(MAX_SESSIONS):
        sessions.open(SCRIPTED_CORPUS)
    assert len(sessions) == MAX_SESSIONS
    assert opened == [SCRIPTED_CORPUS]
    assert sessions.find(first.token) is None


def test_opening_tools_holds_up_no_other_session_and_happens_once() -> None:
    begun, may_end, opened = threading.Event(), threading.Event(), list[SessionCorpus]()

    def open_tools(indexed: SessionCorpus) -> ScriptedTools:
        opened.append(indexed)
        if indexed != SCRIPTED_CORPUS:
            begun.set()
            assert may_end.wait(60)
        return ScriptedTools()

    sessions = Sessions(open_tools)
    first, slow = sessions.open(SCRIPTED_CORPUS), replace(SCRIPTED_CORPUS, index="f" * 20)
    with ThreadPoolExecutor(3) as threads:
        try:
            waiting = [threads.submit(sessions.open, slow) for _ in range(2)]
            assert begun.wait(60)
            assert threads.submit(sessions.find, first.token).result(timeout=10) is first
        finally:
            may_end.set()
        assert {one.result().token for one in waiting} < {*sessions._sessions}
    assert opened == [SCRIPTED_CORPUS, slow]


def test_tools_that_could_not_be_opened_are_tried_again() -> None:
    tries = iter([SandboxError("not now"), None])

    def open_tools(indexed: SessionCorpus) -> ScriptedTools:
        if (error := next(tries)) is not None:
            raise error
        return ScriptedTools()

    sessions = Sessions(open_tools)
    with pytest.raises(SandboxError, match="not now"):
        sessions.open(SCRIPTED_CORPUS)
    assert isinstance(sessions.open(SCRIPTED_CORPUS).tools, ScriptedTools)


def test_who_has_no_token_opens_no_session(engine: Bubblewrap, tmp_path: Path) -> None:
    config = with_token(SandboxConfig(), PathsConfig(data_dir=str(tmp_path)))
    assert config.token is not None
    asked = asdict(SCRIPTED_CORPUS)
    with live_server(Service(config, Kept(engine), lambda indexed: ScriptedTools(), warm=1)) as address:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp4"}):
            assert post(address, "/tools", json=asked, headers=headers).status_code == 401
        assert get(address, "/health").json()["sessions"] == 0
        with pytest.raises(SandboxError, match=r"set sandbox\.token"):
            SandboxClient(SandboxConfig(base_url=address), SCRIPTED_CORPUS).execute("print(1)")
        client = SandboxClient(config.model_copy(update={"base_url": address}), SCRIPTED_CORPUS)
        assert client.execute("print(1)").stdout == "1\n"
        client.close()


def test_the_token_is_made_once_in_a_file_of_its_user_and_goes_to_no_other_machine(tmp_path: Path) -> None:
    paths = PathsConfig(data_dir=str(tmp_path / "data"))
    with ThreadPoolExecutor(8) as threads:
        made = threads.map(with_token, [SandboxConfig()] * 32, [paths] * 32)
        tokens = {config.token.get_secret_value() for config in made if config.token}
    assert len(tokens) == 1
    (file,) = (tmp_path / "data" / "sandbox").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert with_token(SandboxConfig(base_url="http://other.example:8700"), paths).token is None
    assert with_token(SandboxConfig(token=SecretStr("given")), paths).token == SecretStr("given")


def test_slow_tools_hold_a_program_no_longer_than_the_time_for_both(engine: Bubblewrap) -> None:
    served = []

    def serve(call: ToolCall) -> ToolResult:
        served.append(call)
        time.sleep(0.5)
        return ToolResult("p1: Title", True, ("p1",))

    instance = engine.start()
    instance.wait_until_ready(60.0)
    try:
        with pytest.raises(SandboxError, match=r"tools of a program took .* together"):
            execute_program(
                instance, "while True: search_pages('x')", serve, LIMITS.model_copy(update={"wall_s": 0.6, "calls": 32}), longest_s=2.0
            )
    finally:
        instance.terminate()
    assert len(served) <= 5, "not the 32 calls that it may make"
