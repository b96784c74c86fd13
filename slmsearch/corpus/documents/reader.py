"""Reader of documents in a separate process, watched from outside; this module is also the program of that process.

A parser may loop, exhaust memory or crash on a hostile or broken file; there it stops only its own process. The process starts on first
use, is killed when it takes too long, and is started again. It reads lines of path and folder, and answers each with a JSON object on a
line.
"""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import Self

from slmsearch.corpus.documents.document import MAX_CHARS, Document
from slmsearch.corpus.documents.skipped import NotTakenError, Reason
from slmsearch.corpus.documents.text import check_no_template, decode_info, decode_text, decode_utf8

MARKDOWN, TEXT, RST, HTML, PDF = (".md", ".markdown", ".mdx"), (".txt", ".text"), (".rst",), (".html", ".htm", ".xhtml"), (".pdf",)
NOTEBOOK, OFFICE, SEPARATED, EPUB = (".ipynb",), (".docx", ".pptx", ".xlsx"), (".csv", ".tsv"), (".epub",)
MAN, INFO = (".man", ".mdoc", *(f".{section}" for section in range(1, 9))), (".info",)
SUFFIXES = (*MARKDOWN, *TEXT, *RST, *HTML, *PDF, *OFFICE, *SEPARATED, *EPUB, *NOTEBOOK, *MAN, *INFO)
"""Suffixes, in the order in which files of the same name take the plain page id."""
PARSED = (*HTML, *PDF, *OFFICE, *SEPARATED, *EPUB, *NOTEBOOK)
"""Suffixes of formats that only the process reads, and whose documents depend on no other file."""
MEMORY_BYTES = 4 << 30
"""Address space of the parsing process, in bytes."""
START_S = 60.0
"""Seconds added to the time limit of a process' first document, for its start on a busy machine."""


class ReadingProcess:
    """Process that reads documents one after the other; for use by one thread, and closed by any."""

    def __init__(self, timeout_s: float) -> None:
        """Set the time limit per document, in seconds; start nothing yet."""
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process; a document that it reads meanwhile counts as crashed, and so does every later one."""
        self._closed = True
        self.stop()

    def read(self, path: Path, root: Path) -> Document:
        """Read a document of a folder.

        Raises:
            NotTakenError: the document cannot be read, takes too long, or crashed the process.
        """
        timeout_s = self._timeout_s
        process = self._process
        if process is None or process.poll() is not None:
            self.stop()
            command = [sys.executable, "-P", "-m", __name__, str(self._timeout_s + START_S)]
            process = self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            timeout_s += START_S
        if self._closed:
            self.stop()
            raise NotTakenError(Reason.CRASHED)
        assert process.stdin is not None and process.stdout is not None
        told = " ".join(os.fsencode(place.absolute()).hex() for place in (path, root))
        started, line = time.monotonic(), b""
        killer = threading.Timer(timeout_s, process.kill)
        killer.start()
        try:
            process.stdin.write(told.encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):  # it has crashed, or was closed meanwhile
            pass
        finally:
            killer.cancel()
        late = time.monotonic() - started >= timeout_s
        if late or not line.endswith(b"\n"):
            self.stop()
            raise NotTakenError(Reason.SLOW if late else Reason.CRASHED)
        answer = json.loads(line)
        if "reason" in answer:
            raise NotTakenError(Reason(answer["reason"]), answer["detail"])
        return Document(**answer)

    def stop(self) -> None:
        """Kill the process, if it runs; the next document starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):  # unread input is still buffered
                        stream.close()


class ReadingProcesses:
    """Processes that read documents side by side; each is started by the first document that finds the others busy."""

    def __init__(self, count: int, timeout_s: float) -> None:
        """Set their number and the time limit per document, in seconds; start none yet."""
        self._all = [ReadingProcess(timeout_s) for _ in range(count)]
        self._free: LifoQueue[ReadingProcess] = LifoQueue()
        for process in self._all:
            self._free.put(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._all:
            process.close()

    def read(self, path: Path, root: Path) -> Document:
        """Read a document of a folder in a process that is free, or wait for one; see `ReadingProcess.read`."""
        process = self._free.get()
        try:
            return process.read(path, root)
        finally:
            self._free.put(process)


def read_inside(path: Path, root: Path) -> bytes:
    """Read a file of a folder; even if it was replaced since the listing, the opened file is inside the folder.

    Raises:
        NotTakenError: the path leads out of the folder, or is no longer a file.
        OSError: the file cannot be read.
    """
    inside = root.resolve()
    target = path.resolve()
    if not target.is_relative_to(inside):
        raise NotTakenError(Reason.OUTSIDE)
    with ExitStack() as opened:
        here = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, here)
        *folders, name = target.relative_to(inside).parts
        try:
            for part in folders:
                here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                opened.callback(os.close, here)
            # Do not block on a pipe in its place.
            file = opened.enter_context(os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here), "rb"))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it has become a link
                raise NotTakenError(Reason.OUTSIDE) from error
            raise
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotTakenError(Reason.SPECIAL)
        return file.read()


def read_document(path: Path, root: Path) -> Document:
    """Read a document of a folder by its suffix.

    Raises:
        NotTakenError: the document cannot be read, or holds no text.
    """
    try:
        document = _convert(read_inside(path, root), path, root)
    except NotTakenError:
        raise
    except OSError as error:
        raise NotTakenError(Reason.UNREADABLE, error.strerror or str(error)) from error
    except MemoryError as error:
        raise NotTakenError(Reason.MEMORY) from error
    except RecursionError as error:
        raise NotTakenError(Reason.NESTED) from error
    except Exception as error:  # parsers raise anything on a broken file
        raise NotTakenError(Reason.BROKEN, f"{type(error).__name__}: {error}") from error
    if len(document.content) > MAX_CHARS:
        raise NotTakenError(Reason.LONG, f"{len(document.content)} characters")
    if not any(c.isalnum() for c in document.content):
        raise NotTakenError(Reason.NO_TEXT)
    return document


def _convert(data: bytes, path: Path, root: Path) -> Document:
    suffix = path.suffix.lower()
    if suffix in HTML:
        from slmsearch.corpus.documents.html import html_to_markdown

        check_no_template(data)
        return html_to_markdown(data)
    if suffix in PDF:
        from slmsearch.corpus.documents.pdf import pdf_to_markdown

        return pdf_to_markdown(data)
    if suffix in EPUB:
        from slmsearch.corpus.documents.epub import epub_to_markdown
        from slmsearch.corpus.documents.office import check_package

        check_package(data)
        return epub_to_markdown(data)
    if suffix in OFFICE:
        return _convert_office(data, suffix)
    text = decode_info(data) if suffix in INFO else decode_text(data)
    if suffix in NOTEBOOK:
        from slmsearch.corpus.documents.notebook import notebook_to_markdown

        return notebook_to_markdown(text)
    if suffix in SEPARATED:
        from slmsearch.corpus.documents.spreadsheet import separated_to_markdown

        return separated_to_markdown(text, suffix)
    return convert_text(text, path, root)


def _convert_office(data: bytes, suffix: str) -> Document:
    if suffix == ".docx":
        from slmsearch.corpus.documents.word import word_to_markdown

        return word_to_markdown(data)
    if suffix == ".xlsx":
        from slmsearch.corpus.documents.spreadsheet import workbook_to_markdown

        return workbook_to_markdown(data)
    from slmsearch.corpus.documents.slides import slides_to_markdown

    return slides_to_markdown(data)


def convert_text(text: str, path: Path, root: Path) -> Document:
    """Read Markdown, reStructuredText or plain text, with the files of its folder that it includes."""
    from slmsearch.corpus.documents.markup import read_markup

    suffix = path.suffix.lower()

    def include(name: str) -> str | None:
        if any(part.startswith(".") for part in Path(os.path.normpath(name)).parts if part != ".."):
            return None
        inside = [folder for folder in path.parents if folder == root or root in folder.parents]
        for folder in inside:  # beside it, or in its site's folder, which may be any parent
            try:
                return (decode_info if suffix in INFO else decode_utf8)(read_inside(folder / name.lstrip("/"), root))
            except (NotTakenError, OSError, ValueError):
                continue
        return None

    kinds = (("rst", RST), ("text", TEXT), ("mdx", (".mdx",)), ("man", MAN), ("info", INFO))
    kind = next((kind for kind, suffixes in kinds if suffix in suffixes), "markdown")
    return read_markup(text, kind, include)


def serve() -> None:
    """Answer paths on standard input until it closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep output of libraries out of the answers
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    sys.setrecursionlimit(10_000)
    limit_s = float(sys.argv[1])
    for line in sys.stdin.buffer:
        if sys.platform != "win32":  # who started it may have been killed, and with it its own limit
            signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            path, root = (Path(os.fsdecode(bytes.fromhex(place))) for place in line.decode().split())
            document = read_document(path, root)
            answer: dict[str, object] = document._asdict() | {"metadata": dict(document.metadata)}
        except NotTakenError as error:
            answer = {"reason": error.reason, "detail": error.detail}
        answers.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")  # UTF-8 has no half of a pair
        answers.flush()
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    serve()
