"""The log of feedback through kills, torn tails and several writers; its endpoint; what the command lists."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from slmsearch.errors import ServiceError
from slmsearch.serving.api import feedback
from slmsearch.serving.api.app import make_app
from slmsearch.serving.api.feedback import Feedback, FeedbackLog, LogFullError, to_line
from slmsearch.serving.api.searcher_service import SearcherService
from tests.flows.test_commands import Invoke, invoke
from tests.slmsearch.serving.api.fakes import served, settings
from tests.slmsearch.serving.api.test_service import counted, error, run

__all__ = ["invoke"]
TEXT = st.text(max_size=40)
RECORDS = st.builds(
    Feedback,
    question=TEXT,
    answer=st.none() | TEXT,
    verdict=st.sampled_from(["right", "wrong"]),
    correct_answer=st.none() | TEXT,
    source=st.none() | TEXT,
    completion=st.none() | TEXT,
)
WRONG = {"question": "When?", "answer": "1500", "verdict": "wrong"}
KILLS = 20
WRITER = """
import sys
from pathlib import Path
from slmsearch.serving.api.feedback import Feedback, FeedbackLog
log, round = FeedbackLog(Path(sys.argv[1])), sys.argv[2]
for number in range(10**9):
    given = Feedback(f"question {round}.{number} " + "ü\\n" * (number % 900), "a", "wrong", id=f"{round}.{number}")
    log.append(given)
    print(given.id, flush=True)
"""


@hypothesis(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(RECORDS, st.integers(0, 10_000)), max_size=6))
def test_what_was_accepted_is_read_whatever_torn_tails_lie_between(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    log, torn = FeedbackLog(tmp_path_factory.mktemp("log") / "feedback.jsonl"), 0
    for record, cut in steps:
        with log.path.open("ab") as file:  # a writer that was killed on the way
            line = to_line(record)
            torn += bool(file.write(line[: cut % (len(line) - 1)]))
        log.append(record)
    found = log.read()
    assert (found.records, found.unreadable) == (tuple(record for record, _ in steps), torn)
    for number, place in enumerate(found.places):
        assert log.read(place).records == found.records[number:]
    assert log.read(log.size).records == ()


def test_a_whole_record_without_its_end_of_line_counts_and_swallows_nothing(tmp_path: Path) -> None:
    log, first, second = FeedbackLog(tmp_path / "log"), Feedback("a?", None, "wrong"), Feedback("b?\u2028\ud800", "x", "right")
    log.path.write_bytes(to_line(first)[:-1])
    assert log.read().records == (first,)
    log.append(second)
    assert [record.question for record in log.read().records] == ["a?", "b?\u2028?"], "a lone surrogate cannot be kept"


@pytest.mark.parametrize(
    "line", [b"\xff", b"{}", b"[]", b"1", b'{"question": 1, "answer": null, "verdict": "right"}', b"[" * 100_000, b'{"verdict": NaN}']
)
def test_lines_that_are_no_records_are_counted(tmp_path: Path, line: bytes) -> None:
    log = FeedbackLog(tmp_path / "log")
    log.path.write_bytes(line + b"\n")
    log.append(Feedback("a?", "b", "right"))
    assert (len(log.read().records), log.read().unreadable) == (1, 1)


def test_writers_in_threads_and_logs_lose_nothing(tmp_path: Path) -> None:
    logs = [FeedbackLog(tmp_path / "new" / "log") for _ in range(4)]
    given_ = [Feedback(f"question {number} " + "x" * number, "a", "right") for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: logs[pair[0] % 4].append(pair[1]), enumerate(given_)))
    found = logs[0].read()
    assert found.unreadable == 0 and sorted(found.records, key=lambda one: one.id) == sorted(given_, key=lambda one: one.id)
    assert logs[0].path.stat().st_mode & 0o777 == 0o600


def test_twenty_kills_lose_and_garble_nothing(tmp_path: Path) -> None:
    path, accepted = tmp_path / "log", []
    for number in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            accepted.append(child.stdout.readline().strip())
            time.sleep(0.003 * number)
            child.kill()
            accepted += [line.strip() for line in child.stdout if line.endswith("\n")]
    found = FeedbackLog(path).read()
    held = {record.id: record for record in found.records}
    assert len(accepted) >= KILLS and set(accepted) <= set(held)
    assert len(held) == len(found.records) <= len(accepted) + KILLS
    for record in found.records:
        count = int(record.id.partition(".")[2]) % 900
        assert record.question == f"question {record.id} " + "ü\n" * count


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, record = FeedbackLog(tmp_path / "log"), Feedback("a?", "b", "right")
    log.append(record)
    whole, write = log.path.read_bytes(), os.write
    monkeypatch.setattr(feedback.os, "write", lambda descriptor, line: write(descriptor, line[:10]))  # the disk is full
    with pytest.raises(ServiceError, match="10 of"):
        log.append(record)
    monkeypatch.setattr(feedback.os, "write", write)
    assert log.path.read_bytes() == whole
    monkeypatch.setattr(feedback, "MAX_LOG_BYTES", len(whole) + 10)
    with pytest.raises(LogFullError, match="move it away"):
        log.append(record)
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match="cannot be written"):
        FeedbackLog(tmp_path / "file" / "log").append(record)


class Post:
    """Sends feedback to a service that plays nothing."""

    def __init__(self, log: FeedbackLog | None, token: str | None = None) -> None:
        self.service = SearcherService(served(), settings())
        self.app = make_app(self.service, token, log)

    def __call__(self, body: Any, **headers: str | bytes) -> httpx.Response:
        async def talk() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                return await http.post("/v1/feedback", content=content, headers={"Content-Type": "application/json"})

        return run(talk())


def test_the_endpoint_answers_when_it_is_kept(tmp_path: Path) -> None:
    log = FeedbackLog(tmp_path / "log")
    post = Post(log)
    reply = post({**WRONG, "correct_answer": " 1501 ", "source": "p1:history", "completion": "chatcmpl-1", "more": 1})
    assert reply.status_code == 200 and reply.json()["object"] == "feedback"
    (kept,) = log.read().records
    assert (kept.id, kept.created) == (reply.json()["id"], reply.json()["created"])
    assert kept == Feedback("When?", "1500", "wrong", "1501", "p1:history", "chatcmpl-1", kept.id, kept.created)
    assert counted(post.service, "feedback_total", verdict="wrong") == 1
    assert post({**WRONG, "answer": None, "correct_answer": "  "}).status_code == 200
    assert log.read().records[-1].correct_answer is None


@pytest.mark.parametrize(
    ("change", "status", "code", "param"),
    [
        ({"verdict": "maybe"}, 400, "invalid_request", "verdict"),
        ({"verdict": None}, 400, "invalid_request", "verdict"),
        ({"question": "  "}, 400, "invalid_request", None),
        ({"question": "x" * 2001}, 400, "string_above_max_length", "question"),
        ({"answer": "x" * 4001}, 400, "string_above_max_length", "answer"),
        ({"correct_answer": "x" * 4001}, 400, "string_above_max_length", "correct_answer"),
        ({"source": "x" * 2001}, 400, "string_above_max_length", "source"),
        ({"correct_answer": ["x"]}, 400, "invalid_request", "correct_answer"),
        ({"verdict": "right", "correct_answer": "1501"}, 400, "invalid_request", None),
        ({"verdict": "right", "answer": None}, 400, "invalid_request", None),
        (b"{", 400, "invalid_request", None),
        (b'{"question": "\\ud800", "answer": "a", "verdict": "wrong"}', 400, "invalid_request", None),
        (b"x" * (1 << 20 | 1), 413, "request_too_large", None),
    ],
)
def test_what_is_wrong_is_said_and_not_kept(tmp_path: Path, change: Any, status: int, code: str, param: str | None) -> None:
    log = FeedbackLog(tmp_path / "log")
    reply = Post(log)(change if isinstance(change, bytes) else {**WRONG, **change})
    assert error(reply)[::2] == (status, code) and reply.json()["error"]["param"] == param
    assert not log.path.exists()


def test_a_log_that_cannot_be_written_is_an_error_of_openais_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    reply = Post(FeedbackLog(tmp_path / "file" / "log"))(WRONG)
    assert error(reply) == (503, "server_error", "service_unavailable") and reply.headers["retry-after"]
    monkeypatch.setattr(feedback, "MAX_LOG_BYTES", 10)
    assert error(Post(FeedbackLog(tmp_path / "log"))(WRONG)) == (507, "server_error", "feedback_full")
    assert error(Post(None)(WRONG))[::2] == (404, "not_found")


def test_feedback_and_page_ask_for_the_token_and_no_page_of_another_origin_has_it_sent(tmp_path: Path) -> None:
    log, basic = FeedbackLog(tmp_path / "log"), httpx.BasicAuth("any:name", "s3cret")
    name = next(basic.auth_flow(httpx.Request("GET", "http://x"))).headers["Authorization"]
    post = Post(log, "name:s3cret")  # what stands behind the first colon is the password
    assert post(WRONG).headers["www-authenticate"] == "Bearer" and post(WRONG).status_code == 401
    assert post(WRONG, Authorization=name).status_code == 200
    assert post(WRONG, Authorization=name, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    for site in ("cross-site", "same-site"):
        assert post(WRONG, Authorization=name, **{"Sec-Fetch-Site": site}).status_code == 401
    for broken in ("Basic", "Basic !", "Basic czNjcmV0", "Basic ü".encode()):
        assert post(WRONG, Authorization=broken).status_code == 401
    assert len(log.read().records) == 2

    async def talk() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(post.app), base_url="http://searcher.example") as http:
            for path in ("/", "/page/page.js", "/page/page.css", "/page/nope"):
                reply = await http.get(path)
                assert reply.status_code == 401 and reply.headers["www-authenticate"].startswith("Basic realm="), path
            held = {path: await http.get(path, headers={"Authorization": name}) for path in ("/", "/page/page.js", "/page/nope")}
        assert [reply.status_code for reply in held.values()] == [200, 200, 404]
        assert held["/"].headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in held["/"].headers["content-security-policy"]
        assert all(reply.headers["x-content-type-options"] == "nosniff" for reply in held.values())

    run(talk())


def test_the_command_lists_what_was_given(invoke: Invoke, tmp_path: Path) -> None:
    where = ("--paths.data_dir", str(tmp_path))
    code, out, _ = invoke("corrections", *where)
    assert (code, out.strip()) == (0, "nothing was said of an answer yet")
    log = FeedbackLog(tmp_path / "feedback.jsonl")
    log.append(Feedback("When was\nBrixa founded?\x1b[2J", "1500", "wrong", "1501", "p1:history", created=0))
    with log.path.open("ab") as file:
        file.write(b'{"torn')
    code, out, err = invoke("corrections", *where)
    assert code == 0 and "1 of the lines" in err and "\x1b" not in out
    assert "wrong  1970-01-01 00:00 UTC  When was Brixa founded?" in out and "correct   1501" in out
    code, out, _ = invoke("corrections", "--json", *where)
    told = json.loads(out)
    assert (told["unreadable"], told["corrections"][0]["correct_answer"], told["log"]) == (1, "1501", str(log.path))
