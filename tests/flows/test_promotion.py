"""What holds a better policy back: answers that can be trusted less than before."""

from types import SimpleNamespace

import pytest

from flows.stages import promotion
from flows.stages.promotion import _find_lost
from slmsearch.config import RunConfig


def evaluated(**shares):
    """An evaluation whose shares are given as (low, value, high)."""
    names = {"pairs": "twins/both_right", "grounded": "answer/grounded_frac"}
    trust = {names[name]: {"all": {"low": low, "value": value, "high": high, "n": 100}} for name, (low, value, high) in shares.items()}
    return {"key": "k", "n": 100, "metrics": {}, "slices": {}, "seconds": 1.0, **({"trust": trust} if trust else {})}


@pytest.mark.parametrize("name", ["pairs", "grounded"])
def test_a_share_that_fell_for_certain_holds_it_back(name):
    found = _find_lost(evaluated(**{name: (0.7, 0.8, 0.9)}), evaluated(**{name: (0.4, 0.5, 0.6)}))
    assert "fell from 0.800 to 0.500" in found


def test_what_touches_rose_or_was_not_measured_does_not():
    assert not _find_lost(evaluated(pairs=(0.7, 0.8, 0.9)), evaluated(pairs=(0.6, 0.65, 0.71)))
    assert not _find_lost(evaluated(pairs=(0.1, 0.2, 0.3)), evaluated(pairs=(0.6, 0.65, 0.71)))
    assert not _find_lost(evaluated(pairs=(0.7, 0.8, 0.9)), evaluated())
    assert not _find_lost(evaluated(grounded=(0.7, 0.8, 0.9)), evaluated(pairs=(0.1, 0.2, 0.3)))


@pytest.mark.parametrize(("decision", "vetoes", "stays"), [("hold", False, False), ("hold", True, True), ("reject", False, True)])
def test_a_slice_that_the_champion_plays_better_keeps_it(monkeypatch, decision, vetoes, stays):
    """A veto is a kind of `hold`, and `hold` alone means as good as the champion."""
    found = {"decision": decision, "reason": "Slice kind=two_hop lost 0.200.", "slices": [{"vetoes": vetoes}]}
    monkeypatch.setattr(promotion, "evaluate_policy", lambda *_: evaluated())
    monkeypatch.setattr(promotion, "compare_evaluations", lambda *_: found)
    champion = SimpleNamespace(version="1", policy=lambda policy: policy)
    objection = promotion._find_objection(SimpleNamespace(config=RunConfig()), None, evaluated(), champion)
    assert bool(objection) is stays
