"""Who decides whether an answer is right: exact match, or a language model where exact match fails.

Search metrics and statistics lie in `evaluate/`, the trained signal in `environments/searcher/reward.py`.
"""

from slmsearch.judge.exact import EagerJudge, ExactJudge, Judge, Verdict
from slmsearch.judge.llm import make_judge

__all__ = ["EagerJudge", "ExactJudge", "Judge", "Verdict", "make_judge"]
