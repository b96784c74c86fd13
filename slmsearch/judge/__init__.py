"""Judges that decide whether an answer is right: by exact match, or by a language model if exact match fails.

Search metrics and statistics are in `evaluate/`, the reward is in `environments/searcher/reward.py`.
"""

from importlib import import_module
from pathlib import Path

from slmsearch.config import JudgeConfig
from slmsearch.judge.exact import EagerJudge, ExactJudge, Judge, Verdict

__all__ = ["EagerJudge", "ExactJudge", "Judge", "Verdict", "make_judge"]


def make_judge(config: JudgeConfig, data_dir: str | Path | None = None) -> Judge:
    """Create the configured judge without connecting; verdicts of language models are cached under `data_dir`."""
    if config.kind == "exact":
        return ExactJudge()
    judge: Judge = import_module("slmsearch.judge.llm").LlmJudge.of(config, data_dir)  # by name: the core needs no servers
    return judge
