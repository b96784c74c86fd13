"""Measurement of how sure a searcher's answers are; `slmsearch.evaluate.confidence` says how."""

from dataclasses import asdict
from typing import Any

from flows.stages.policy_choice import SearcherChoice
from slmsearch.errors import EvaluationError
from slmsearch.evaluate.confidence import calibrate
from slmsearch.processes.call import Child
from slmsearch.serving.api import playing
from tasks.progress import Progress


def calibrate_searcher(choice: SearcherChoice, split: str, limit: int, wrong_at_most: float) -> dict[str, Any]:
    """Play questions and their twins, keep the calibration for the service, and return the figures of a promise.

    Args:
        choice: policy, as it will be served.
        split: of the questions; they were not trained on.
        limit: maximum number of questions; 0 takes all.
        wrong_at_most: largest share of wrong ones among the answers that are given.

    Raises:
        EvaluationError: there are no questions, or too few answers.
        SlmSearchError: the policy or its index version is missing.
    """
    served = choice.find()
    with Child() as child, Progress("calibrate", "questions") as progress:
        loaded, _ = child.call(playing.load, served)
        graded, asked = child.call(playing.collect, split, limit, progress=progress)
    key = loaded.index_key or ""
    found = calibrate(graded, asked, key)
    if found is None:
        raise EvaluationError(f"{len(graded)} answers to {len(asked)} questions of {split} are too few to calibrate: give more questions")
    file = choice.calibration_file(served.spec)
    found.write(file)
    kept = found.keep(wrong_at_most)
    nothing = {"threshold": None, "answered_frac": 0.0, "wrong_frac": None, "low": None, "high": None, "n": 0}
    curve = [asdict(one) for level in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3) if (one := found.keep(level))]
    told = {"policy": served.version, "index_key": key, "asked": found.asked, "answers": len(found.scores), "file": str(file)}
    return {**(asdict(kept) if kept else nothing), "wrong_at_most": wrong_at_most, "curve": curve, **told}
