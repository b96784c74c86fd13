"""Programs in real instances: what they can do, and what ends them."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slmsearch.config import LimitsConfig, ProgramLimits
from slmsearch.environments.searcher.tools import READ, SEARCH, VIEW
from slmsearch.episodes.episode import ToolCall, ToolResult
from slmsearch.errors import IndexUnusableError
from slmsearch.extensions.sandbox.bubblewrap import Bubblewrap
from slmsearch.extensions.sandbox.checks import ScriptedTools
from slmsearch.extensions.sandbox.execution import CUT, as_value, complete_limits, shown_sections

from .conftest import LIMITS, Run  # type: ignore[import-not-found]


def test_a_program_uses_the_tools_and_prints(run: Run) -> None:
    execution = run(
        "for page_id, title in search_pages('x'):\n"
        "    for section_id, heading in view_sections(page_id):\n"
        "        print(title, heading, read_section(section_id))"
    )
    assert execution.stdout == "Page of x First Text of x:first.\nPage of x Second Text of x:second.\n"
    assert execution.error == ""
    assert [call.name for call in execution.calls] == [SEARCH, VIEW, READ, READ]
    assert 0 < execution.seconds < LIMITS.wall_s


@pytest.mark.parametrize(
    ("program", "stdout", "error"),
    [
        ("print('a')\n1 / 0", "a\n", "ZeroDivisionError: division by zero (line 2)"),
        ("def f(:", "", "SyntaxError: invalid syntax (line 1)"),
        ("def f():\n    return missing\nf()", "", "NameError: name 'missing' is not defined (line 2)"),
        ("raise SystemExit('bye')", "", ""),
        ("raise KeyboardInterrupt", "", "KeyboardInterrupt (line 1)"),
        ("import sys\nprint('e', file=sys.stderr)", "e\n", ""),
        ("import os\nos._exit(3)", "", "stopped: its interpreter ended"),
        ("print(input())", "", "EOFError: EOF when reading a line (line 1)"),
        ("search_pages(7)", "", "TypeError: search_pages takes a string, not int (line 1)"),
        ("search_pages('')", "", "ToolError: empty argument (line 1)"),
        ("print('\\ud800')", "?\n", ""),
        ("print('é ß 語')", "é ß 語\n", ""),
        ("import json, re, math, collections, random, datetime, statistics, decimal, hashlib\nprint('ok')", "ok\n", ""),
        ("raise ValueError('a\\nb')", "", "ValueError: a b (line 1)"),
        ("import sys\nprint('a')\nsys.stdout.write(b'b')", "a\n", "TypeError: write() argument must be str, not bytes (line 3)"),
        ("class E(Exception):\n    __str__ = None\nprint('a')\nraise E", "a\n", "E (line 4)"),
        ("print('a')\nraise SyntaxError(5)", "a\n", "SyntaxError: 5 (line 2)"),
        ("import requests", "", "ModuleNotFoundError: No module named 'requests' (line 1)"),
        ("", "", ""),
    ],
)
def test_what_a_program_comes_to(run: Run, program: str, stdout: str, error: str) -> None:
    execution = run(program)
    assert (execution.stdout, execution.error) == (stdout, error)


def test_a_null_byte(run: Run) -> None:
    assert "null bytes" in run("x = '\x00'").error


def test_what_was_printed_before_the_end_comes_back(run: Run) -> None:
    execution = run("print('first')\nsearch_pages('x')\nimport os\nos._exit(0)")
    assert execution.stdout == "first\n"
    assert execution.error == "stopped: its interpreter ended"


def test_output_and_calls_are_cut(run: Run) -> None:
    calls = "for i in range(20):\n    try:\n        search_pages('x')\n    except ToolError:\n        pass"
    execution = run(f"print('x' * 10_000)\n{calls}")
    assert execution.stdout == "x" * LIMITS.output_chars + CUT
    assert len(execution.calls) == LIMITS.calls
    assert run("for i in range(9): search_pages('x')").error == "ToolError: no calls left: a program may make 8 (line 1)"


def test_an_argument_that_is_too_long_reaches_no_tool(run: Run) -> None:
    execution = run("try:\n    read_section(':' * 100_000)\nexcept ToolError as error:\n    print(error)")
    assert execution.stdout == "argument too long: 2000 characters are allowed\n"
    assert execution.calls == ()


def test_memory_is_limited_and_the_error_is_the_programs(run: Run) -> None:
    assert run("x = bytearray(1 << 30)").error == "MemoryError (line 1)"


def test_what_a_program_reads_and_does_not_print_was_not_read(run: Run) -> None:
    reads = "texts = [read_section(name) for name in ('a:first', 'b:first')]\n"
    for printed, read in (
        ("", []),
        ("print('Text of')", []),
        ("print('see', texts[0])", ["a:first"]),
        ("print(texts)", ["a:first", "b:first"]),
    ):
        execution = run(reads + printed)
        assert [name for call in execution.calls for name in call.section_ids] == read, printed
        assert [call.page_ids for call in execution.calls] == [("a",), ("b",)]
    long, ids = "A first line of the section, of some length.\nA second line of it, as long as the first.", ("a", "a:within")
    assert shown_sections(ids, long, f"see\n{long}\n") == ids
    assert shown_sections(ids, long, "1: A second line of it, as long as the first.\n") == shown_sections(ids, long, long[5:40]) == ("a",)
    assert shown_sections(ids, long, "line") == ()
    assert shown_sections(ids, "## Facts\n\n- Built: 1950\n- Arches: 5", "## Facts\n\n- Built: 1950\n- Arches: 5\n") == ids


def test_a_program_may_compute_for_as_long_as_it_may_run() -> None:
    assert complete_limits(LimitsConfig()) == ProgramLimits()
    assert complete_limits(LimitsConfig(wall_s=29.5)).cpu_s == 30
    assert complete_limits(LIMITS) is LIMITS


def test_time_is_limited_without_that_of_the_tools(run: Run) -> None:
    limits = LIMITS.model_copy(update={"wall_s": 0.5})
    assert run("import time\ntime.sleep(60)", limits).error == "stopped: it ran out of time"

    def slowly(call: ToolCall) -> ToolResult:
        import time

        time.sleep(0.8)
        return ScriptedTools().serve_one(call)

    execution = run("print(search_pages('x')[0][0])", limits, slowly)
    assert (execution.stdout, execution.error) == ("x\n", "")
    assert execution.tool_seconds >= 0.8


def test_a_tool_that_breaks_is_no_error_of_the_program(run: Run) -> None:
    def broken(call: ToolCall) -> ToolResult:
        raise IndexUnusableError("the index is gone")

    with pytest.raises(IndexUnusableError):
        run("try:\n    search_pages('x')\nexcept BaseException:\n    print('swallowed')", serve=broken)


def test_figures_are_the_servers_own(run: Run) -> None:
    forged = '{"error": "", "calls": [], "seconds": 0}'
    program = (
        f"import os, time\nsearch_pages('x')\ntime.sleep(0.2)\nbody = {forged!r}.encode()\nos.write(1, len(body).to_bytes(4, 'big') + body)"
    )
    execution = run(program)
    assert len(execution.calls) == 1
    assert execution.seconds >= 0.2


def test_forged_calls_are_calls(run: Run) -> None:
    body = '{"call": "no_such_tool", "argument": "x", "session": "another"}'
    execution = run(f"import os\nbody = {body!r}.encode()\nos.write(1, len(body).to_bytes(4, 'big') + body)")
    assert [(call.name, call.served) for call in execution.calls] == [("no_such_tool", False)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    program=st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from(["print(1)", "\n", "    ", "search_pages('a')", "for", "(", "'", "\\", ":"]), max_size=12).map("".join),
    )
)
def test_no_text_breaks_anything(run: Run, program: str) -> None:
    execution = run(program, LIMITS.model_copy(update={"wall_s": 3.0}))
    assert isinstance(execution.stdout, str)
    assert "\n" not in execution.error


def test_nothing_is_left_of_a_cell(engine: Bubblewrap) -> None:
    instances = [engine.start() for _ in range(3)]
    groups = [instance._group for instance in instances]
    for instance in instances:
        instance.wait_until_ready(60.0)
        instance.kill()
        instance.kill()
        assert instance.terminate()
        assert not instance.is_alive()
        assert instance.terminate()
    assert not any(directory.exists() for group in groups if group for directory in group.directories)
    assert not any(Path(f"/proc/{instance._pid}/root").exists() and instance.is_alive() for instance in instances)


def test_a_cell_has_a_user_nobody_else_has(engine: Bubblewrap) -> None:
    instance = engine.start()
    try:
        instance.wait_until_ready(60.0)
        uid = Path(f"/proc/{instance._pid}").stat().st_uid
        status = Path(f"/proc/{instance._pid}/status").read_text()
    finally:
        instance.terminate()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert (uid > 1_000_000_000) if os.getuid() == 0 else (uid == os.getuid())


@given(
    st.lists(
        st.tuples(st.from_regex(r"[0-9a-z:]{1,6}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
        max_size=5,
        unique_by=lambda pair: pair[0],
    )
)
def test_lines_become_pairs(pairs: list[tuple[str, str]]) -> None:
    pairs = [(item, " ".join(title.split())) for item, title in pairs]
    result = ToolResult("\n".join(f"{item}: {title}" for item, title in pairs), True, tuple(item for item, _ in pairs))
    assert as_value(SEARCH, result) == pairs


def test_nothing_found_is_an_empty_list() -> None:
    assert as_value(SEARCH, ToolResult("no pages found", True)) == []
    assert as_value(READ, ToolResult("text", True, ("1",), ("1:x",))) == "text"


def test_the_same_program_twice_knows_nothing_of_itself(run: Run) -> None:
    program = "import json\nprint(getattr(json, 'left', None))\njson.left = 'here'"
    outputs: list[Any] = [run(program).stdout for _ in range(2)]
    assert outputs == ["None\n", "None\n"]
