"""What the platform is told before torch is loaded."""

import os
import subprocess
import sys

from slmsearch.processes.processor import settle


def test_openmp_and_jax_are_told_unless_someone_chose():
    environment: dict[str, str] = {}
    settle(environment)
    assert int(environment["GOMP_SPINCOUNT"]) < 100_000
    assert environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    for chosen in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}):
        environment = {**chosen, "XLA_PYTHON_CLIENT_PREALLOCATE": "true"}
        settle(environment)
        assert environment == {**chosen, "XLA_PYTHON_CLIENT_PREALLOCATE": "true"}


def test_freed_memory_stays():
    """After settle, blocks of some megabytes come from the heap and are used again: hardly a page fault in twenty rounds."""
    code = """
import resource, sys
from slmsearch.processes.processor import settle
if sys.argv[1] == "settled":
    settle({})
def churn():
    for _ in range(20):
        blocks = [bytearray(8 << 20) for _ in range(8)]
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    run = [int(subprocess.check_output([sys.executable, "-c", code, mode], env=dict(os.environ))) for mode in ("settled", "plain")]
    assert run[0] < 1000 < run[1], run


def test_cycles_are_looked_for_less_often_and_still_found():
    code = """
import gc, weakref
from slmsearch.processes.processor import GC_THRESHOLD, settle
settle({})
assert gc.get_threshold()[0] == GC_THRESHOLD > 700
class Node: pass
node = Node(); node.self, gone = node, weakref.ref(node)
del node
kept = [[] for _ in range(2 * GC_THRESHOLD)]
assert gone() is None
"""
    subprocess.check_call([sys.executable, "-c", code], env=dict(os.environ))
