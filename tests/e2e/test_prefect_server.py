"""The server that a run has for itself: what strangers ask of it, and what pages of other origins do, is refused before Prefect sees it."""

import json
import os
import socket
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from flows.runtime.api import Api, prefect_api
from slmsearch.config import PathsConfig

EVIL = "http://evil.example:28999"
MADE = b'{"name": "made-by-a-stranger"}'
SOCKETS = ("/events/in", "/events/out", "/logs/out", "/task_runs/subscriptions/scheduled", "/work_pools/gpu/workers/connect")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
            patch.delenv(name, raising=False)
        patch.setenv("PREFECT_HOME", str(home / "prefect"))
        with prefect_api(PathsConfig(data_dir=str(home / "data"), mlruns_dir=str(home / "mlruns"))) as found:
            yield found


def client(api: Api) -> httpx.Client:
    user, _, word = api.password.partition(":")
    return httpx.Client(base_url=api.url, auth=(user, word), timeout=60)


def flow_names(api: Api) -> list[str]:
    with client(api) as asked:
        return [flow["name"] for flow in asked.post("/flows/filter", json={}).raise_for_status().json()]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/admin/version", {}),
        ("POST", "/deployments/filter", {"Content-Type": "application/json"}),
        ("POST", "/flows/", {}),
        ("POST", "/flows/", {"Content-Type": "application/json"}),
        ("GET", "/csrf-token?client=a", {}),
        ("GET", "/admin/version", {"Authorization": "Basic c2xtc2VhcmNoOg=="}),
        ("GET", "/admin/version", {"Authorization": "Bearer a"}),
        ("GET", "/flows/health", {}),
    ],
)
def test_without_the_password_nothing_is_told_and_nothing_done(api: Api, method: str, path: str, headers: dict[str, str]) -> None:
    answer = httpx.request(method, api.url + path, headers=headers, content=MADE if method == "POST" else None, timeout=60)
    assert (answer.status_code, answer.json()) == (401, {"exception_message": "Unauthorized"})
    assert flow_names(api) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:28999"}, 400),
        ({"Host": "127.0.0.1.evil.example"}, 400),
        ({"Host": "prefect-in-memory"}, 400),
        ({"Host": ""}, 400),
        ({"Origin": EVIL}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 400),
        ({"Sec-Fetch-Dest": "iframe"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["", "/health", "/admin/version", "/flows/", "/../", "/../docs"])
def test_a_page_of_another_origin_is_refused_whatever_it_knows(api: Api, path: str, headers: dict[str, str], status: int) -> None:
    with client(api) as asked:
        read = asked.get(api.url + path, headers=headers)
        written = asked.post(api.url + path, headers=headers, content=MADE)  # as a browser sends it without asking first
        before = asked.options(api.url + path, headers={**headers, "Access-Control-Request-Method": "DELETE"})
    assert [answer.status_code for answer in (read, written, before)] == [status] * 3
    assert not any("access-control-allow-origin" in answer.headers for answer in (read, written, before))
    assert flow_names(api) == []


def test_its_user_and_its_own_pages_are_served(api: Api) -> None:
    origin = api.url.removesuffix("/api")
    with client(api) as asked:
        assert asked.get("/admin/version").status_code == 200
        assert asked.post("/flows/filter", json={}, headers={"Origin": origin}).status_code == 200
        forwarded = {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Dest": "empty"}
        assert asked.post("/flows/filter", json={}, headers=forwarded).status_code == 200
    assert httpx.get(f"{api.url}/health").json() is True


def greet(api: Api, path: str, token: str | None, origin: str | None = None, subprotocol: bool = True) -> str:
    """Say what the server of a web socket answers: a status, a message, or how it closed."""
    names = [Subprotocol("prefect")] if subprotocol else None
    try:
        with connect(api.url.replace("http:", "ws:") + path, subprotocols=names, origin=Origin(origin) if origin else None) as opened:
            opened.send(json.dumps({"type": "auth", "token": token}))
            return str(json.loads(opened.recv(30))["type"])
    except InvalidStatus as refused:
        return str(refused.response.status_code)
    except ConnectionClosed as closed:
        return f"closed {closed.rcvd.code if closed.rcvd else ''}"


@pytest.mark.parametrize("path", SOCKETS)
def test_web_sockets_ask_as_well(api: Api, path: str) -> None:
    assert greet(api, path, None) == greet(api, path, "slmsearch:guessed") == "closed 1008"
    assert greet(api, path, api.password, subprotocol=False) == "403"
    assert greet(api, path, api.password, origin=EVIL) == greet(api, path, api.password, origin="null") == "403"
    assert greet(api, path, api.password, origin=api.url.removesuffix("/api")) == greet(api, path, api.password) == "auth_success"


def test_a_web_socket_of_another_name_is_refused(api: Api) -> None:
    port = httpx.URL(api.url).port
    with socket.create_connection(("127.0.0.1", port)) as connection, pytest.raises(InvalidStatus, match="400"):
        connect(f"ws://evil.example:{port}/api/events/in", sock=connection, subprotocols=[Subprotocol("prefect")])


def test_its_password_is_this_start_s_alone_and_leaves_with_it(api: Api) -> None:
    user, _, word = api.password.partition(":")
    assert (user, len(word)) == ("slmsearch", 43)
    assert word not in repr(api)
    assert os.environ["PREFECT_API_AUTH_STRING"] == api.password
