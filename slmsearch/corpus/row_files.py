"""Rows of files: JSON lines, JSON, CSV, Parquet, and folders in BEIR's form.

Every reader yields a row with its location, for messages. Rows are not interpreted here: `question_sets` and `records` do that.
"""

import csv
import json
import logging
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from slmsearch.corpus.records import Row
from slmsearch.errors import CorpusError
from slmsearch.foreign import cause_of

PARQUET_ROWS = 64
"""Number of rows read at a time: a few bytes of a Parquet file may expand to many long texts."""
EXPANSION, LEAST_EXPANDED = 1000, 1 << 30
"""Maximum ratio of a Parquet file's content to its size, and the number of bytes that is always allowed."""
BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/")
BEIR_SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
"""Files of relevance judgements, without their suffix, and the splits of their queries."""
FORMS = "a list of rows, HotpotQA's or MuSiQue's list of questions, or SQuAD's object with data, paragraphs and qas"
LISTS = ("aliases", "page_ids", "section_ids", "entities")
"""Columns of a CSV file whose cells hold several values, between `|`."""
MAX_CELL = 1 << 26
"""Length of a CSV cell, in characters; Python's own limit is shorter than many a page."""
TITLE_WORDS = 7
"""Words of a document without a title that are taken for one."""
NUMBERS, TRUTHS = ("hops", "section"), {"true": True, "false": False}
_BLANK, _HEADING = re.compile(r"\s*"), re.compile(r"^#", re.MULTILINE)
logger = logging.getLogger(__name__)


def read_file(path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a file, by its suffix.

    Raises:
        CorpusError: the file cannot be read, is broken, or of another kind.
    """
    if path.suffix not in READERS:
        known = ", ".join(READERS)
        raise CorpusError(f"{path} is none of {known}, and no folder of documents; convert it, give its folder, or write hub:owner/name")
    try:
        yield from READERS[path.suffix](path)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror or error}); check its permissions") from error


def _jsonl_rows(path: Path) -> Iterator[tuple[Row, str]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{where}: broken JSON ({error}); fix or remove the line") from error
            if not isinstance(row, dict):
                raise CorpusError(f"{where}: a JSON object is expected, not {type(row).__name__}; write one object a line")
            yield row, where


def _parquet_rows(path: Path) -> Iterator[tuple[Row, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = expanded = 0
    try:
        most = max(LEAST_EXPANDED, EXPANSION * path.stat().st_size)
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    expanded += sum(len(value) for value in row.values() if isinstance(value, str | list))
                    if expanded > most:
                        raise CorpusError(f"{path} expands to more than {EXPANSION} times its size, and {most >> 20} MB; write it as JSONL")
                    yield row, f"{path} row {number}"
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path} is no readable Parquet file ({cause_of(error)}); write it again") from error


def _json_rows(path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a JSON file: the items of its list, or the questions of SQuAD's articles."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip()[:1] == "[":
            yield from _listed_rows(text, path)
            return
        whole, end = json.JSONDecoder().raw_decode(text, _after_blank(text, 0))
        if text[end:].strip():  # a line each, whatever the suffix says
            yield from _jsonl_rows(path)
            return
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: broken JSON ({error}); is the file whole? It is {FORMS}") from error
    articles = whole.get("data") if isinstance(whole, dict) else None
    if not isinstance(articles, list) or not all(isinstance(article, dict) for article in articles):
        raise CorpusError(f"{path} is not of a known form: {FORMS}; convert it to rows of id, question, answer")
    for number, article in enumerate(articles, start=1):
        where = f"{path} item {number}"
        if "paragraphs" in article:
            yield from ((row, where) for row in _squad_rows(article, where))
        else:
            yield article, where


def _listed_rows(text: str, path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the items of a list, one after the other: those of a large file do not fit into memory together."""
    decoder, number = json.JSONDecoder(), 0
    place = _after_blank(text, text.index("[") + 1)
    while text[place : place + 1] != "]":
        number += 1
        row, place = decoder.raw_decode(text, place)
        if not isinstance(row, dict):
            raise CorpusError(f"{path} item {number}: a JSON object is expected, not {type(row).__name__}; a file is {FORMS}")
        yield row, f"{path} item {number}"
        place = _after_blank(text, place)
        if text[place : place + 1] not in (",", "]"):
            raise json.JSONDecodeError("Expecting ',' or ']'", text, place)
        place = _after_blank(text, place + (text[place] == ","))
    if text[place + 1 :].strip():
        raise json.JSONDecodeError("Extra data behind the list", text, place + 1)


def _after_blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _squad_rows(article: Row, where: str) -> Iterator[Row]:
    """Yield the questions of one of SQuAD's articles as rows with a context.

    An impossible question, as in SQuAD 2.0, has no answer; a paragraph without questions is a row with a blank one.

    Raises:
        CorpusError: no article, or a possible question without an answer.
    """
    try:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"] or [{"id": "", "question": "", "answers": []}]:
                texts = [] if asked.get("is_impossible") else [answer["text"] for answer in asked["answers"]]
                if asked["question"] and not texts and not asked.get("is_impossible"):
                    raise CorpusError(f"{where}: question {asked['id']!r} has no answer; take a file with answers, not a test's")
                row = {"id": asked["id"], "title": article["title"], "context": paragraph["context"], "question": asked["question"]}
                yield {**row, "answers": {"text": texts}}
    except (KeyError, TypeError, AttributeError) as error:
        raise CorpusError(
            f"{where}: no article of SQuAD ({type(error).__name__}: {error}); it has title, paragraphs, qas, answers"
        ) from error


def _csv_rows(path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the rows of a CSV file with a header; an empty cell is a missing value."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            delimiter = max("\t;,", key=first.count)
            csv.field_size_limit(MAX_CELL)
            reader = csv.DictReader(chain([first], file), delimiter=delimiter, strict=True)
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    expected = len(reader.fieldnames or ())
                    raise CorpusError(f"{where}: {expected} cells are expected, as in the header; quote cells that hold {delimiter!r}")
                yield {name.strip(): _cell(name.strip(), value, where) for name, value in row.items() if value.strip()}, where
    except (csv.Error, UnicodeError) as error:
        raise CorpusError(f"{path} is no readable CSV file in UTF-8 ({error}); save it again") from error


def _cell(name: str, value: str, where: str) -> object:
    if name in LISTS:
        return [part.strip() for part in value.split("|") if part.strip()]
    try:
        return int(value) if name in NUMBERS else TRUTHS[value.strip().lower()] if name == "answerable" else value
    except (ValueError, KeyError) as error:
        raise CorpusError(f"{where}: {name!r} is {value!r}; write {'a whole number' if name in NUMBERS else 'true or false'}") from error


def as_text(passage: str) -> str:
    """Return a passage with a blank before each `#` that would begin a heading."""
    return _HEADING.sub(" #", passage)


def is_beir(path: Path) -> bool:
    """Return whether a folder has BEIR's form."""
    return all((path / name).exists() for name in BEIR_FILES)


def beir_files(path: Path) -> list[Path]:
    """Return the files of a BEIR folder whose content counts."""
    return [
        path / "corpus.jsonl",
        path / "queries.jsonl",
        *(file for name in BEIR_SPLITS if (file := path / f"qrels/{name}.tsv").is_file()),
    ]


def read_beir_pages(path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the documents of a BEIR folder as rows of pages.

    Raises:
        CorpusError: the file is missing or broken, or a document lacks id, or title and text.
    """
    for row, where in _jsonl_rows(path / BEIR_FILES[0]):
        page_id, title, text = ("" if (value := row.get(name)) is None else str(value).strip() for name in ("_id", "title", "text"))
        if not page_id or not (title or text):
            raise CorpusError(f"{where}: {'text' if page_id else '_id'} is missing; a document of BEIR has _id, title and text")
        title = title or " ".join(text.split()[:TITLE_WORDS])
        yield {"id": page_id, "title": title, "content": f"# {title}\n\n{as_text(text)}\n"}, where


def read_beir_questions(path: Path) -> Iterator[tuple[Row, str]]:
    """Yield the judged queries of a BEIR folder as rows of questions, with their splits unless a document is gold in two.

    A query whose metadata hold the answer needs all its documents. Of any other, documents are alternatives: the answer is the text of the
    best one, and the question's kind is `passage`.

    Raises:
        CorpusError: a file is missing or broken, or a judgement names an unknown query or document.
    """
    texts = {
        str(row["_id"]): str(row.get("text") or row.get("title") or "") for row, _ in _jsonl_rows(path / BEIR_FILES[0]) if "_id" in row
    }
    queries = {str(row["_id"]): (row, where) for row, where in _jsonl_rows(path / BEIR_FILES[1]) if "_id" in row}
    judged: dict[str, dict[str, float]] = {}
    split_of: dict[str, str] = {}
    for file in beir_files(path)[2:]:
        for query, document, score, where in _judgements(file):
            unknown = query if query not in queries else document if document not in texts else None
            if unknown is not None:
                missing = BEIR_FILES[1] if unknown == query else BEIR_FILES[0]
                raise CorpusError(f"{where}: {unknown!r} is not in {missing}; take the judgements that belong to this folder")
            if score > 0:
                judged.setdefault(query, {})[document] = score
                split_of.setdefault(query, BEIR_SPLITS[file.stem])
    found: list[tuple[Row, str]] = []
    splits: dict[str, set[str]] = {}
    for query, scores in judged.items():
        row, where = queries[query]
        gold = sorted(scores, key=lambda name: -scores[name])
        metadata = row.get("metadata")
        answer = metadata.get("answer") if isinstance(metadata, dict) else None
        fields = {"id": query, "question": row.get("text"), "split": split_of[query]}
        if isinstance(answer, str) and answer.strip():
            found.append(({**fields, "page_ids": gold, "answer": answer, "kind": "plain"}, where))
        else:
            found.append(({**fields, "page_ids": gold[:1], "answer": texts[gold[0]], "kind": "passage"}, where))
        for name in found[-1][0]["page_ids"]:
            splits.setdefault(name, set()).add(split_of[query])
    shared = sum(len(names) > 1 for names in splits.values())
    if shared:
        logger.warning("%s: %d documents are gold in several splits, so splits are assigned by page instead", path, shared)
    for row, where in found:
        yield {name: value for name, value in row.items() if name != "split" or not shared}, where


def _judgements(path: Path) -> Iterator[tuple[str, str, float, str]]:
    """Yield query, document, score and location of each line of a file of judgements; its first line may be a header."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise CorpusError(f"{path} cannot be read ({error})") from error
    for number, line in enumerate(lines, start=1):
        query, document, score, *_ = [*line.split("\t"), "", ""]
        try:
            if line.strip():
                yield query, document, float(score), f"{path}:{number}"
        except ValueError as error:
            if number > 1 or not score:
                raise CorpusError(f"{path}:{number}: query-id, corpus-id and score are expected, between tabs") from error


READERS = {
    ".jsonl": _jsonl_rows,
    ".ndjson": _jsonl_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _parquet_rows,
}
"""Readers of files by suffix."""
