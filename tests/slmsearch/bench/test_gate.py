"""`slmsearch bench gate` in little: simulated evaluations, stored ones, planted falls."""

from dataclasses import replace

from slmsearch.bench.gate import run_gate
from slmsearch.config import DecisionConfig, NightlyConfig
from slmsearch.environments.rows import EpisodeRow
from slmsearch.evaluate.metrics import summarise, summarise_slices
from slmsearch.evaluate.store import Evaluation, write_evaluation
from tests.slmsearch.evaluate.builders import make, play


def store(evals, key, rows: list[EpisodeRow]):
    episodes = tuple(replace(play(question_id=row.question_id)) for row in rows)
    write_evaluation(evals, key, Evaluation(tuple(rows), episodes, summarise(rows), summarise_slices(rows), 1.0), {})


def test_it_promotes_nothing_that_is_no_better_and_never_contradicts_the_rule(tmp_path):
    store(tmp_path, "before", [make(f"q{i}", i % 3 == 0) for i in range(240)])
    store(tmp_path, "after", [make(f"q{i}", i % 3 != 1) for i in range(240)])
    store(tmp_path, "others", [make(f"x{i}") for i in range(240)])
    for sampled in ("sampled", "sampled-too"):
        store(tmp_path, sampled, [make(f"q{i // 2}") for i in range(480)])
    found = run_gate(tmp_path, DecisionConfig(), NightlyConfig(), simulations=30, falls=1)
    assert found.values["false_promotions_frac"] <= 0.1 and 0.2 < found.values["mean_questions_frac"] < 0.8
    assert {name: found.values[name] for name in ("compared", "opposite", "decided", "decided_by_rule")} == {
        "compared": 2, "opposite": 0, "decided": 2, "decided_by_rule": 2,
    }  # fmt: skip
    assert len(found.values["nights"]) == 12 and "of the opposite in 0" in found.render()
