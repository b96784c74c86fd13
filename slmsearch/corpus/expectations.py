"""Validation of a materialised corpus with Great Expectations.

Each check is a column expectation over flat rows; nested values and relations between rows are numbers in a column. Critical findings must
stop a run before its expensive part; warnings do not. This module draws that line: Great Expectations' own `success` is false when only a
warning failed.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slmsearch.corpus.data_report import DataFinding, DataReport, Severity
from slmsearch.corpus.documents.skipped import ORDINARY, Skipped
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question, content_words, holds_answer
from slmsearch.corpus.store import read_manifest, read_pages, read_questions
from slmsearch.errors import CorpusError
from slmsearch.foreign import cause_of

if TYPE_CHECKING:
    import pandas as pd

MAX_QUESTION_CHARS = 600
"""Question length above which validation reports it, in characters: a question is a sentence or two."""
MAX_PAGE_CHARS = 400_000
"""Page length above which validation reports it, in characters: such a page is several documents, which a search cannot tell apart."""
SAMPLE_IDS = 50
"""Number of failing ids kept per finding."""
WELL_FORMED_ID = r"^[^\s\x00-\x1f\x7f]+$"
"""Pattern of page ids: at least one character, no white space, no control characters. A page id is a word in tool calls and result
lines."""
PLAIN_ID = r"^[^\"'`\\<>]+$"
"""Pattern without quotes, backslashes and angle brackets: these need escapes in a tool call, and small models escape badly."""

ANSWER_IN_SECTION_KINDS = ("one_hop", "two_hop", "plain", "template", "cloze", "how_to", "written")
"""Kinds of questions whose answer is copied from a section; a count occurs in no section, and unanswerable ones have no answer."""

Row = dict[str, str | int]
_EXPECTATIONS = {
    "unique": ("ExpectColumnValuesToBeUnique", None),
    "matches": ("ExpectColumnValuesToMatchRegex", "regex"),
    "at_least": ("ExpectColumnValuesToBeBetween", "min_value"),
    "at_most": ("ExpectColumnValuesToBeBetween", "max_value"),
}
"""Kind of check -> the expectation, and the name of its argument for the check's value."""


@dataclass(frozen=True, slots=True)
class DataCheck:
    """Expectation on a column, with its severity, message and remedy."""

    column: str
    kind: Literal["unique", "matches", "at_least", "at_most"]
    severity: Severity
    message: str
    value: str | int = 0


PAGE_CHECKS = (
    DataCheck("id", "unique", "critical", "page ids occur more than once; give every page its own"),
    DataCheck("id", "matches", "critical", "page ids are empty or hold white space or control characters; use `_`", WELL_FORMED_ID),
    DataCheck("id", "matches", "warning", "page ids hold quotes, backslashes or angle brackets; tool calls must escape them", PLAIN_ID),
    DataCheck(
        "look_alikes",
        "at_most",
        "warning",
        "page ids look the same as another one: composed otherwise (Unicode NFC, NFD), or characters that show nothing; rename one",
    ),
    DataCheck("title_chars", "at_least", "critical", "pages have no title; a search shows titles", 1),
    DataCheck("content_chars", "at_least", "critical", "pages are empty; fill or remove them", 1),
    DataCheck("sections", "at_least", "critical", "pages cannot be split into sections", 1),
    DataCheck("sections_with_text", "at_least", "warning", "pages hold headings but no text", 1),
    DataCheck(
        "shared_section_ids", "at_most", "warning", "section ids equal those of another page; a `:` in page ids or headings does that"
    ),
    DataCheck("content_chars", "at_most", "warning", f"pages are longer than {MAX_PAGE_CHARS:,} characters", MAX_PAGE_CHARS),
)


QUESTION_CHECKS = (
    DataCheck("id", "unique", "critical", "question ids occur more than once; give every question its own"),
    DataCheck("question_chars", "at_least", "critical", "questions are empty; fill or remove them", 1),
    DataCheck("answer_chars", "at_least", "critical", 'answers are empty; fill them, or write "I don\'t know" if there is none', 1),
    DataCheck("missing_pages", "at_most", "critical", "gold pages are not in the corpus; add the pages or remove the questions"),
    DataCheck("missing_sections", "at_most", "critical", "gold sections are not on their pages; compare them with the pages' headings"),
    DataCheck("answer_missing", "at_most", "critical", "the answer does not stand in the gold section; correct section or answer"),
    DataCheck("leaking", "at_most", "critical", "a gold page or entity is also gold in another split; build the corpus again"),
    DataCheck("near_duplicate", "at_most", "warning", "questions use the same words as another one"),
    DataCheck("question_chars", "at_most", "warning", f"questions are longer than {MAX_QUESTION_CHARS} characters", MAX_QUESTION_CHARS),
)


def validate_corpus(corpus_dir: Path) -> DataReport:
    """Check a materialised corpus.

    Raises:
        CorpusError: the corpus cannot be read.
    """
    manifest = read_manifest(corpus_dir)
    pages, questions = list(read_pages(corpus_dir)), list(read_questions(corpus_dir))
    # Repeated ids are a finding; a library holds the first of each.
    library = Library({page.id: page for page in reversed(pages)}.values())
    tables: dict[str, tuple[list[Row], tuple[DataCheck, ...]]] = {
        "pages": (page_rows(pages, library), PAGE_CHECKS),
        "questions": (question_rows(questions, library), QUESTION_CHECKS),
    }
    findings = [finding for table, (rows, checks) in tables.items() if rows for finding in _failed(table, rows, checks)]
    if manifest.dropped_questions:
        message = "questions were left out because their pages lie in two splits"
        findings.append(DataFinding("split_by_page", "questions", "page_ids", "warning", manifest.dropped_questions, (), message))
    findings.sort(key=lambda finding: ("critical", "warning", "info").index(finding.severity))
    return DataReport(
        digest=manifest.digest,
        checks=sum(len(checks) for _, checks in tables.values()) + 1,
        counts={"pages": len(pages), "sections": sum(len(library.sections(page.id)) for page in pages), "questions": len(questions)},
        findings=tuple(findings),
    )


def find_skipped(skipped: Sequence[Skipped]) -> list[DataFinding]:
    """Describe the files of a folder that were left out, one finding per reason, warnings first. They belong to the source, not to the
    corpus."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for item in skipped:
        by_reason[item.reason].append(item.path)
    findings = []
    for reason, paths in by_reason.items():
        severity: Severity = "info" if reason in ORDINARY else "warning"
        message = f"not taken: {reason}"
        findings.append(DataFinding("documents_taken", "pages", "file", severity, len(paths), tuple(paths[:SAMPLE_IDS]), message))
    return sorted(findings, key=lambda finding: finding.severity, reverse=True)


def _failed(table: str, rows: list[Row], checks: Sequence[DataCheck]) -> list[DataFinding]:
    import pandas as pd

    findings = []
    for check, outcome in zip(checks, _outcomes(table, pd.DataFrame(rows), checks), strict=True):
        if outcome.exception_info.get("raised_exception"):
            cause = cause_of(outcome.exception_info.get("exception_message"))
            raise CorpusError(f"Great Expectations could not check {table}.{check.column} ({cause}); is the pinned version installed?")
        if not outcome.success:
            ids = tuple(dict.fromkeys(str(row["id"]) for row in outcome.result["unexpected_index_list"]))[:SAMPLE_IDS]
            kind, failed = outcome.expectation_config.type, outcome.result["unexpected_count"]
            findings.append(DataFinding(kind, table, check.column, check.severity, failed, ids, check.message))
    return findings


def _outcomes(table: str, frame: "pd.DataFrame", checks: Sequence[DataCheck]) -> list[Any]:
    """Run the checks in an ephemeral context; results arrive in any order and are sorted in the order of the checks."""
    import great_expectations as gx
    import great_expectations.expectations as gxe
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_or_update_pandas(name=table)
    batch = source.add_dataframe_asset(name=table).add_batch_definition_whole_dataframe(table)
    suite = context.suites.add_or_update(gx.ExpectationSuite(name=table))
    for number, check in enumerate(checks):
        name, argument = _EXPECTATIONS[check.kind]
        bound = {argument: check.value} if argument else {}
        expectation = getattr(gxe, name)(column=check.column, severity=check.severity, meta={"number": number}, **bound)
        suite.add_expectation(expectation)
    definition = gx.ValidationDefinition(name=table, data=batch, suite=suite)
    checkpoint = gx.Checkpoint(
        name=table,
        validation_definitions=[context.validation_definitions.add_or_update(definition)],
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["id"]},
    )
    results = context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": frame}).run_results
    outcomes = [outcome for result in results.values() for outcome in result.results]
    return sorted(outcomes, key=lambda outcome: outcome.expectation_config.meta["number"])


def page_rows(pages: Sequence[Page], library: Library) -> list[Row]:
    """Return numbers that describe each page."""
    owners = Counter(section.id for page in library.pages() for section in library.sections(page.id))
    looks = Counter(_looks(page_id) for page_id in {page.id for page in pages})
    rows: list[Row] = []
    for page in pages:
        sections = library.sections(page.id)
        rows.append(
            {
                "id": page.id,
                "look_alikes": looks[_looks(page.id)] - 1,
                "title_chars": len(page.title.strip()),
                "content_chars": len(page.content.strip()),
                "sections": len(sections),
                "sections_with_text": sum(1 for section in sections if section.level == 0 or "\n" in section.text),
                "shared_section_ids": sum(1 for section in sections if owners[section.id] > 1),
            }
        )
    return rows


def _looks(name: str) -> str:
    """Return the visible form of a name: composed characters, without invisible formatting characters."""
    return unicodedata.normalize("NFC", "".join(char for char in name if unicodedata.category(char) != "Cf"))


def question_rows(questions: Sequence[tuple[Question, str]], library: Library) -> list[Row]:
    """Return numbers that describe each question: 1 for a problem, or the number of problems."""
    leaking = _leaking(questions)
    duplicates = _near_duplicates([question for question, _ in questions])
    return [
        {
            "id": question.id,
            "question_chars": len(question.question.strip()),
            "answer_chars": len(question.answer.strip()),
            "missing_pages": sum(1 for page_id in question.page_ids if library.page(page_id) is None),
            "missing_sections": sum(1 for section_id in question.section_ids if library.section(section_id) is None),
            "answer_missing": int(_answer_is_missing(question, library)),
            "leaking": int(question.id in leaking),
            "near_duplicate": int(question.id in duplicates),
        }
        for question, _ in questions
    ]


def _answer_is_missing(question: Question, library: Library) -> bool:
    if question.kind not in ANSWER_IN_SECTION_KINDS or not question.section_ids or question.answer == UNKNOWN_ANSWER:
        return False
    if question.is_closed and len(question.section_ids) > 1:  # several sections together decide between yes and no
        return False
    # In generated worlds the last hop holds the answer, as whole words. Elsewhere the order of sections may be arbitrary, and
    # annotators mark parts of words: in SQuAD "manual" occurs in "manually".
    is_plain = question.kind == "plain"
    gold = question.section_ids if is_plain else question.section_ids[-1:]
    texts = [section.text for section_id in gold if (section := library.section(section_id))]
    held = any(holds_answer(text, answer) or (is_plain and answer in text) for text in texts for answer in question.answers)
    # A missing section is a separate finding.
    return bool(texts) and not held


def _leaking(questions: Sequence[tuple[Question, str]]) -> set[str]:
    """Return the questions with a gold page or entity that is also gold in another split."""
    splits: dict[str, set[str]] = defaultdict(set)
    for question, split in questions:
        for node in _gold(question):
            splits[node].add(split)
    return {question.id for question, _ in questions if any(len(splits[node]) > 1 for node in _gold(question))}


def _gold(question: Question) -> list[str]:
    return [f"page {page_id}" for page_id in question.page_ids] + [f"entity {name}" for name in question.entities]


def _near_duplicates(questions: Sequence[Question]) -> set[str]:
    """Return the questions with the same words as another one, apart from small words, order and repetition."""
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for question in questions:
        groups[content_words(question.question)].append(question.id)
    return {question_id for group in groups.values() if len(group) > 1 for question_id in group}
