"""What control groups still allow."""

from math import inf
from pathlib import Path

from slmsearch.processes.memory_limit import left_in_cgroup


def test_the_narrowest_of_the_groups_above_decides(tmp_path: Path) -> None:
    home, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/pod/box\n")
    for name, limit, used, cached in (("pod", "1000", "600", "100"), ("pod/box", "max", "500", "0")):
        group = home / name
        group.mkdir(parents=True)
        for file, text in (("memory.max", limit), ("memory.current", used), ("memory.stat", f"anon 1\ninactive_file {cached}")):
            (group / file).write_text(f"{text}\n")
    assert left_in_cgroup(home, own) == 500.0
    (home / "pod/box/memory.max").write_text("520\n")
    assert left_in_cgroup(home, own) == 20.0
    assert left_in_cgroup(tmp_path / "none", own) == inf
    own.write_text("0::/../../elsewhere\n")
    assert left_in_cgroup(home, own) == inf
    assert left_in_cgroup() > 0
