"""Artifacts of a flow run in Prefect's UI: the link to MLflow, tables, the comparison, the lineage.

Retrieved and generated text is untrusted and ends up in Markdown: this module escapes and caps it.
"""

import json
import re
from collections.abc import Mapping, Sequence

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

MAX_CELL_CHARS = 600


def show_mlflow_run(address: str, run_id: str) -> None:
    """Link to the MLflow run."""
    create_link_artifact(address, link_text=f"MLflow run {run_id}", key="mlflow-run", description="Parameters, curves, traces and files")


def show_report(address: str, run_id: str) -> None:
    """Link to the report page that the MLflow run holds."""
    create_link_artifact(address, link_text=f"Report of MLflow run {run_id}", key="report", description="Every episode, curve and table")


def show_table(key: str, rows: Sequence[Mapping[str, str]], description: str) -> None:
    """Show rows whose cells may hold foreign text."""
    create_table_artifact([{name: escape(text) for name, text in row.items()} for row in rows], key=key, description=description)


def show_comparison(markdown: str) -> None:
    """Show the comparison and the decision."""
    create_markdown_artifact(markdown, key="comparison", description="Before and after, paired by question")


def show_night(table: str, told: str, is_alarm: bool) -> None:
    """Show a night beside its references; `table` is Markdown whose cells are escaped."""
    verdict = escape(told)
    markdown = f"**{verdict}**\n\n{table}" if is_alarm else f"{verdict}\n\n{table}"
    create_markdown_artifact(markdown, key="night", description="The champion tonight, beside earlier nights and its promotion")


def show_forecast(told: str) -> None:
    """Show what the training is expected to bring."""
    create_markdown_artifact(escape(told), key="forecast", description="What the training is expected to bring")


def show_refresh(told: str) -> None:
    """Show what became of edited documents."""
    create_markdown_artifact(escape(told), key="documents", description="Whether the champion answers from the documents as they are")


def show_lineage(lineage: Mapping[str, str]) -> None:
    """Show the lineage of the run."""
    create_markdown_artifact(f"```json\n{json.dumps(lineage, indent=2)}\n```", key="lineage", description="Content keys, in order")


def escape(text: str) -> str:
    """Make untrusted text harmless in Markdown and cap it."""
    flat = " ".join(str(text).split())
    capped = flat if len(flat) <= MAX_CELL_CHARS else f"{flat[:MAX_CELL_CHARS]} …"
    return re.sub(r"([\\`*_{}\[\]()<>#|!~])", r"\\\1", capped)
