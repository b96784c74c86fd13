"""Warnings of libraries in a process that computes: what says nothing to the user is not shown, all else is."""

import logging
import warnings

import pytest

from slmsearch.processes.call import Child
from slmsearch.processes.noise import NOISE, silence_noise

pytestmark = pytest.mark.usefixtures("unforked")


def put_an_adapter_on_a_model() -> None:
    """Have the libraries themselves warn, then warn of other things."""
    import bitsandbytes.backends.cpu.ops  # noqa: F401
    from peft import LoraConfig, get_peft_model

    from tests.slmsearch.training.sft_worker import make_llama

    model = get_peft_model(make_llama(64, 0), LoraConfig(task_type="CAUSAL_LM", r=2))
    model.disable_adapter_layers()
    warnings.warn("`is_something_else` is deprecated", FutureWarning, stacklevel=1)
    warnings.warn("`is_gradient_checkpointing` is deprecated and no FutureWarning", UserWarning, stacklevel=1)
    logging.getLogger("bitsandbytes.backends.cpu.ops").warning("Something else of %s", "bitsandbytes")
    logging.getLogger("slmsearch.training").warning("ours")


def test_a_child_that_puts_an_adapter_on_a_model_shows_no_noise_and_all_else(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Child() as child:
        child.call(put_an_adapter_on_a_model)
    err = capfd.readouterr().err
    assert "kernels-community" not in err + caplog.text and "is_gradient_checkpointing` is deprecated and will" not in err
    assert "`is_something_else` is deprecated" in err and "deprecated and no FutureWarning" in err
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING][-2:] == [
        "Something else of bitsandbytes",
        "ours",
    ]


def test_silencing_twice_adds_nothing_and_every_entry_says_why() -> None:
    silence_noise()
    before = [len(logging.getLogger(noise.logger).filters) for noise in NOISE if noise.logger]
    silence_noise()
    assert [len(logging.getLogger(noise.logger).filters) for noise in NOISE if noise.logger] == before
    assert all(noise.reason and bool(noise.category) != bool(noise.logger) for noise in NOISE)
