"""A model's directory that was made to do harm: no code in it runs, and what cannot be loaded is one line."""

import json
import pickle
import shutil
import struct
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model

from slmsearch.config import PolicyConfig
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.errors import ModelError
from slmsearch.models.load import load_adapter, load_model, load_tokenizer

TINY = Path(__file__).parents[3] / "data" / "models" / "tiny-searcher"
CODE = """
from pathlib import Path
Path({marker!r}).touch()
class Evil: ...
"""


class Marks:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "it ran"


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_model(PolicyConfig(model=str(path), device="cpu"))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1000
    return str(raised.value)


@pytest.mark.parametrize("known", [True, False], ids=["a type that is known", "a type that is not"])
def test_code_of_a_model_does_not_run(model: Path, marker: Path, known: bool) -> None:
    (model / "evil.py").write_text(CODE.format(marker=str(marker)))
    change(model / "config.json", auto_map={"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": "evil.Evil"})
    change(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]})
    if known:
        load_model(PolicyConfig(model=str(model), device="cpu"))
    else:
        change(model / "config.json", model_type="evil", architectures=["Evil"])
        refused(model)
    assert not marker.exists()


def test_a_pickle_does_not_run(model: Path, marker: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Marks(marker)}))
    refused(model)
    assert not marker.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__.__subclasses__()[0] }}",
        "{{ cycler.__init__.__globals__.os.popen('touch MARKER').read() }}",
        "{{ raise_exception.__globals__['__builtins__']['open']('MARKER', 'w') }}",
        "{{ messages.append(messages) }}",
    ],
)
def test_a_chat_template_reaches_nothing_but_its_messages(model: Path, marker: Path, template: str) -> None:
    for path in model.glob("*.jinja"):
        path.unlink()
    change(model / "tokenizer_config.json", chat_template=template.replace("MARKER", str(marker)))
    tokenizer = load_tokenizer(PolicyConfig(model=str(model), device="cpu"))
    with pytest.raises(Exception, match=r"(?i)unsafe|undefined|immutable|template"):
        tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert not marker.exists()
    with pytest.raises(ModelError) as raised:
        ChatRenderer(tokenizer)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 2**63 - 1) + b"{",
        struct.pack("<Q", 100_000_000_000) + b'{"a":1}',
        struct.pack("<Q", 60) + b'{"w":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,8]}}'[:60],
        b"",
    ],
    ids=["2**63", "100 GB", "a shape that is larger than the file", "nothing"],
)
def test_a_header_of_safetensors_is_not_believed(model: Path, header: bytes) -> None:
    (model / "model.safetensors").write_bytes(header)
    assert "cannot load model" in refused(model)


@pytest.mark.parametrize("change_to", [{"hidden_size": 10**12}, {"num_hidden_layers": -1}, {"vocab_size": "many"}])
def test_sizes_of_a_model_are_not_believed(model: Path, change_to: dict[str, Any]) -> None:
    change(model / "config.json", **change_to)
    refused(model)


def test_a_tokenizer_of_an_absolute_path_is_not_followed(model: Path, tmp_path: Path, marker: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"chat_template": "SECRET"}')
    change(model / "tokenizer_config.json", tokenizer_file=str(secret), auto_map={"AutoTokenizer": [str(secret), None]})
    tokenizer = load_tokenizer(PolicyConfig(model=str(model), device="cpu"))
    assert "SECRET" not in str(tokenizer.chat_template)


# Adapters


@pytest.fixture(scope="module")
def base() -> Any:
    return load_model(PolicyConfig(model=str(TINY), device="cpu"))[0]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    base, _ = load_model(PolicyConfig(model=str(TINY), device="cpu"))
    get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(str(folder))
    return folder


EXPONENTIAL = "([a-z_.0-9]+)+!"
"""Takes years to find out that it does not match the name of a module, and no signal interrupts it."""


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": EXPONENTIAL},
        {"target_modules": ["q_proj"], "exclude_modules": EXPONENTIAL},
        {"rank_pattern": {EXPONENTIAL: 4}},
        {"alpha_pattern": {EXPONENTIAL: 4}},
        {"layers_to_transform": [0], "layers_pattern": EXPONENTIAL},
        {"peft_type": "PROMPT_TUNING", "tokenizer_kwargs": {"trust_remote_code": True}},
        {"peft_type": ["LORA"]},
        {"target_modules": 7},
        {"rank_pattern": ["x"]},
        {"r": "many"},
        {"megatron_config": {"x": 1}, "megatron_core": "antigravity"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_adapter_is_refused_before_its_settings_do_anything(
    base: Any, honest: Path, tmp_path: Path, fields: dict[str, Any], trainable: bool
) -> None:
    adapter = Path(shutil.copytree(honest, tmp_path / "adapter"))
    change(adapter / "adapter_config.json", **fields)
    with pytest.raises(ModelError, match="cannot load adapter") as raised:
        load_adapter(base, str(adapter), trainable)
    assert "\n" not in str(raised.value) and "antigravity" not in sys.modules


def test_an_adapter_that_is_no_json_is_refused(base: Any, honest: Path, tmp_path: Path) -> None:
    adapter = Path(shutil.copytree(honest, tmp_path / "adapter"))
    for text in ("", "[]", "null", "{", '{"peft_type": "LORA", "target_modules": {"a": 1}}'):
        (adapter / "adapter_config.json").write_text(text)
        with pytest.raises(ModelError, match="cannot load adapter"):
            load_adapter(base, str(adapter))
