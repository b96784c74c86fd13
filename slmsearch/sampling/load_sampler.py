"""Make the sampler of a policy from its settings."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from slmsearch.config import PolicyConfig
from slmsearch.episodes.sampler import Sampler
from slmsearch.errors import ModelError
from slmsearch.models.known import is_gguf
from slmsearch.models.load import load_model, load_tokenizer


def make_sampler(policy: PolicyConfig, tool_role: str = "tool") -> Sampler:
    """Load a policy here, or connect to the server that has it.

    Raises:
        ModelError: the model or adapter cannot be loaded.
    """
    if policy.base_url:
        from slmsearch.sampling.openai_sampler import OpenAISampler  # here: a served policy needs no torch

        key = policy.api_key.get_secret_value() if policy.api_key else "none"
        return OpenAISampler(policy.model, policy.base_url, key, tool_role, template_kwargs=policy.chat_template_kwargs)
    if is_gguf(policy.model):
        from slmsearch.sampling.llamacpp import LlamaCppEngine, LlamaCppSampler

        if policy.adapter:
            raise ModelError(f"{policy.model} takes no adapter: `slmsearch export gguf` merges one and writes another file")
        engine = LlamaCppEngine(policy.model, policy.device == "cpu")
        return LlamaCppSampler(engine, load_tokenizer(policy), tool_role)
    from slmsearch.sampling.torch_sampler import TorchSampler

    model, tokenizer = load_model(policy)
    return TorchSampler(model.eval(), tokenizer, tool_role)


def load_with_base(policy: PolicyConfig, tool_role: str = "tool") -> tuple[Sampler, Callable[[], AbstractContextManager[Sampler]]]:
    """Load the weights once and return two samplers over them: the policy, and its base with the adapter disabled.

    Raises:
        ModelError: the model or adapter cannot be loaded.
    """
    from slmsearch.sampling.torch_sampler import TorchSampler

    model, tokenizer = load_model(policy, keep_adapter=True)
    model.eval()

    @contextmanager
    def open_base() -> Iterator[Sampler]:
        with model.disable_adapter() if policy.adapter else nullcontext():
            yield TorchSampler(model, tokenizer, tool_role)  # the same weights: no second copy in memory

    return TorchSampler(model, tokenizer, tool_role), open_base
