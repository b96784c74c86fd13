"""Measurement of how sure a searcher's answers are; `slmsearch.evaluate.confidence` says how."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flows.stages.policy_choice import SearcherChoice
from slmsearch.errors import ConfigError, EvaluationError, SlmSearchError
from slmsearch.evaluate.confidence import Calibration, calibrate
from slmsearch.processes.call import Child
from slmsearch.serving.api import playing
from slmsearch.serving.api.graded_plays import GradedPlays, collect, read_plays
from slmsearch.serving.api.playing import ServedPolicy
from tasks.child import in_child, keeping_child
from tasks.progress import Progress

SPLIT = "validation"
"""Questions of a calibration that nobody chose others for."""


def calibrate_searcher(choice: SearcherChoice, split: str, limit: int, wrong_at_most: float) -> dict[str, Any]:
    """Play questions and their twins, keep the calibration for the service, and return the figures of a promise.

    Args:
        choice: policy, as it will be served.
        split: split of the questions, which were not trained on.
        limit: maximum number of questions; 0 takes all.
        wrong_at_most: largest share of wrong ones among the answers that are given.

    Raises:
        ConfigError: the training questions are among them, and the policy may have learnt from these.
        EvaluationError: there are no questions, or too few answers.
        SlmSearchError: the policy or its index version is missing.
    """
    with keeping_child():
        served = choice.find()
        if split == "all" and served.spec.policy is not None:
            raise ConfigError(f"{served.version} may have learnt from the training questions, which promise nothing: take another --split")
        found, file = _calibrate(choice, served, GradedPlays(split, limit))
    kept = found.keep(wrong_at_most)
    nothing = {"threshold": None, "answered_frac": 0.0, "wrong_frac": None, "low": None, "high": None, "n": 0}
    curve = [asdict(one) for level in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3) if (one := found.keep(level))]
    told = {"policy": served.version, "index_key": found.index_key, "asked": found.asked, "answers": len(found.answers), "file": str(file)}
    return {**(asdict(kept) if kept else nothing), "wrong_at_most": wrong_at_most, "curve": curve, **told}


def calibrate_again(choice: SearcherChoice, served: ServedPolicy) -> str | None:
    """Calibrate a policy on another version of its documents, if it was calibrated; return why that failed, None if it did not."""
    if not choice.calibration_file(served.spec).is_file():
        return None
    known = read_plays(_plays_file(choice, served)) or GradedPlays(SPLIT, 0)
    if served.spec.policy is not None and served.spec.policy.base_url:  # which weights the server has now is not known
        known = replace(known, plays=())
    try:
        _calibrate(choice, served, known)
    except SlmSearchError as error:  # the promise is void on these documents, and answers say so; deleted pages must go
        return str(error)
    return None


def calibrate_loaded(choice: SearcherChoice, served: ServedPolicy, child: Child, most: int) -> Calibration:
    """Calibrate the policy that a child has loaded on its documents.

    Args:
        choice: its choice.
        served: policy.
        child: process that has loaded it.
        most: maximum number of questions to be played.

    Raises:
        EvaluationError: more would have to be played, or there are too few answers.
        SlmSearchError: the questions cannot be played.
    """
    file = _plays_file(choice, served)
    known = read_plays(file)
    played = child.call(collect, known, most) if known else None
    if played is None:
        raise EvaluationError(f"more than {most} questions would have to be played again")
    played.write(file)
    return _fit(played, str(served.index_key))


def _calibrate(choice: SearcherChoice, served: ServedPolicy, known: GradedPlays) -> tuple[Calibration, Path]:
    with Progress("calibrate", "questions") as progress:
        loaded, _ = in_child(playing.load, served)
        played = in_child(collect, known, progress=progress)
    assert played is not None  # without a maximum
    found, file = _fit(played, loaded.index_key or ""), choice.calibration_file(served.spec)
    played.write(_plays_file(choice, served))
    found.write(file)
    return found, file


def _fit(played: GradedPlays, index_key: str) -> Calibration:
    graded = [play.graded for play in played.plays if play.graded is not None]
    found = calibrate(graded, [play.page for play in played.plays], index_key)
    if found is None:
        asked = f"{len(played.plays)} questions of {played.split}"
        raise EvaluationError(f"{len(graded)} answers to {asked} are too few to calibrate: give more questions")
    return found


def _plays_file(choice: SearcherChoice, served: ServedPolicy) -> Path:
    return choice.calibration_file(served.spec).with_suffix(".plays.json")
