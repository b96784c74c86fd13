"""Qualification: a judge is measured on answers with known verdicts before it may teach.

The calibration set is `calibration.jsonl`. A person gave every verdict; facts are common knowledge or about fictional places and people,
and none is taken from a published data set. Wrong answers are near misses, other names, hedges, lists of candidates, instructions to the
judge, and empty ones; right ones are paraphrases, aliases, other formats of a number and other languages.

Results are stored by model, prompt and calibration set, so that a change of any of them requires a new measurement. `find_shortfalls` and
`LIMITS` decide from the stored outcomes whether a judge passes.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from slmsearch.artifacts.files import replace_text
from slmsearch.config import JudgeConfig
from slmsearch.corpus.questions import Question
from slmsearch.errors import JudgeError, PreflightError
from slmsearch.intervals import show_interval, wilson_interval
from slmsearch.judge.clients import JudgeClient, make_client
from slmsearch.judge.exact import RULES_VERSION, cause_of, typed_match
from slmsearch.judge.llm import LlmJudge
from slmsearch.judge.prompt import prompt_key, prompt_version
from slmsearch.judge.reply import Reply
from slmsearch.keys import content_key

REMEDY = (
    "run `slmsearch judge qualify`, take another judge.model, begin with judge.kind=exact and reward.correctness=f1, "
    "or set judge.require_qualified=false"
)
"""Remedy for a judge that has not passed."""
FOLDER = Path("judge") / "qualifications"
"""Folder of results under the data directory."""
CASES_AT_A_TIME = 40
"""Number of cases judged between two reports of progress."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """Limits that a judge must meet on the calibration set before it may teach.

    They were set before any judge was measured. Reinforcement learning finds and exploits false accepts; a false reject only costs signal.
    """

    alpha: float = 0.05
    """One minus the level of the intervals."""
    min_accuracy: float = 0.85
    """Lower limit of accuracy: its whole interval must be above."""
    max_false_accepts: float = 0.1
    """Upper limit of the share of wrong answers accepted: its whole interval must be below."""
    max_false_accepts_of_kind: float = 0.25
    """Upper limit of that share within any kind of wrong answer, without an interval: kinds are small."""
    max_false_rejects: float = 0.25
    """Upper limit of the share of right answers rejected: its whole interval must be below."""


LIMITS = JudgeLimits()


@dataclass(frozen=True, slots=True)
class Case:
    """Answer with a known verdict."""

    id: str
    kind: str
    """Relation of the answer to the accepted one."""
    question: str
    gold: str
    answer: str
    correct: bool

    def as_question(self) -> Question:
        """Return the question in the form that judges take."""
        return Question(self.id, self.question, self.gold)


def load_cases() -> list[Case]:
    """Load the shipped calibration set."""
    text = files("slmsearch.judge").joinpath("calibration.jsonl").read_text(encoding="utf-8")
    return [Case(**json.loads(line)) for line in text.splitlines()]


def calibration_key(cases: list[Case]) -> str:
    """Return the content key of a set."""
    return content_key(cases=[asdict(case) for case in cases])


@dataclass(frozen=True, slots=True)
class JudgeOutcome:
    """Judge's result on one case."""

    id: str
    kind: str
    known: bool
    """Right verdict."""
    verdict: bool | None
    """Verdict; None if there was none, for the reason in `failure`."""
    exact: bool
    """Verdict of the exact judge."""
    asked: bool
    """True if a model was asked, False if a rule decided."""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Qualification:
    """Measurement of a judge on the calibration set."""

    judge: str
    """Model digest, as its client identifies it."""
    model: str
    prompt_version: str
    key: str
    """Key of model, prompt and calibration set."""
    at: str
    """Time of the measurement, ISO 8601, UTC."""
    outcomes: tuple[JudgeOutcome, ...]
    verdict_s: float
    """Median seconds of one reply."""
    verdicts_per_s: float
    """Verdicts requested per second of wall time, with `concurrency` at a time."""
    concurrency: int


@dataclass(frozen=True, slots=True)
class JudgedShare:
    """Share with Wilson's score interval."""

    count: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """Value of the share; 0 without cases."""
        return self.count / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Right and wrong verdicts on the cases of a kind; cases without a verdict count only in `failed`."""

    kind: str
    accuracy: JudgedShare
    false_accepts: JudgedShare
    """Share of the wrong answers that were accepted."""
    false_rejects: JudgedShare
    """Share of the right answers that were rejected."""
    failed: int


def qualify(config: JudgeConfig, data_dir: str | Path, progress: Callable[[int, int], None] | None = None) -> Qualification:
    """Judge every case of the calibration set with the configured judge, without its cache, and store the results under `data_dir`.

    `progress` is called with the number of cases done and their total.

    Raises:
        JudgeError: the server does not answer, or lacks the model.
    """
    cases, client = load_cases(), _Timed(make_client(config))
    judge = LlmJudge(client, config)
    digest = judge.identify()
    outcomes: list[JudgeOutcome] = []
    started = time.perf_counter()
    for start in range(0, len(cases), CASES_AT_A_TIME):
        batch = cases[start : start + CASES_AT_A_TIME]
        verdicts = judge.judge([(case.as_question(), case.answer) for case in batch])
        outcomes += [
            JudgeOutcome(
                case.id, case.kind, case.correct, found.correct, typed_match(case.answer, (case.gold,)), found.by == "judge", found.failure
            )
            for case, found in zip(batch, verdicts, strict=True)
        ]
        if not client.seconds and (failure := next((found.failure for found in verdicts if found.failure), "")):
            raise JudgeError(failure.removeprefix(f"{JudgeError.boundary}: "))  # and what was measured before stays
        if progress is not None:
            progress(len(outcomes), len(cases))
    seconds = time.perf_counter() - started
    judge.release()
    measured = Qualification(
        judge=digest,
        model=config.model,
        prompt_version=prompt_version(),
        key=qualification_key(digest, cases),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        outcomes=tuple(outcomes),
        verdict_s=median(client.seconds) if client.seconds else 0.0,
        verdicts_per_s=len(client.seconds) / seconds,
        concurrency=config.concurrency,
    )
    path = Path(data_dir) / FOLDER / f"{measured.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(asdict(measured), ensure_ascii=False, indent=1) + "\n")
    return measured


class _Timed:
    """Client that records the time of each reply."""

    def __init__(self, client: JudgeClient) -> None:
        self._client = client
        self.seconds: list[float] = []
        self.identify, self.release = client.identify, client.release

    def ask(self, prompt: str) -> Reply:
        started = time.perf_counter()
        reply = self._client.ask(prompt)
        self.seconds.append(time.perf_counter() - started)
        return reply


def qualification_key(digest: str, cases: list[Case]) -> str:
    """Return the key of the judge, prompt, rules and set for which a qualification is valid."""
    return content_key(judge=digest, prompt=prompt_key(), rules=RULES_VERSION, calibration=calibration_key(cases))


def find_qualification(config: JudgeConfig, data_dir: str | Path) -> tuple[str, Qualification | None]:
    """Load the measurement of the configured judge, if there is one; the server is asked only for its model.

    Returns:
        The model's digest, and the result if there is one.

    Raises:
        JudgeError: the server does not answer or lacks the model, or the stored result is damaged.
    """
    digest = LlmJudge(make_client(config), config).identify()
    path = Path(data_dir) / FOLDER / f"{qualification_key(digest, load_cases())}.json"
    if not path.is_file():
        return digest, None
    try:
        return digest, TypeAdapter(Qualification).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise JudgeError(f"{path} is damaged ({error}); measure the judge again: slmsearch judge qualify") from error


def measure_kinds(outcomes: Iterable[JudgeOutcome], alpha: float) -> list[KindFigures]:
    """Compute the figures of all outcomes, and of each kind in the order of the set."""
    groups: dict[str, list[JudgeOutcome]] = {ALL: []}
    for outcome in outcomes:
        groups[ALL].append(outcome)
        groups.setdefault(outcome.kind, []).append(outcome)
    return [_measure(kind, group, alpha) for kind, group in groups.items()]


def _measure(kind: str, outcomes: Sequence[JudgeOutcome], alpha: float) -> KindFigures:
    given = [outcome for outcome in outcomes if outcome.verdict is not None]
    right = _share([outcome.verdict is outcome.known for outcome in given], alpha)
    accepted = _share([bool(outcome.verdict) for outcome in given if not outcome.known], alpha)
    rejected = _share([not outcome.verdict for outcome in given if outcome.known], alpha)
    return KindFigures(kind, right, accepted, rejected, failed=len(outcomes) - len(given))


def _share(found: Sequence[bool], alpha: float) -> JudgedShare:
    count, n = sum(found), len(found)
    return JudgedShare(count, n, *wilson_interval(count, n, alpha))


def measure_kappa(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return the agreement of two raters beyond chance (Cohen, Educational and Psychological Measurement 20, 1960).

    It is 0 if one of them always gives the same verdict: agreement is then no better than chance.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    table = [[sum(pair == (a, b) for pair in pairs) for b in (True, False)] for a in (True, False)]
    if any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
        return 0.0
    return float(cohens_kappa(table, return_results=False))


def find_shortfalls(qualification: Qualification, limits: JudgeLimits = LIMITS) -> list[str]:
    """Return the reasons why a judge does not pass; an empty list means that it passes.

    The rule: every case has a verdict; the intervals of accuracy, false accepts and false rejects over all cases lie wholly on the right
    side of their limits; in no kind does the share of false accepts exceed `max_false_accepts_of_kind`.
    """
    whole, *kinds = measure_kinds(qualification.outcomes, limits.alpha)
    found = []
    if whole.failed:
        failures = [outcome.failure for outcome in qualification.outcomes if outcome.verdict is None]
        causes = ", ".join(f"{count} {cause}" for cause, count in Counter(map(cause_of, failures)).most_common())
        found.append(f"{whole.failed} cases without a verdict ({causes}; the first: {failures[0]})")
    if whole.accuracy.low < limits.min_accuracy:
        found.append(f"accuracy {_percent(whole.accuracy)} may be below {limits.min_accuracy:.0%}")
    if whole.false_accepts.high > limits.max_false_accepts:
        found.append(f"false accepts {_percent(whole.false_accepts)} may be above {limits.max_false_accepts:.0%}")
    if whole.false_rejects.high > limits.max_false_rejects:
        found.append(f"false rejects {_percent(whole.false_rejects)} may be above {limits.max_false_rejects:.0%}")
    for kind in kinds:
        if kind.false_accepts.value > limits.max_false_accepts_of_kind:
            accepted = f"{kind.false_accepts.count} of {kind.false_accepts.n} accepted"
            found.append(f"{kind.kind}: {accepted}, more than {limits.max_false_accepts_of_kind:.0%}")
    return found


def _percent(share: JudgedShare) -> str:
    return f"{share.value:.1%} {show_interval(share.low, share.high, '.1%')}"


def summarise_qualification(qualification: Qualification) -> dict[str, Any]:
    """Return the figures of a qualification and whether it passes, as JSON values; single outcomes are left out."""
    outcomes = qualification.outcomes
    given = [(outcome.verdict, outcome.exact, outcome.known) for outcome in outcomes if outcome.verdict is not None]
    shortfalls = find_shortfalls(qualification)
    return {
        **{name: getattr(qualification, name) for name in Qualification.__slots__ if name != "outcomes"},
        "passed": not shortfalls,
        "shortfalls": shortfalls,
        "cases": len(outcomes),
        "asked": sum(outcome.asked for outcome in outcomes),
        "kinds": [asdict(kind) for kind in measure_kinds(outcomes, LIMITS.alpha)],
        "kappa_exact": measure_kappa([(verdict, exact) for verdict, exact, _ in given]),
        "kappa_known": measure_kappa([(verdict, known) for verdict, _, known in given]),
        "limits": asdict(LIMITS),
    }


@dataclass(frozen=True, slots=True)
class JudgeState:
    """State of a judge's qualification, with the reason."""

    passed: bool
    found: str
    """Summary in one line."""
    summary: dict[str, Any]
    """Result of `summarise_qualification`; empty if the judge has not been measured."""


def read_state(config: JudgeConfig, data_dir: str | Path) -> JudgeState:
    """Return whether the configured language model has passed with this prompt.

    Raises:
        JudgeError: see `find_qualification`.
    """
    digest, found = find_qualification(config, data_dir)
    name = f"{config.model} ({digest[:30]}) with prompt version {prompt_version()}"
    if found is None:
        return JudgeState(False, f"{name} has not been measured", {})
    summary = summarise_qualification(found)
    if not summary["passed"]:
        return JudgeState(False, f"{name} did not pass on {found.at[:10]}: {'; '.join(summary['shortfalls'])}", summary)
    whole = measure_kinds(found.outcomes, LIMITS.alpha)[0]
    figures = f"accuracy {_percent(whole.accuracy)}, false accepts {_percent(whole.false_accepts)}"
    return JudgeState(True, f"{name} passed on {found.at[:10]}: {figures}", summary)


def require_qualified(config: JudgeConfig, data_dir: str | Path) -> JudgeState | None:
    """Refuse a language model judge that has not passed, unless `judge.require_qualified` is off.

    Returns:
        The state of the judge; None for the exact judge, which needs no qualification.

    Raises:
        PreflightError: the judge has not passed with this model and prompt.
        JudgeError: see `find_qualification`.
    """
    if config.kind == "exact":
        return None
    try:
        state = read_state(config, data_dir)
    except JudgeError as error:
        if config.require_qualified:
            raise
        return JudgeState(False, str(error), {})
    if not state.passed and config.require_qualified:
        raise PreflightError(f"judge {state.found}; {REMEDY}")
    return state
