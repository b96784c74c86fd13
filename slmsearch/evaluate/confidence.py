"""Confidence of answers, and the threshold from which on they keep a promise such as "at most 5 % of them are wrong".

A logistic regression (scikit-learn) turns what an episode shows into a probability that its answer is right: the probability of the
answer's tokens, whether a section that was read states it, the rank of that page, the number of turns. It is fitted on one half of the
pages of the calibration questions. The other half gives the threshold: from the surest answers on, as few as could pass with a wrong one
among them, more are taken step by step until the (Clopper-Pearson) bound of the share of wrong ones exceeds the promise. This is
fixed-sequence testing in "learn then test" (Angelopoulos et al., 2021), for the risk "wrong among the answered". It holds for questions
like those of the calibration. Answers about one page are right or wrong together, so they count for fewer: their number is divided by the
design effect (Kish, 1965), 1 + (answers of the same page, its own included, in the mean - 1) times the correlation within a page.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path

import numpy as np

from slmsearch.artifacts.files import read_json, replace_json
from slmsearch.environments.searcher.answer_sources import AnswerSource
from slmsearch.environments.searcher.tools import SEARCH
from slmsearch.episodes.episode import Episode
from slmsearch.judge.exact import is_abstention

LEVEL = 0.05
"""Probability with which a promise may fail to hold."""
STEPS = 20
"""Number of steps from the surest answers to all, at each of which the promise is tested."""
NO_RANK = 10
"""Rank of a page that no search showed."""
HALVES_SEED = 1
"""Seed of the halves of the pages."""


@dataclass(frozen=True, slots=True)
class Graded:
    """An answer, by what its episode shows, and whether it is wrong."""

    shown: tuple[float, ...]
    wrong: bool
    cluster: str
    """First gold page of its question."""


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """The surest answers of a policy, from a threshold on."""

    threshold: float
    answered_frac: float
    """Share of all questions that are answered, those included whose answer is "I don't know"."""
    wrong_frac: float
    low: float
    high: float
    """95 % interval of the share of wrong ones."""
    n: int
    """Number of answers."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted confidence, and the scores by which a threshold is chosen."""

    index_key: str
    """Index version that it was made on; a promise holds on this one alone."""
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    answers: tuple[tuple[float, bool, int], ...]
    """Confidence of the answers of the half that decides, whether each is wrong, and the number of its page."""
    asked: int
    """Number of questions of that half."""

    def confidence(self, shown: Sequence[float]) -> float:
        """Return the probability that an answer is right, from what its episode shows."""
        parts = zip(shown, self.mean, self.scale, self.weights, strict=True)
        return 1 / (1 + exp(-(self.bias + sum(weight * (value - mean) / scale for value, mean, scale, weight in parts))))

    def keep(self, wrong_at_most: float) -> KeptAnswers | None:
        """Return the threshold from which on the promise holds for most answers; None if it holds for none."""
        from scipy.stats import beta

        ranked = sorted(self.answers, reverse=True)
        together = _correlation(ranked)
        least = next((n for n in range(2, len(ranked) + 1) if float(beta.ppf(1 - LEVEL, 2, n - 1)) <= wrong_at_most), len(ranked))
        best: KeptAnswers | None = None
        for n in range(least, len(ranked) + 1):
            if n < len(ranked) and (ranked[n - 1][0] == ranked[n][0] or (n - least) % max(1, len(ranked) // STEPS)):
                continue  # equal confidences stand on one side
            wrong = sum(bad for _, bad, _ in ranked[:n])
            effect = 1 + (sum(count * count for count in Counter(page for *_, page in ranked[:n]).values()) / n - 1) * together
            bad, good = wrong / effect, (n - wrong) / effect
            if wrong == n or float(beta.ppf(1 - LEVEL, bad + 1, good)) > wrong_at_most:
                break
            low = float(beta.ppf(LEVEL / 2, bad, good + 1)) if wrong else 0.0
            best = KeptAnswers(ranked[n - 1][0], n / self.asked, wrong / n, low, float(beta.ppf(1 - LEVEL / 2, bad + 1, good)), n)
        return best

    def write(self, path: Path) -> None:
        """Write it to a file, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_json(path, asdict(self))


def _correlation(answers: Sequence[tuple[float, bool, int]]) -> float:
    """Return the correlation of wrong answers within a page, 0 to 1: the intraclass correlation of an analysis of variance."""
    pages: dict[int, list[bool]] = defaultdict(list)
    for _, wrong, page in answers:
        pages[page].append(wrong)
    total, groups = len(answers), len(pages)
    if groups < 2 or total == groups:
        return 0.0
    mean = sum(wrong for _, wrong, _ in answers) / total
    shares = [(len(found), sum(found) / len(found)) for found in pages.values()]
    between = sum(count * (share - mean) ** 2 for count, share in shares) / (groups - 1)
    within = sum(count * share * (1 - share) for count, share in shares) / (total - groups)
    size = (total - sum(count * count for count, _ in shares) / total) / (groups - 1)
    spread = between + (size - 1) * within
    return min(1.0, max(0.0, (between - within) / spread)) if spread > 0 else 0.0


def read_calibration(path: Path) -> Calibration | None:
    """Read a calibration; None if there is none."""
    held = read_json(path)
    if "answers" not in held:
        return None
    answers = tuple((float(confidence), bool(wrong), int(page)) for confidence, wrong, page in held["answers"])
    mean, scale, weights = (tuple(map(float, held[name])) for name in ("mean", "scale", "weights"))
    return Calibration(held["index_key"], mean, scale, weights, held["bias"], answers, held["asked"])


def is_given(answer: str | None) -> bool:
    """Return True if an answer says something: it is there, and is not "I don't know"."""
    return answer is not None and not is_abstention(answer)


def describe(episode: Episode, sources: Sequence[AnswerSource]) -> tuple[float, ...]:
    """Return what an episode shows of its answer, as numbers.

    Returns:
        Sum and minimum of the log-probabilities of the last turn's tokens (nats; 0 where a policy gives none), its number of tokens, the
        number of turns, whether a section that was read states the answer, and the best rank of its page in a search, from 0.
    """
    last = episode.turns[-1]
    logprobs, stating = last.sampled_logprobs, {source.page_id for source in sources if source.supports}
    found = [made.result.page_ids for turn in episode.turns for made in turn.made if made.call.name == SEARCH and made.result.served]
    ranks = [place for pages in found for place, page in enumerate(pages) if page in stating]
    low = min(logprobs, default=0.0)
    return (sum(logprobs), low, float(len(logprobs)), float(len(episode.turns)), float(bool(stating)), float(min(ranks, default=NO_RANK)))


def calibrate(answers: Sequence[Graded], asked: Sequence[str], index_key: str) -> Calibration | None:
    """Fit the confidence on one half of the pages, and rank the answers of the other.

    Args:
        answers: given ones, with what their episodes show.
        asked: first gold page of every question that was asked, answered or not.
        index_key: index version that they were played on.

    Returns:
        The calibration; None if no answer was right, or a half of the pages has none.
    """
    from sklearn.linear_model import LogisticRegression

    pages = sorted(set(asked))
    first = set(np.random.default_rng(HALVES_SEED).permutation(pages)[::2].tolist())
    fit, rest = ([one for one in answers if (one.cluster in first) is side] for side in (True, False))
    right = sum(not one.wrong for one in fit)
    if not rest or not right:
        return None
    values = np.array([one.shown for one in fit])
    mean, scale = values.mean(0), np.maximum(values.std(0), 1e-6)
    weights, bias = np.zeros(len(mean)), log((right + 1) / (len(fit) - right + 1))  # of a policy that was never wrong, all are as sure
    if right < len(fit):
        model = LogisticRegression(max_iter=1000).fit((values - mean) / scale, [not one.wrong for one in fit])
        weights, bias = model.coef_[0], float(model.intercept_[0])
    rows = [tuple(map(float, row)) for row in (mean, scale, weights)]
    bare = Calibration(index_key, rows[0], rows[1], rows[2], bias, (), sum(page not in first for page in asked))
    numbers = {page: number for number, page in enumerate(pages)}
    return replace(bare, answers=tuple((bare.confidence(one.shown), one.wrong, numbers[one.cluster]) for one in rest))
