"""A watched folder under thousands of edits, while clients ask and the service is killed. Run it with `-m kill -s -k test_edits`.

`EDITS` (200), `EDIT_KILLS` (2), `EDIT_PAGES` (150) and `EDIT_SEED` (0) say how much and which; `--kill-home DIR` keeps everything, and a
later call with more edits goes on there. 200 edits take two minutes on two cores, 10,000 an hour and a half on busy ones.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.edited_service import MOMENTS, EditedService
from tests.e2e.small_world import PATIENCE_SECONDS, Embeddings
from tests.e2e.stand import wait_for
from tests.loopback import listening

EDITS, KILLS, PAGES, SEED = (
    int(os.environ.get(name, default)) for name, default in (("EDITS", 200), ("EDIT_KILLS", 2), ("EDIT_PAGES", 150), ("EDIT_SEED", 0))
)
CLIENTS = 3
BURST, PAUSE_S = (5, 30), (1.0, 6.0)
WARM, GROWTH, SLACK_MB = 5, 1.1, 30.0
"""Number of versions from which on the memory of a process is compared with that at its last one, and what it may grow by."""
MOST_VERSIONS = 4
"""The version that plays, the next one, the one of before until its last batch ends, and one that a kill has left."""


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EditedService]:
    kept = request.config.getoption("--kill-home")
    home = Path(kept).resolve() if kept else tmp_path
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    with listening(Embeddings) as address:
        made = EditedService(home, address, PAGES, SEED)
        made.start()
        yield made
        made.stop()
        if made.live.process is not None and made.live.process.poll() is None:
            made.live.process.kill()


@pytest.mark.kill
@pytest.mark.timeout(4 * 3600)
def test_after_all_edits_and_kills_nothing_wrong_was_said_and_nothing_is_lost_or_left(service: EditedService) -> None:
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        try:
            clients = [pool.submit(service.ask_on, number) for number in range(CLIENTS)]
            edit(service, pool)
            wait_for(service.is_settled, 2 * PATIENCE_SECONDS, "the folder is served as it is", 0.5)
            wait_for(lambda: not service.leftovers(), PATIENCE_SECONDS, "nothing is left", 0.5)
            service.measure()
            assert not any(client.done() for client in clients), "all asked to the end"
        finally:
            service.stop()
    assert service.live.process is not None
    service.live.process.send_signal(signal.SIGTERM)
    assert service.live.process.wait(PATIENCE_SECONDS) == 0
    print(f"\n{service.folder.kinds}, {dict(service.counts)}, at most {service.most_versions} versions at once")
    check_memory(service.lives)
    assert not service.wrong and not service.failed and service.most_versions <= MOST_VERSIONS


def edit(service: EditedService, pool: ThreadPoolExecutor) -> None:
    """Edit in bursts, no faster than the service can follow, and kill it at random in the middle of that."""
    chance, folder, moments = random.Random(f"{SEED} kills"), service.folder, [*MOMENTS]
    kills = sorted(chance.sample(range(EDITS // 10, EDITS * 7 // 10), KILLS))[service.kills :]
    killing: Future[None] | None = None
    while folder.done < EDITS or kills:
        service.edit(min(chance.randint(*BURST), max(1, EDITS - folder.done)))
        wait_for(service.keeps_up, PATIENCE_SECONDS, "an edit is served", 0.5)
        if killing is not None and killing.done():
            killing = killing.result()
        if killing is None and kills and kills[0] <= folder.done and service.served() > len(kills) % 4:
            killing = pool.submit(service.kill, moments[len(kills) % len(moments)], random.Random(f"{SEED} {kills.pop(0)}"))
        time.sleep(chance.uniform(*PAUSE_S))
    if killing is not None:
        killing.result()


def check_memory(lives: list[list[list[float]]]) -> None:
    """Compare the memory of each process at its last version with that at its fifth: of the service, and of the process that builds."""
    for life in ([one for one in life if one[2] >= WARM] for life in lives):
        if life:
            (*_, served, own, builder, _), (*_, served_last, own_last, builder_last, _) = life[0], life[-1]
            print(f"versions {served:.0f} to {served_last:.0f}: {own:.0f} to {own_last:.0f} MB, {builder:.0f} to {builder_last:.0f} MB")
            assert own_last <= GROWTH * own + SLACK_MB and builder_last <= GROWTH * builder + SLACK_MB
