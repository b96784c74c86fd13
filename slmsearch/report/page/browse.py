"""The episodes of a page: their selection, and a compact form for a thousand of them.

Each text is stored once, for all episodes that hold it: two policies that read the same section share it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slmsearch.episodes.episode import Episode, Turn
from slmsearch.episodes.rows import EpisodeRow
from slmsearch.foreign import visible
from slmsearch.report.page.results import BEFORE, RunResults

MAX_EPISODES = 1000
MAX_CHARS = 3_600_000
"""Characters of all episodes as JSON; if they have more, their texts are cut shorter."""
TEXT_LIMITS = (4000, 2000, 1200, 700, 400, 200)
"""Numbers of characters kept of one text; the first that makes everything fit is used."""
EXTREMES = 25
"""Number of best and of worst episodes that are named as such."""
GROUP_FRAC = 5
"""Divisor of the room: a named group takes at most this part before the other questions get some."""
_ENDS_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
BEST, WORST, WON, LOST, SUSPECT = "best", "worst", "won", "lost", "suspect"


@dataclass(frozen=True)
class Chosen:
    """An episode on the page."""

    run: int
    """Index of its run."""
    policy: str
    row: EpisodeRow
    episode: Episode
    groups: tuple[str, ...]
    rules: tuple[str, ...]
    """Rules of `suspects.py` that it matches."""


Side = tuple[int, str]
"""Index of a run, and a policy of it."""
Cases = dict[tuple[str, str], list[Chosen]]
"""Id and text of a question -> its episodes in all runs."""


def pair_sides(runs: Sequence[RunResults]) -> list[tuple[Side, Side]]:
    """Return the pairs of sides to compare question by question: the first run with each other, then a run's policies with its main one."""
    mains = [(number, run.main) for number, run in enumerate(runs) if run.main]
    policies = ((number, dict.fromkeys((BEFORE, *runs[number].evaluations)), main) for number, main in mains)
    within = [
        ((number, name), (number, main))
        for number, names, main in policies
        for name in names
        if name in runs[number].evaluations and name != main
    ]
    return [*((mains[0], other) for other in mains[1:]), *within]


def choose_episodes(runs: Sequence[RunResults], limit: int = MAX_EPISODES) -> list[Chosen]:
    """Choose the episodes of a page by question, so that the answers of all runs are side by side.

    Questions of the named groups come first. Of each question the trained and the untrained policy of every run come first; other
    policies take the remaining room.
    """
    cases: Cases = {}
    for number, run in enumerate(runs):
        groups = name_groups(run)
        for policy, evaluation in run.evaluations.items():
            for i, row in enumerate(evaluation.rows):
                one = Chosen(number, policy, row, evaluation.episodes[i], tuple(groups.get((policy, i), ())), run.suspects[policy][i])
                cases.setdefault((row.question_id, row.question), []).append(one)
    sides = {(number, policy) for number, run in enumerate(runs) for policy in (BEFORE, run.main) if policy in run.evaluations}
    pairs = [pair for pair in pair_sides(runs) if sides.issuperset(pair)]
    order = dict.fromkeys(_in_order(cases, pairs, limit // max(1, len(sides))))
    return sorted((one for question in order for one in cases[question]), key=lambda one: (one.run, one.policy) not in sides)[:limit]


def name_groups(run: RunResults) -> dict[tuple[str, int], list[str]]:
    """Name the groups of a run's episodes, by policy and position: best, worst, suspected."""
    found = [(name, SUSPECT, [i for i, rules in enumerate(struck) if rules]) for name, struck in run.suspects.items()]
    if run.main:
        rows = run.evaluations[run.main].rows
        order = sorted((i for i, row in enumerate(rows) if not row.failed), key=lambda i: (-rows[i].reward, rows[i].tool_calls, i))
        found.append((run.main, BEST, order[: min(EXTREMES, (len(order) + 1) // 2)]))
        found.append((run.main, WORST, order[::-1][: min(EXTREMES, len(order) // 2)]))
    groups: dict[tuple[str, int], list[str]] = {}
    for policy, group, members in found:
        for i in members:
            groups.setdefault((policy, i), []).append(group)
    return groups


def _in_order(cases: Cases, pairs: Sequence[tuple[Side, Side]], room: int) -> Iterator[tuple[str, str]]:
    named = {question: {*_changes(case, pairs), *(group for one in case for group in one.groups)} for question, case in cases.items()}
    for group in (LOST, SUSPECT, WON, WORST, BEST):
        yield from [question for question, groups in named.items() if group in groups][: max(1, room // GROUP_FRAC)]
    yield from cases


def _changes(case: Sequence[Chosen], pairs: Sequence[tuple[Side, Side]]) -> Iterator[str]:
    """Yield whether the answer to a question was lost or won, between the two sides of any pair."""
    right = {(one.run, one.policy): one.row.correct > 0.5 for one in case if not one.row.failed}
    for old, new in pairs:
        if old in right and new in right and right[old] is not right[new]:
            yield WON if right[new] else LOST


class Texts:
    """A store of texts, each kept once and named by its number."""

    def __init__(self, limit: int) -> None:
        """Start empty; texts are cut to `limit` characters."""
        self._limit, self._numbers, self.kept = limit, dict[str, int](), list[str]()

    def add(self, text: str | None) -> int:
        """Return a text's number; -1 for none."""
        if text is None:
            return -1
        if text not in self._numbers:
            self._numbers[text] = len(self.kept)
            self.kept.append(shorten(visible(text), self._limit))
        return self._numbers[text]


def pack_episodes(chosen: Sequence[Chosen], max_chars: int = MAX_CHARS) -> tuple[str, int, int]:
    """Pack episodes as JSON for a script element.

    Returns:
        The JSON, the number of its episodes (all, unless even short texts do not fit), and the characters kept of a text.
    """
    for limit in TEXT_LIMITS:
        packed = _pack(chosen, limit)
        if len(packed.encode()) <= max_chars:
            return packed, len(chosen), limit
    return pack_episodes(chosen[: len(chosen) * 2 // 3], max_chars)


def _pack(chosen: Sequence[Chosen], limit: int) -> str:
    texts = Texts(limit)
    return to_script_json({"episodes": [_pack_episode(one, texts) for one in chosen], "texts": texts.kept})


def _pack_episode(one: Chosen, texts: Texts) -> dict[str, object]:
    row, episode = one.row, one.episode
    packed = {
        "run": one.run,
        "policy": visible(one.policy),
        "id": visible(row.question_id),
        "kind": visible(row.kind),
        "source": visible(row.source),
        "q": texts.add(row.question),
        "gold": texts.add(row.gold),
        "answer": texts.add(row.answer),
        "right": -1 if row.failed else int(row.correct > 0.5),
        "typed": int(row.typed_match),
        "exact": int(row.exact_match),
        "f1": round(row.f1, 3),
        "rouge": -1 if row.rouge_l is None else round(row.rouge_l, 3),
        "reward": round(row.reward, 4),
        "parts": {name: round(value, 4) for name, value in row.reward_parts.items() if value},
        "stop": row.stop_reason,
        "broke": row.failure_mode,
        "failure": texts.add(row.failure or None),
        "calls": row.tool_calls,
        "tokens": row.sampled_tokens,
        "groups": one.groups,
        "rules": one.rules,
        "turns": [_pack_turn(turn, texts) for turn in episode.turns],
    }
    return {name: value for name, value in packed.items() if value not in (-1, "", (), {}) or name in ("right", "reward")}


def _pack_turn(turn: Turn, texts: Texts) -> dict[str, object]:
    packed: dict[str, object] = {"text": texts.add(turn.text or None), "answer": texts.add(turn.answer)}
    if turn.call is not None:
        packed |= {"tool": visible(turn.call.name), "argument": texts.add(turn.call.argument)}
    elif turn.program is not None:
        packed |= {"tool": "program", "argument": texts.add(turn.program)}
    if turn.result is not None:
        packed |= {"result": texts.add(turn.result.text), "unserved": int(not turn.result.served)}
    return {name: value for name, value in packed.items() if not (value == -1 or (name == "unserved" and not value))}


def shorten(text: str, limit: int) -> str:
    """Cut a text to `limit` characters and append the number of characters cut."""
    return text if len(text) <= limit else f"{text[:limit]} … {len(text) - limit:,} characters more"


def to_script_json(value: object) -> str:
    """Write JSON for a script element of type application/json: no text in it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: _ENDS_SCRIPT[found[0]], text)
