"""`slmsearch bench service`: a served searcher under load, with bad requests, and when its model process is killed.

The process is the one of `slmsearch serve searcher`, on a port and with a token of its own; it records no traces. Its clients are threads
of this process, which shares the machine with it. Five parts follow each other: questions one at a time, and from `CLIENTS` clients at
once, `ROUNDS` times in turn; more of these, while memory is measured; bad requests (`bad_requests.py`); and questions in the midst of which
the process that plays is killed with SIGKILL, `ROUNDS` times.

A question that has another status than 200, or no reply, has failed. Memory is the RSS of all processes, so that what they share counts
several times; `memory_growth_frac` compares the medians of the first and the last tenth of the samples. `together_ratio` is the median of
those of the rounds. `kill_next_success_s` are the times from a kill to the first answer of a question that was asked after it.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil

from slmsearch.errors import ServiceError
from slmsearch.extensions.bench.bad_requests import BadRequest, BadRequests
from slmsearch.extensions.bench.result import Result, Say, describe_machine, tabulate
from slmsearch.http_client import answers, make_client
from slmsearch.processes.child import ChildProcess, ProcessSettings
from slmsearch.processes.ports import free_port

ALONE, TOGETHER, LONG, BAD, KILLED = 40, 200, 2000, 1000, 200
"""Number of questions of each part or round, and of bad requests."""
ROUNDS = 5
CLIENTS = 16
START_SECONDS = 600.0
"""Time limit for the service to be ready, the build of an index included."""
SLACK_SECONDS = 5.0
"""Time after the deadline at which a missing reply counts as a hang."""
SAMPLE_SECONDS = 0.2
HANGS, NO_REPLY = "hangs", "no_reply"
FIGURES = {"p50, s": "{p50_s:.2f}", "p95, s": "{p95_s:.2f}", "p99, s": "{p99_s:.2f}", "questions/s": "{questions_per_s:.2f}"}
COLUMNS = {"": "{part}", "questions": "{questions}", "failed": "{failed}", **FIGURES}
NOTES = (
    "{together_ratio:.2f} times as many questions/s from {clients} clients as from one (of {together_ratios}); "
    "memory grew by {memory_growth_frac:.1%}",
    "{bad_requests} bad requests: {bad_5xx} of status 5xx, {bad_hangs} hung, {bad_no_reply} had no reply; token in the log: {token_in_log}",
    "kills: {kill_failed} of {kill_questions} failed, {kill_retryable} of them retryable; the next success after {kill_next_success_s} s",
)


@dataclass(frozen=True, slots=True)
class ServedReply:
    """Result of a request; times are of `time.monotonic`."""

    sent: float
    ended: float
    status: str
    """HTTP status, or `HANGS`, or `NO_REPLY`."""
    retryable: bool = False
    """True for a 503 with a retry time."""


class ServiceTarget:
    """The measured service."""

    def __init__(self, flags: Sequence[str], token_variable: str, deadline_s: float, log: Path) -> None:
        """Start it with the arguments of `run_service`."""
        self.token, self.log, port = secrets.token_hex(16), log, free_port()
        self._origin, self._started = f"http://127.0.0.1:{port}", time.monotonic()
        command = ["-m", "flows", "serve", "searcher", "--port", str(port), *flags]
        self._child = ChildProcess("the service", command, log, ProcessSettings({token_variable: self.token}, same_code=True))
        limits = httpx.Limits(max_connections=None, keepalive_expiry=1.0)  # before the server closes what is idle
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = make_client(deadline_s + SLACK_SECONDS, base_url=self._origin, headers=headers, limits=limits, trust_env=False)

    def close(self) -> None:
        """Stop it."""
        self.http.close()
        self._child.stop()

    def wait(self) -> float:
        """Wait until it is ready; return the seconds since its start.

        Raises:
            ServiceError: it is not.
        """
        while not answers(f"{self._origin}/ready"):
            if not self._child.is_alive or time.monotonic() - self._started > START_SECONDS:
                said = self.log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
                raise ServiceError(f"the service is not ready: {said or 'it said nothing'}; see {self.log}")
            time.sleep(SAMPLE_SECONDS)
        return time.monotonic() - self._started

    def ask(self, question: str) -> ServedReply:
        """Ask it a question."""
        return self._send("POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": question}]})

    def send(self, request: BadRequest) -> ServedReply:
        """Send a request unchanged."""
        return self._send(request.method, request.path, content=request.content, headers=dict(request.headers))

    def _send(self, method: str, path: str, **request: Any) -> ServedReply:
        sent, status = time.monotonic(), NO_REPLY
        try:
            reply = self.http.request(method, path, **request)
            return ServedReply(sent, time.monotonic(), str(reply.status_code), reply.status_code == 503 and "retry-after" in reply.headers)
        except httpx.TimeoutException:
            status = HANGS
        except httpx.TransportError:
            pass
        return ServedReply(sent, time.monotonic(), status)

    def measure_mib(self) -> float:
        """Return the RSS of all its processes."""
        process, total = psutil.Process(self._child.pid), 0
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
        return float(total / 2**20)

    def kill_player(self) -> float:
        """Kill the process that plays, the oldest of its children; return the time."""
        min(psutil.Process(self._child.pid).children(), key=lambda child: (child.create_time(), child.pid)).kill()
        return time.monotonic()


def run_service(flags: Sequence[str], token_variable: str, deadline_s: float, texts: Sequence[str], log: Path, say: Say) -> Result:
    """Start the service, measure it, and stop it.

    Args:
        flags: arguments of `slmsearch serve searcher`.
        token_variable: environment variable of its token.
        deadline_s: time it gives a question.
        texts: questions, asked in turn and from the beginning again.
        log: file for its output.
        say: receives a line at the start of each part.

    Raises:
        ServiceError: it does not start, or does not answer.
    """
    log.unlink(missing_ok=True)
    with closing(ServiceTarget(flags, token_variable, deadline_s, log)) as target:
        start_s = target.wait()
        say(f"ready after {start_s:.1f} s; {ALONE} questions one at a time and {TOGETHER} from {CLIENTS} clients, {ROUNDS} times")
        _play(target, texts, ALONE, CLIENTS)  # warms up
        rounds = [(_play(target, texts, ALONE, 1), _play(target, texts, TOGETHER, CLIENTS)) for _ in range(ROUNDS)]
        say(f"{LONG} questions, and memory")
        long, memory = _measure_memory(target, texts)
        say(f"{BAD} bad requests")
        bad = BadRequests(target.http.get("/openapi.json").json(), target.token, seed=0)
        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = Counter(reply.status for reply in pool.map(target.send, [bad.make() for _ in range(BAD)]))
        say(f"{KILLED} questions and a kill, {ROUNDS} times")
        kills = [_kill_in_the_midst(target, texts) for _ in range(ROUNDS)]
    alone, together = zip(*rounds, strict=True)
    ratios = [round(measure_speed(several) / measure_speed(one), 3) for one, several in rounds]
    parts = {name: summarise(played) for name, played in (("alone", alone), ("together", together), ("long", (long,)))}
    values = {
        "start_s": round(start_s, 2),
        "clients": CLIENTS,
        **{f"{name}_{figure}": value for name, part in parts.items() for figure, value in part.items()},
        "together_ratio": median(ratios),
        "together_ratios": ratios,
        **memory,
        "bad_requests": BAD,
        "bad_5xx": sum(number for status, number in statuses.items() if status.startswith("5")),
        "bad_hangs": statuses[HANGS],
        "bad_no_reply": statuses[NO_REPLY],
        "bad_statuses": dict(sorted(statuses.items())),
        "token_in_log": target.token in log.read_text(encoding="utf-8", errors="replace"),
        **_sum_up(kills),
    }
    machine = describe_machine("torch", "uvicorn")
    table = tabulate(COLUMNS, ({"part": name, **part} for name, part in parts.items()))
    return Result({**values, "machine": asdict(machine)}, (table,), (*(note.format(**values) for note in NOTES), str(machine)))


def _play(target: ServiceTarget, texts: Sequence[str], count: int, clients: int) -> list[ServedReply]:
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(target.ask, islice(cycle(texts), count)))


def _measure_memory(target: ServiceTarget, texts: Sequence[str]) -> tuple[list[ServedReply], dict[str, float]]:
    samples, over = [target.measure_mib()], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            samples.append(target.measure_mib())

    with ThreadPoolExecutor(1) as watcher:
        watching = watcher.submit(sample)
        try:
            replies = _play(target, texts, LONG, CLIENTS)
        finally:
            over.set()
        watching.result()
    tenth = -(-len(samples) // 10)
    first, last = median(samples[:tenth]), median(samples[-tenth:])
    return replies, {
        "memory_first_mib": round(first, 1),
        "memory_last_mib": round(last, 1),
        "memory_growth_frac": round(last / first - 1, 4),
    }


def _kill_in_the_midst(target: ServiceTarget, texts: Sequence[str]) -> tuple[list[ServedReply], float | None]:
    """Return the replies to questions, and the seconds from the kill to the next success."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        asked = [pool.submit(target.ask, text) for text in islice(cycle(texts), KILLED)]
        for _ in islice(as_completed(asked), KILLED // 4):
            pass
        killed = target.kill_player()
    replies = [one.result() for one in asked]
    later = (reply for reply in (*replies, target.ask(texts[0])) if reply.status == "200" and reply.sent > killed)
    return replies, min((round(reply.ended - killed, 2) for reply in later), default=None)


def _sum_up(kills: Sequence[tuple[list[ServedReply], float | None]]) -> dict[str, object]:
    replies = list(chain.from_iterable(replies for replies, _ in kills))
    failed = [reply for reply in replies if reply.status != "200"]
    return {
        "kill_questions": len(replies),
        "kill_failed": len(failed),
        "kill_retryable": sum(reply.retryable for reply in failed),
        "kill_next_success_s": [success_s for _, success_s in kills],
    }


def measure_speed(replies: Sequence[ServedReply]) -> float:
    """Return the questions a second of one part or round.

    Raises:
        ServiceError: nothing was answered.
    """
    answered = sum(reply.status == "200" for reply in replies)
    if not answered:
        raise ServiceError(f"none of {len(replies)} questions was answered: {dict(Counter(reply.status for reply in replies))}")
    return answered / (max(reply.ended for reply in replies) - min(reply.sent for reply in replies))


def summarise(rounds: Sequence[Sequence[ServedReply]]) -> dict[str, float]:
    """Return number, failures and seconds of all rounds of a part, and the median of their speeds.

    Raises:
        ServiceError: nothing was answered in one of them.
    """
    speed = round(median(map(measure_speed, rounds)), 3)
    replies = list(chain.from_iterable(rounds))
    seconds = [reply.ended - reply.sent for reply in replies if reply.status == "200"]
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(seconds, (50, 95, 99)))
    counts = {"questions": len(replies), "failed": len(replies) - len(seconds)}
    return {**counts, "p50_s": p50, "p95_s": p95, "p99_s": p99, "questions_per_s": speed}
