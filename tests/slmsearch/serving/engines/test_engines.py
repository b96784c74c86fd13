"""What each engine is started with. vLLM is not installed where these tests run: its part is a contract on the command line alone."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slmsearch.errors import ConfigError, ModelError, ServiceError
from slmsearch.judge.prompt import MAX_ANSWER_CHARS, MAX_REPLY_TOKENS, THOUGHT_TOKENS, render_prompt
from slmsearch.judge.qualify import load_cases
from slmsearch.serving.engines.background import ORDERS, Order
from slmsearch.serving.engines.engines import ENGINES, Transformers, Vllm, make_engine
from slmsearch.serving.engines.hub import KNOWN
from slmsearch.serving.engines.llama_server import read_arguments
from slmsearch.serving.engines.llamacpp import _PACKAGED, DEFAULT_CTX_SIZE, LlamaCpp
from slmsearch.serving.engines.request import ServeRequest
from tests.slmsearch.serving.engines.programs.vllm import parser

HUB = ServeRequest("policy", "Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B-Instruct-2507", 8001)


def write_adapter(folder: Path, rank: int) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 2 * rank}))
    return str(folder)


def test_vllm_contract(tmp_path: Path) -> None:
    adapters = tuple((name, write_adapter(tmp_path / name, rank)) for name, rank in (("small", 8), ("large", 48)))
    request = replace(HUB, parallel=32, ctx_size=4096, gpu_memory=0.4, dtype="bfloat16", adapters=adapters, extra=("--enforce-eager",))
    engine = Vllm()
    engine.check(request)
    got = parser().parse_args(engine.command(["vllm"], request)[1:])
    assert (got.model_tag, got.host, got.port) == (HUB.model, "127.0.0.1", 8001)
    assert (got.max_num_seqs, got.max_model_len, got.gpu_memory_utilization, got.dtype) == (32, 4096, 0.4, "bfloat16")
    assert got.lora_modules == [f"{name}={path}" for name, path in adapters]
    assert (got.enable_lora, got.max_loras, got.max_lora_rank, got.enforce_eager) == (True, 2, 64, True)
    bare = parser().parse_args(engine.command(["vllm"], HUB)[1:])
    assert (bare.enable_lora, bare.max_num_seqs, bare.served_model_name) == (False, None, [HUB.name])
    assert bare.generation_config == "vllm", "no sampling parameters but those that a client sends"


def test_one_adapter_is_what_clients_ask_for(tmp_path: Path) -> None:
    request = replace(HUB, adapters=(("trained", write_adapter(tmp_path / "trained", 16)),))
    assert Vllm().client_name(request) == "trained"
    assert Vllm().client_name(HUB) == HUB.name


def test_vllm_is_for_linux_and_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vLLM runs on the GPU"):
        Vllm().check(replace(HUB, gpu_memory=0.0))
    with pytest.raises(ModelError, match="no LoRA adapter at /nowhere"):
        Vllm().check(replace(HUB, adapters=(("a", "/nowhere"),)))
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ServiceError, match="vLLM runs on Linux only, and this is win32"):
        Vllm().find(HUB)


@pytest.mark.skipif(sys.platform != "linux", reason="vLLM is for Linux")
def test_a_missing_vllm_gives_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ServiceError, match=r"vLLM is not installed: uv pip install -e '.\[gpu\]'"):
        Vllm().find(HUB)


def test_judges_keep_their_name_whatever_serves_them() -> None:
    judge = ServeRequest("judge", "qwen2.5:7b", "qwen2.5:7b", 8000)
    command = Vllm().command(["vllm"], judge)
    assert command[2] == KNOWN["qwen2.5:7b"].hub
    assert command[command.index("--served-model-name") + 1] == "qwen2.5:7b"
    with pytest.raises(ConfigError, match="'llama9:1b' is a name of Ollama's library"):
        Vllm().check(replace(judge, model="llama9:1b"))


def test_llama_server_divides_its_context_among_its_slots() -> None:
    request = replace(HUB, model="m.gguf", parallel=8, ctx_size=1024, gpu_memory=0.0, adapters=(("a", "a.gguf"),), extra=("--no-webui",))
    command = LlamaCpp().command(["llama-server"], request)
    assert command[:3] == ["llama-server", "--model", "m.gguf"]
    assert command[command.index("--ctx-size") + 1] == "8192"
    assert command[command.index("--n-gpu-layers") + 1] == "0"
    assert command[command.index("--lora") + 1] == "a.gguf"
    assert command[-1] == "--no-webui"


def test_the_packaged_server_takes_the_same_arguments_and_no_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = replace(HUB, model=str(tmp_path / "m.gguf"), ctx_size=512, gpu_memory=0.0, adapters=(("a", "a.gguf"),))
    command = LlamaCpp().command(list(_PACKAGED), request)
    given = read_arguments(command[len(_PACKAGED) :])
    assert (given.ctx_size, given.parallel, given.n_gpu_layers, given.lora) == (4 * 512, 4, 0, ["a.gguf"])
    with pytest.raises(SystemExit):
        read_arguments([*command[len(_PACKAGED) :], "--no-webui"])
    assert "unrecognized arguments: --no-webui" in capsys.readouterr().err


@pytest.mark.parametrize(("model", "repository"), [("owner/r:Q8_0", "owner/r:Q8_0"), ("phi3:mini", KNOWN["phi3:mini"].gguf)])
def test_llama_server_fetches_a_repository_itself_and_the_packaged_one_cannot(
    model: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(HUB, model=model, name=model)
    LlamaCpp().check(request)
    command = LlamaCpp().command(["llama-server"], request)
    assert command[:3] == ["llama-server", "-hf", repository]
    assert command[command.index("--alias") + 1] == model
    monkeypatch.setattr(LlamaCpp, "find", lambda self, request: list(_PACKAGED))
    with pytest.raises(ServiceError, match=f"fetch one with `hf download {repository.partition(':')[0]}` and give it with --model"):
        LlamaCpp().prepare(request, print)


@pytest.mark.parametrize("model", ["m.gguf", "owner/r/m.gguf", "/nowhere/m", "llama9:1b", "", "../m", "owner/m.gguf"])
def test_what_is_neither_a_gguf_nor_a_repository_is_refused(model: str) -> None:
    with pytest.raises(ModelError, match="no GGUF at"):
        LlamaCpp().check(replace(HUB, model=model))


def test_llama_cpp_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(ConfigError, match=r"`slmsearch export gguf` and give the file with --model, or take --engine transformers"):
        LlamaCpp().check(replace(HUB, model=str(tmp_path)))
    with pytest.raises(ConfigError, match="counts layers"):
        LlamaCpp().check(replace(HUB, gpu_memory=0.5))
    with pytest.raises(ConfigError, match="adds all its LoRA adapters up"):
        LlamaCpp().check(replace(HUB, adapters=(("a", "a"), ("b", "b"))))
    with pytest.raises(ModelError, match=r"adapter 'a': no GGUF at .*convert_lora_to_gguf.py makes one"):
        LlamaCpp().check(replace(HUB, adapters=(("a", str(tmp_path)),)))


def test_transformers_serve_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    engine = Transformers()
    for asked, message in (
        ({"adapters": (("a", "a"),)}, "takes no LoRA adapters"),
        ({"gpu_memory": 0.5}, "share of the GPU's memory"),
        ({"ctx_size": 512}, "leave --ctx-size out"),
        ({"parallel": 4}, "one request at a time"),
    ):
        with pytest.raises(ConfigError, match=message):
            engine.check(replace(HUB, **asked))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        engine.check(replace(HUB, model=str(tmp_path)))
    assert engine.client_name(replace(HUB, model="qwen2.5:7b", name="qwen2.5:7b")) == KNOWN["qwen2.5:7b"].hub
    assert "cpu" in engine.command(["transformers"], replace(HUB, gpu_memory=0.0))


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_made_by_its_name(name: str) -> None:
    engine = make_engine(name)
    assert engine.name == name
    assert engine.install and engine.memory_advice


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="no engine 'lmstudio'; there are ollama, llamacpp, vllm, transformers"):
        make_engine("lmstudio")


def test_a_request_survives_its_way_to_another_process() -> None:
    request = replace(HUB, adapters=(("a", "b"),), extra=("--x", "y"), gpu_memory=0.5)
    order = Order("vllm", request, Path("serve"), 30.0)
    assert ORDERS.validate_json(ORDERS.dump_json(order)) == order


@pytest.mark.parametrize(
    ("host", "origin"), [("127.0.0.1", "http://127.0.0.1:8001"), ("0.0.0.0", "http://127.0.0.1:8001"), ("::1", "http://[::1]:8001")]
)
def test_clients_get_an_address_they_can_reach(host: str, origin: str) -> None:
    assert replace(HUB, host=host).origin == origin


def test_a_judges_thoughts_fit_where_no_size_is_given() -> None:
    longest = max(len(render_prompt(case.as_question(), "x" * MAX_ANSWER_CHARS)) for case in load_cases())
    assert longest + MAX_REPLY_TOKENS + THOUGHT_TOKENS < DEFAULT_CTX_SIZE, "though every character were a token"
