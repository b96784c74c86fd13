import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.bundle.target import parse_target, require_extras
from slmsearch.bundle.wheels import sort_pins
from slmsearch.config import PolicyConfig, TrainConfig, VllmConfig
from slmsearch.errors import ConfigError

FREEZE = """python 3.12
# made on a node
-e git+ssh://example/own#egg=own
huggingface_hub==1.33.0
torch @ file:///opt/torch-2.11.0%2Bcu130-cp312-cp312-linux_x86_64.whl
numpy==2.5.2
Jinja2==3.1.6
"""


def test_a_freeze_says_what_is_installed() -> None:
    target = parse_target(FREEZE)
    assert (target.python, target.glibc, target.processor) == ("3.12", 28, "x86_64")
    assert target.installed == {"huggingface-hub": "1.33.0", "numpy": "2.5.2", "jinja2": "3.1.6"}
    assert target.platforms[0] == "manylinux_2_28_x86_64"
    assert {"manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(target.platforms)


def test_packages_that_no_bundle_carries_must_be_there() -> None:
    target = parse_target(FREEZE)
    require_extras(target, PolicyConfig(), TrainConfig())
    for setting, policy, train in (
        ("policy.load_in_4bit needs bitsandbytes", PolicyConfig(load_in_4bit=True), TrainConfig()),
        ("train.vllm.mode needs vllm", PolicyConfig(), TrainConfig(vllm=VllmConfig(mode="server"))),
    ):
        with pytest.raises(ConfigError, match=setting):
            require_extras(target, policy, train)
        require_extras(parse_target(f"{FREEZE}vllm==0.20.1\nbitsandbytes==0.49.0\n"), policy, train)


def test_a_platform_may_be_named() -> None:
    target = parse_target("python 3.11 manylinux_2_17_aarch64\ntorch==2.11.0\n")
    assert (target.glibc, target.processor) == (17, "aarch64")
    assert "manylinux_2_28_aarch64" not in target.platforms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 of the target is ''"),
        ("torch==2.11.0\n", "line 1 of the target is 'torch==2.11.0'"),
        ("python 2.7\ntorch==1\n", "line 1 of the target is 'python 2.7'"),
        ("python 3.12 win_amd64\ntorch==2.11.0\n", "line 1 of the target is 'python 3.12 win_amd64'"),
        ("python 3.12\ntorch==2.11.0\nPackage    Version\n", "line 3 of the target is 'Package Version', not one of `pip freeze`"),
        ("python 3.12\ntorch==2.11.0\nnumpy==two\n", "'two' is no version"),
        ("python 3.12\nnumpy==2.5.2\n", "the target has no torch"),
    ],
)
def test_another_file_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_target(text)
    assert said in str(refused.value)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        assert parse_target(f"python 3.12\ntorch==2.11.0\n{text}").python == "3.12"
    except ConfigError as error:
        assert "\n" not in str(error)


def test_what_fits_is_used_and_what_does_not_is_put_before_it() -> None:
    pins = (
        "numpy==2.5.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "transformers==5.23.0 \\\n    --hash=sha256:cc\n"
        "peft==0.19.1 \\\n    --hash=sha256:dd\n"
        "pyyaml==6.0.3 ; sys_platform == 'linux' \\\n    --hash=sha256:ee\n"
    )
    found = sort_pins(pins, {"numpy": "2.5.2+node", "transformers": "5.17.0", "pyyaml": "6.0.3"})
    assert found.used == {"numpy": "2.5.2+node", "pyyaml": "6.0.3"}
    assert found.carried == {"transformers": "5.23.0", "peft": "0.19.1"}
    assert found.shadowed == {"transformers": "5.17.0"}
    assert "numpy" not in found.pins and "--hash=sha256:cc" in found.pins and "--hash=sha256:dd" in found.pins
