"""Judges that decide whether an answer is right: by exact match, or by a language model if exact match fails.

Search metrics and statistics are in `evaluate/`, the reward is in `environments/searcher/reward.py`.
"""

from slmsearch.judge.exact import EagerJudge, ExactJudge, Judge, Verdict

__all__ = ["EagerJudge", "ExactJudge", "Judge", "Verdict"]
