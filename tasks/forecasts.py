"""Earlier forecasts beside what came of them, from the runs in MLflow."""

from statistics import mean
from typing import TypedDict

from slmsearch.config import PathsConfig, TrackingConfig
from tasks.tracking import PREFIX, open_tracker

FORECAST, OUTCOME = "forecast/", "compare/"


class PastForecast(TypedDict):
    """A forecast, and the gain that came of the training."""

    run_id: str
    name: str
    gain: dict[str, float]
    """Expected gain, as in a forecast: `value`, `low` and `high`."""
    outcome: float
    inside: bool
    """True if the outcome is in the forecast's interval."""
    beyond: bool
    """True if no training like it had been measured: it does not count."""


class PastForecasts(TypedDict):
    """All forecasts of an installation whose trainings ended."""

    forecasts: list[PastForecast]
    covered_frac: float | None
    """Share of the outcomes that are in the intervals, of trainings like those that were measured; None without any."""


def past_forecasts(paths: PathsConfig, tracking: TrackingConfig) -> PastForecasts:
    """Return the forecasts of an installation beside what came of them, the newest first."""
    tracker, found = open_tracker(paths, tracking), dict[tuple[str, ...], PastForecast]()
    for run in tracker.runs(f"metrics.`{FORECAST}gain` > -2"):
        metrics, trained = (
            tracker.metrics(run.id),
            tuple(run.tags.get(f"{PREFIX}{key}", run.id) for key in ("train_key", "eval_key_before")),
        )
        if (outcome := metrics.get(f"{OUTCOME}difference")) is not None and trained not in found:  # a run that repeats another counts once
            gain = {name: metrics[f"{FORECAST}{own}"] for name, own in (("value", "gain"), ("low", "low"), ("high", "high"))}
            inside, beyond = gain["low"] <= outcome <= gain["high"], bool(metrics.get(f"{FORECAST}beyond"))
            found[trained] = PastForecast(run_id=run.id, name=run.name, gain=gain, outcome=outcome, inside=inside, beyond=beyond)
    told = [one["inside"] for one in found.values() if not one["beyond"]]
    return {"forecasts": [*found.values()], "covered_frac": mean(told) if told else None}
