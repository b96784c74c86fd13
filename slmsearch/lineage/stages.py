"""Which stages of a flow would run again: because their keys change, or because what they left is damaged.

A changed input gives other keys, and all that stands on them is made anew. A damaged artefact keeps its key: only the stage that made
it runs again, and what stands on it is found as before.
"""

from collections.abc import Iterable
from typing import Any

from slmsearch.config import RunConfig
from slmsearch.corpus.fingerprint import source_parts
from slmsearch.errors import CorpusError
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import eval_sources
from slmsearch.learn.job import train_sources
from slmsearch.planner.sources import problems_parts

VALIDATE, INDEX, EVALUATE, TRAIN, COMPARE, REGISTER = STAGES = ("validate", "index", "evaluate", "train", "compare", "register")

_FOLLOWING = {
    VALIDATE: STAGES,
    INDEX: (INDEX, EVALUATE, TRAIN, COMPARE, REGISTER),
    EVALUATE: (EVALUATE, COMPARE),
    TRAIN: (EVALUATE, TRAIN, COMPARE, REGISTER),  # another adapter is evaluated anew
    COMPARE: (COMPARE,),
    REGISTER: (REGISTER,),
}
CHANGED_QUESTIONS = (VALIDATE, EVALUATE, TRAIN, COMPARE, REGISTER)
"""An index knows pages alone."""
CHANGED_MODEL = _FOLLOWING[TRAIN]


def following(*changed: str) -> tuple[str, ...]:
    """Return the stages that run again when the inputs of some change, in order."""
    found = {stage for first in changed for stage in _FOLLOWING[first]}
    return tuple(stage for stage in STAGES if stage in found)


def in_order(stages: Iterable[str]) -> tuple[str, ...]:
    """Return stages in the order of a flow, each once."""
    found = set(stages)
    return tuple(stage for stage in STAGES if stage in found)


def source_stages(recorded: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Name the parts of a source that changed, each with the stages that run again because of it."""
    changed: dict[str, tuple[str, ...]] = {}
    for name in sorted({*recorded, *now}):
        before, after = recorded.get(name), now.get(name)
        if before == after:
            continue
        if name == "sources" and isinstance(before, list) and isinstance(after, list):
            for table, stages, old, new in zip(("pages", "questions"), (STAGES, CHANGED_QUESTIONS), before, after, strict=True):
                if old != new:
                    changed[table] = stages
        elif name == "code":
            changed["code of slmsearch.corpus"] = (VALIDATE,)  # what it gives decides whether anything follows
        else:
            changed[name] = CHANGED_QUESTIONS if name == "split_seed" else STAGES
    return changed


def setting_stages(recorded: RunConfig, now: RunConfig) -> tuple[str, ...]:
    """Return the stages that run again where one configuration takes the place of another, by the keys of both."""
    before, after = _parts(recorded), _parts(now)
    return following(*(stage for stage in STAGES if before[stage] != after[stage]))


def _parts(config: RunConfig) -> dict[str, Any]:
    """Collect what the keys of each stage are made of, as far as it stands in the settings."""
    evaluated = {"split", "limit", "baselines", "policy"}
    planner = config.environment == "planner"
    return {
        VALIDATE: _source(config),
        INDEX: None if planner else config.retrieval.model_dump(mode="json", exclude={"top_k": True, "embedder": {"device"}}),
        EVALUATE: (
            eval_sources([], "", PolicySpec("trained", config.policy), config),
            config.evaluate.model_dump(mode="json", include=evaluated),
        ),
        TRAIN: (train_sources(config, "", ""), config.planner.sft.model_dump(mode="json") if planner else None),
        COMPARE: (config.decision.model_dump(mode="json"), config.control.model_dump(mode="json")),
        REGISTER: config.tracking.registered_model,
    }


def _source(config: RunConfig) -> dict[str, Any] | None:
    try:
        return problems_parts(config.planner) if config.environment == "planner" else source_parts(config.corpus)
    except CorpusError:
        return None
