"""Questions made from the configured pages: the index they are searched in, the model that may write some, and the file."""

import json
from collections.abc import Sequence
from pathlib import Path

from slmsearch.config import RunConfig
from slmsearch.questions.filters import Filters
from slmsearch.questions.make import Made, Row, make_questions
from slmsearch.questions.written import FORM, QuestionGenerator
from slmsearch.staging import replace_text
from tasks.progress import Progress


def made_questions(config: RunConfig, limit: int, seed: int) -> Made:
    """Make questions about the configured pages.

    Raises:
        CorpusError, IndexUnusableError, EmbedderError: the pages cannot be read or searched.
        JudgeError: a model is configured to write some, and does not answer.
    """
    from flows.cli.asking import open_indexed_corpus
    from slmsearch.judge.clients import make_client

    generator = QuestionGenerator(make_client(config.judge, FORM), config.judge) if config.judge.kind != "exact" else None
    if generator is not None:
        generator.check()
    toolbox = open_indexed_corpus(config).toolbox
    filters = Filters(toolbox.library, toolbox.index, config.retrieval.top_k)
    with Progress("questions", "pages") as progress:
        return make_questions(toolbox.library, filters, limit, seed, generator, progress)


def write_rows(out: Path, rows: Sequence[Row]) -> None:
    """Write questions as JSON lines; the file appears whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def render_made(made: Made) -> str:
    """Render counts."""
    counts = {"made": made.made, "kept": made.kept, "dropped": made.dropped, **({"faults": made.faults} if made.faults else {})}
    return "\n".join(f"{name:<8}{', '.join(f'{n} {what}' for what, n in found.items()) or 'none'}" for name, found in counts.items())
