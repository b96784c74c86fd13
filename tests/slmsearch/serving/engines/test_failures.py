import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.processes.child import WATCHDOG_KILLED
from slmsearch.serving.engines.failures import TAIL_BYTES, describe_code, explain_end, find_remedy, read_tail
from slmsearch.serving.engines.llamacpp import LlamaCpp

ADVICE = "lower --ctx-size"
OWN = {"no such model": "correct --model"}


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
        "llama_kv_cache_init: failed to allocate buffer for kv cache",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "ValueError: Free memory on device (3.1/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 21.3 GiB).",
        "ValueError: 1.5 GiB KV cache is needed, which is larger than the available KV cache memory (0.9 GiB).",
        'Error: model requires more system memory (5.6 GiB) than is available (3.9 GiB)"',
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_the_words_for_out_of_memory(line: str) -> None:
    assert find_remedy(["loading", line, "RuntimeError: see above"], 1, OWN, ADVICE) == (f"out of memory: {ADVICE}", line)


@pytest.mark.parametrize("code", [-9, 137])
def test_a_kill_is_most_likely_memory(code: int) -> None:
    assert find_remedy(["loading"], code, OWN, ADVICE) == (f"most likely out of memory: {ADVICE}", "loading")


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
        "Error: listen tcp 127.0.0.1:11434: bind: address already in use",
        "srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
    ],
)
def test_the_words_for_a_port_in_use(line: str) -> None:
    assert find_remedy([line], 1, OWN, ADVICE) == ("choose another port with --port", line)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (
            "llama_model_load: error loading model: unknown model architecture: 'newer'",
            "this llama.cpp is too old for the model: update it",
        ),
        (
            "llama_model_load: error loading model: unknown pre-tokenizer type: 'newer'",
            "this llama.cpp is too old for the model: update it",
        ),
        ("error: invalid argument: --jinja", "correct the arguments after --"),
    ],
)
def test_llama_cpp_s_own_words(line: str, remedy: str) -> None:
    after = "llama_model_load_from_file_impl: failed to load model"
    assert find_remedy([line, after], 1, LlamaCpp.remedies, ADVICE) == (remedy, line)


def test_an_engine_knows_its_own_words() -> None:
    assert find_remedy(["no such model: x", "bye"], 1, OWN, ADVICE) == ("correct --model", "no such model: x")
    assert find_remedy(["a", "b", "c", "d"], 1, OWN, ADVICE) == ("", "b | c | d")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "ended with exit code 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (139, "was killed by SIGSEGV"),
        (-250, "was killed by signal 250"),
        (255, "ended with exit code 255"),
        (WATCHDOG_KILLED, "was stopped because its watchdog process was killed"),
    ],
)
def test_how_it_ended(code: int, words: str) -> None:
    assert describe_code(code) == words


def test_the_message_names_log_and_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\x1b[31mred\x1b[0m words\n-----\n\nTraceback (most recent call last):\n  File x\nValueError: no\n")
    assert explain_end("vLLM", 1, log, OWN, ADVICE) == f"vLLM ended with exit code 1: red words | ValueError: no; log: {log}"
    assert explain_end("vLLM", 1, tmp_path / "none", OWN, ADVICE).startswith("vLLM ended with exit code 1: it said nothing")


@given(st.binary(max_size=400), st.sampled_from([0, 1, -9, 137, WATCHDOG_KILLED]))
def test_whatever_a_server_prints_the_message_is_one_line(tmp_path_factory: pytest.TempPathFactory, printed: bytes, code: int) -> None:
    log = tmp_path_factory.getbasetemp() / "anything.log"
    log.write_bytes(printed)
    message = explain_end("vLLM", code, log, OWN, ADVICE)
    assert len(" ".join(message.split()).splitlines()) == 1
    assert len(message) < 1200 + len(str(log))


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n" + "filler line\n" * TAIL_BYTES + "last\n")
    lines = read_tail(log)
    assert lines[-1] == "last" and "first" not in lines
