"""Earlier forecasts beside what came of them, from the runs in MLflow."""

from statistics import mean
from typing import TypedDict

from slmsearch.config import PathsConfig, TrackingConfig
from tasks.tracking import open_tracker

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


class PastForecasts(TypedDict):
    """All forecasts of an installation whose trainings ended."""

    forecasts: list[PastForecast]
    covered_frac: float | None
    """Share of the outcomes that are in the intervals; None without forecasts."""


def past_forecasts(paths: PathsConfig, tracking: TrackingConfig) -> PastForecasts:
    """Return the forecasts of an installation beside what came of them, the newest first."""
    tracker, found = open_tracker(paths, tracking), list[PastForecast]()
    for run in tracker.runs(f"metrics.`{FORECAST}gain` > -2"):
        metrics = tracker.metrics(run.id)
        if (outcome := metrics.get(f"{OUTCOME}difference")) is not None:
            gain = {name: metrics[f"{FORECAST}{own}"] for name, own in (("value", "gain"), ("low", "low"), ("high", "high"))}
            inside = gain["low"] <= outcome <= gain["high"]
            found.append(PastForecast(run_id=run.id, name=run.name, gain=gain, outcome=outcome, inside=inside))
    return {"forecasts": found, "covered_frac": mean(one["inside"] for one in found) if found else None}
