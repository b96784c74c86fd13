"""The kill table as Markdown."""

import json
from pathlib import Path
from typing import Any

from slmsearch.report.tables import Table

HEADINGS = ("what", "signal", "stage", "moment", "what stood", "flow run", "MLflow", "true after", "resumable at", "same keys")


def write_table(path: Path, row: dict[str, Any]) -> None:
    """Add a cell, in place of an earlier one of its name, and write the table anew."""
    cells = path.with_suffix(".jsonl")
    rows = {found["cell"]: found for found in map(json.loads, cells.read_text().splitlines())} if cells.exists() else {}
    rows[row["cell"]] = row
    cells.write_text("".join(json.dumps(found) + "\n" for found in rows.values()))
    path.write_text(render(list(rows.values())) + "\n")


def render(rows: list[dict[str, Any]]) -> str:
    """Render the table and the lines that sum it up."""
    told = Table(HEADINGS, tuple(tuple(map(str, _columns(row))) for row in rows)).to_markdown()
    went_on = sum(row.get("flow_run") == "COMPLETED" for row in rows)
    broken = [row["cell"] for row in rows if not row["passed"]]
    verdict = (
        f"{len(broken)} did not pass: {', '.join(broken)}." if broken else "In all of them every state became true and the keys the same."
    )
    lines = [told, "", f"{len(rows)} kills, of which {went_on} did not end the flow run. {verdict}"]
    if ended := [row for row in rows if "states_s" in row and row["flow_run"] != "COMPLETED"]:
        longest = max(ended, key=lambda row: float(row["states_s"]))
        lines.append(f"Longest time from a kill to final states in both trackers: {longest['states_s']} s ({longest['cell']}).")
    return "\n".join(lines)


def _columns(row: dict[str, Any]) -> tuple[Any, ...]:
    state = row.get("flow_run", "?")
    true_after = "went on" if state == "COMPLETED" else f"{row.get('states_s', '?')} s"
    resumable = f"step {row['resumable_at']}" if row.get("resumable_at") and state != "COMPLETED" else ""
    same = "yes" if row.get("same") and row["passed"] else "no"
    seen = (row.get("moment", "not reached"), row.get("stood", ""), state, ", ".join(row.get("mlflow", ())))
    return (row["target"], row["signal"], row["stage"], *seen, true_after, resumable, same)
