"""The table of measured trainings: every run once, resumed after a kill, with what forecasts from it are worth."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from slmsearch.errors import ConfigError
from slmsearch.evaluate.forecast import RUNS, read_runs
from slmsearch.extensions.bench.forecast_runs import CORPORA, EXPERT, LENGTHS, LONG, STARTS, measure_runs, table_runs


class Commands:
    """Stands in for commands in processes of their own: makes what they would leave, and ends after some of them."""

    def __init__(self, last: int = 1000) -> None:
        self.calls: list[list[str]] = []
        self.last = last

    def __call__(self, arguments: Sequence[str]) -> Mapping[str, Any]:
        self.calls.append([*arguments])
        if len(self.calls) > self.last:
            raise KeyboardInterrupt
        given = dict(itertools.pairwise(arguments))
        if "--out" in given:
            out = Path(given["--out"])
            out.mkdir(parents=True)
            (out / "config.json").write_text("{}")
            (out / "pages.jsonl").write_text("")
            (out / "questions.jsonl").write_text("".join(json.dumps({"id": str(n), "hops": 1 + n % 2}) + "\n" for n in range(6)))
            return {"ok": True}
        updates, number = int(given["--train.steps"]), len(self.calls)
        start = {"greedy": 0.5, "counts": [10 + number % 3, 20, 10, 30]}
        gain = 0.002 * updates + 0.001 * (number % 5)
        return {
            "forecast": {
                "start": start,
                "training": {"updates": updates, "questions": 8, "group_size": 8, "learning_rate": 1e-3, "weights": 10**6},
            },
            "metric": "answer/typed_match",
            "n": 480,
            "difference": {"mean": gain, "low": gain - 0.02, "high": gain + 0.02},
            "before": {"answer/typed_match": 0.5},
            "control": {"answer/typed_match": 0.51},
            "training": {"seconds": 60.0},
        }


def test_the_table_has_enough_runs_and_starts() -> None:
    runs = [*table_runs()]
    assert len(runs) == len(set(runs)) >= 36
    assert len({(run.start, run.corpus) for run in runs}) >= 24
    assert {run.updates for run in runs if run.start in LONG} == set(LENGTHS)
    assert len({run.name for run in runs}) == len(runs)


def test_a_killed_measurement_goes_on_and_its_table_serves_forecasts(tmp_path: Path) -> None:
    folder = tmp_path / "forecast"
    killed = Commands(last=9)
    with pytest.raises(KeyboardInterrupt):
        measure_runs(killed, folder, [], lambda _: None)
    done = len([*folder.glob("made/*/runs/*.json")])
    assert 0 < done < 9
    assert read_runs(str(tmp_path)) == (), "the table is written at the end"

    said: list[str] = []
    commands = Commands()
    found = measure_runs(commands, folder, [], said.append).values
    trained = [call for call in commands.calls if call[0] == "run"]
    assert len(said) == len(trained) == len([*table_runs()]) - done, "none is repeated"
    made = [call for call in [*killed.calls, *commands.calls] if call[0] in ("bootstrap", "sft")]
    assert len(made) == sum(bool(flags) for flags in STARTS.values()), "each start is made once"
    for call in trained:
        given = dict(itertools.pairwise(call))
        expert = any(name.replace(",", "").replace(" ", "-") in given["--policy.model"] for name in EXPERT)
        assert (given.get("--sft.recipe") == "expert") is expert
        if kept := given.get("--corpus.questions"):
            hops = {json.loads(line)["hops"] for line in Path(kept).read_text().splitlines()}
            assert hops == {CORPORA[Path(kept).parent.name.replace("-", " ")][1]}
    assert (found["runs"], found["starts"]) == (len([*table_runs()]), len(STARTS) * len(CORPORA))
    assert 0.8 <= found["covered_frac"] <= 1  # type: ignore[operator]
    assert found["hours_always"] == pytest.approx(len([*table_runs()]) / 60)
    assert len(read_runs(str(tmp_path))) == found["runs"]
    assert str(folder / RUNS) == found["table"]
    again = Commands()
    measure_runs(again, folder, ["--train.group_size", "4"], said.append)
    assert len([call for call in again.calls if call[0] == "run"]) == found["runs"], "with other settings every run is another one"
    assert len([call for call in again.calls if call[0] in ("bootstrap", "sft")]) == len(made), "and every start"
    with pytest.raises(ConfigError, match=r"--corpus\.pages: the trainings have starts and corpora of their own"):
        measure_runs(again, folder, ["--corpus.pages", "x"], said.append)
