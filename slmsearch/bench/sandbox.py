"""`slmsearch bench sandbox`: how long a program takes in the sandbox, and how many of them a second.

Each program makes three tool calls over a real index, through the real server and its engine, and every one gets a fresh interpreter.
Each is asked once before, so that the embedder answers queries from memory, as it mostly does in training; what is measured is the
sandbox. Latency is taken by one client, one program after the other, so that instances are used up as fast as they can be asked for;
throughput by several clients.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from statistics import median

from slmsearch.bench.result import Result, Say, describe_machine
from slmsearch.config import SandboxConfig
from slmsearch.environments.indexed_corpus import IndexedCorpus
from slmsearch.errors import SandboxError
from slmsearch.report.tables import Table
from slmsearch.sandbox import sessions
from slmsearch.sandbox.client import SandboxClient

PAGES = 100
"""Pages whose titles are searched for."""
PROGRAM = """
page_id, title = search_pages({title!r})[0]
section_id, heading = view_sections(page_id)[-1]
print(title, heading, len(read_section(section_id)))
"""
BARS = {"p50_ms": 25.0, "p99_ms": 150.0, "programs_per_s": 40.0}


def run_sandbox(config: SandboxConfig, indexed: IndexedCorpus, programs: int, clients: int, say: Say) -> Result:
    """Measure.

    Args:
        config: address and limits of a server that is up.
        indexed: corpus and index, which the server opens as well.
        programs: programs of each measurement.
        clients: how many ask at the same time in the second.
        say: told what is being done.

    Raises:
        SandboxError: a program ended in an error.
    """
    pages = list(indexed.toolbox.library.pages())
    texts = [PROGRAM.format(title=page.title) for page in pages[:: max(1, len(pages) // PAGES)][:PAGES]]
    tools = sessions.IndexedCorpus(indexed.corpus_digest, indexed.index_key, indexed.toolbox.top_k)
    callers = [SandboxClient(config, tools) for _ in range(clients)]
    say(f"warming up with {len(texts)} programs")
    for text in texts:
        _run(callers[0], text)
    say(f"{programs} programs, one after the other")
    latencies = [_run(callers[0], texts[i % len(texts)]) for i in range(programs)]
    say(f"{programs} programs from {clients} clients")
    seconds = _run_together(callers, [texts[i % len(texts)] for i in range(programs)])
    for caller in callers:
        caller.close()
    machine, per_s = describe_machine("fastapi"), programs / seconds
    p50, p99, longest = (
        1000 * at for at in (median(latencies), sorted(latencies)[min(programs - 1, programs * 99 // 100)], max(latencies))
    )
    values = {
        "machine": asdict(machine),
        "engine": config.engine,
        "programs": programs,
        "calls_per_program": 3,
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": longest,
        "sequential_per_s": programs / sum(latencies),
        "clients": clients,
        "programs_per_s": per_s,
        "bars": BARS,
    }
    rows = (
        ("one client, median", f"{p50:.1f} ms", f"at most {BARS['p50_ms']:.0f} ms"),
        ("one client, 99th percentile", f"{p99:.1f} ms", f"at most {BARS['p99_ms']:.0f} ms"),
        (f"{clients} clients", f"{per_s:.0f} programs/s", f"at least {BARS['programs_per_s']:.0f} programs/s"),
    )
    note = f"{programs} programs of 3 tool calls each, queries asked before; {config.engine}"
    return Result(values, (Table(("", "measured", "bar"), rows),), (note, f"{machine}"))


def _run(client: SandboxClient, program: str) -> float:
    started = time.perf_counter()
    came_to = client.execute(program)
    seconds = time.perf_counter() - started
    if came_to.error or len(came_to.calls) != 3:
        raise SandboxError(f"a program of the benchmark ended in {came_to.error or came_to.calls}; see the server's log")
    return seconds


def _run_together(clients: Sequence[SandboxClient], programs: Sequence[str]) -> float:
    """Let each client run its share, one program after the other; return the seconds of all."""
    shares = [(client, programs[number :: len(clients)]) for number, client in enumerate(clients)]
    with ThreadPoolExecutor(len(clients)) as threads:
        started = time.perf_counter()
        list(threads.map(lambda share: [_run(share[0], program) for program in share[1]], shares))
        return time.perf_counter() - started
