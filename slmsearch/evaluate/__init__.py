"""Evaluation of policies: metrics, baselines, failure analysis, paired statistics and the promotion decision."""
