"""Which episodes of an evaluation are worth keeping as traces: a bounded sample that shows every way an episode can go."""

import random
from collections import defaultdict
from collections.abc import Sequence

from slmsearch.environments.rows import EpisodeRow


def sample_rows(rows: Sequence[EpisodeRow], limit: int, seed: int) -> list[int]:
    """Choose at most `limit` rows, spread as evenly as possible over right and wrong, kind and stop reason.

    Every stratum gives one row before any gives a second; small strata are therefore over-represented, on purpose.

    Returns:
        Indices into `rows`, ascending.
    """
    strata: defaultdict[tuple[bool, str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        strata[(row.correct > 0.5, row.kind, row.stop_reason)].append(i)
    chance = random.Random(seed)
    queues = [chance.sample(members, len(members)) for _, members in sorted(strata.items())]
    chance.shuffle(queues)  # otherwise a limit below the number of strata would always drop the same ones
    chosen: list[int] = []
    while len(chosen) < limit and any(queues):
        for queue in queues:
            if queue and len(chosen) < limit:
                chosen.append(queue.pop())
    return sorted(chosen)
