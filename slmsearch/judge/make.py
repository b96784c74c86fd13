"""The judge that the settings name."""

from pathlib import Path

from slmsearch.config import JudgeConfig
from slmsearch.judge.verdict import ExactJudge, Judge


def make_judge(config: JudgeConfig, data_dir: str | Path | None = None) -> Judge:
    """Make the configured judge; nothing is contacted yet.

    Args:
        config: which one.
        data_dir: where the verdicts of language models are kept; None keeps none.
    """
    if config.kind == "exact":
        return ExactJudge()
    from slmsearch.judge.cache import FILE, VerdictCache  # not before a model is asked: an SDK takes a second to import
    from slmsearch.judge.clients import make_client
    from slmsearch.judge.llm import LlmJudge

    cache = VerdictCache(Path(data_dir) / FILE) if data_dir is not None else None
    return LlmJudge(make_client(config), config, cache)
