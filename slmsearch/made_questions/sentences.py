"""Sentences of a section as plain text, without blocks of code, tables, links or emphasis, and checks of their content."""

import re

from slmsearch.corpus.scripts import CAPITALS, GLUED, MARKS, SMALL, SPACELESS, THAI

MIN_WORDS, MAX_WORDS, MAX_CHARS = 5, 32, 240
OPENING, CLOSING = (
    '"\u201c\u201e\u201d\u00ab\u00bb\u2039\u300c\u300e\u300a\u05f4',
    '"\u201c\u201d\u00bb\u00ab\u203a\u300d\u300f\u300b\u05f4',
)
"""Quotation marks at the same positions form pairs: \u201ea\u201c and \u201ca\u201d, \u00aba\u00bb and \u00bba\u00ab."""
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()\s]*(?:\s[^()]*)?\)")
LINK = re.compile(r"\[([^\[\]]+)\](?:\(([^()\s]*(?:\([^()]*\)[^()\s]*)?)(?:\s\"[^\"]*\")?\)|\[[^\[\]]*\])")
"""Markdown link; its groups are the text and the target."""
_NOTE = re.compile(r"\[(?:\d{1,3}|note \d+|citation needed|update|clarification needed|\^[^\[\]]*)\]")
_EMPHASIS = re.compile(r"(\*{1,3}|(?<!\w)_{1,3})(?=\S)([^*_\n]+?)(?<=\S)(\1)(?![^\W" + GLUED + "])")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+")
CODE = re.compile(r"(?P<marks>`+)(?P<code>[^`]+)(?P=marks)")
_HIDDEN = re.compile("\ue000(\\d+)\ue001")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_STOPS = ".\u0589\u06d4\u0964\u0965\u104b\u1362\u17d4"
_WIDE_STOPS = "\u3002\uff61"
_CLOSERS = re.escape(CLOSING + "\u2019')]\uff09")
_END = re.compile(
    rf"(?<=[{_STOPS}!?\u061f])([{_CLOSERS}]*)\s+(?=[{re.escape(OPENING)}\u2018'(\[\u00bf\u00a1]*[^\W_{SMALL}]|`)"
    rf"|(?<=[{_WIDE_STOPS}\uff01\uff1f])(?![{_CLOSERS}\uff0c\u3001])\s*(?=\S)"
    rf"|(?<=[{THAI}])(?<!\u0e46)\s+(?=[{THAI}])"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_a-z]|Mr|Mrs|Ms|Dr|Prof|St|Mt|Ft|Sr|Jr|No|Nos|vs|etc|ca?|cf|al|approx|est|Inc|Ltd|Co|Corp|Gen|Col|Lt|Sgt|Capt"
    r"|Rev|Hon|Gov|Sen|Rep|Pres|Figs?|Eq|Sec|Vol|pp?|eds?|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|(?:[^\W\d_]\.)+[^\W\d_]"
    r"|z|Nr|Abb|Abs|Kap|Bd|Str|Hr|bzw|evtl|ggf|usw|vgl|sog|\u0441\u0442\u0440|\u0440\u0438\u0441|\u0441\u043c|\u0434\u0440|\u0433\u0433"
    r"|\u0442\u044b\u0441|\u043c\u043b\u043d|\u0438\u043c|\u0443\u043b|np|tzv|nap\u0159|tj|\u03c0\u03c7|\u03b2\u03bb|\u03ba\u03bb\u03c0)\.$"
)
_ORDINAL = re.compile(r"\s\d{1,2}\.$")
_ENGLISH = frozenset(("the", "of", "and", "with", "from", "that", "which", "this"))
_GERMAN_TEXT = "das und ist ein eine einen einem einer nicht dem zu zur zum wird wurde werden auf f\u00fcr im vom sich"
_GERMAN = frozenset(_GERMAN_TEXT.split())
_OTHERS_TEXT = "der die den het een van le la les des du et el los las que il che di del och att det na nie je se ve bir"
_ELSEWHERE = _GERMAN.union(_OTHERS_TEXT.split())
_NOT_ASCII = re.compile(rf"(?<!\w)(?![{CAPITALS}])[^\W\d_]*[^\W\d_\x00-\x7f]")
_BEGINS = re.compile(rf"`|[^\W\d_{SMALL}]|[\d{re.escape(OPENING)}](?=.*[{SPACELESS}])")
_CLOSED = re.compile(rf"[{_STOPS}{_WIDE_STOPS}][{re.escape(CLOSING)}]?$|[{THAI}][\s\d{re.escape(CLOSING)}]*$")
_NO_STATEMENT = ("?", "\uff1f", "\u061f", "...", "\u2026", "http")
_SPACELESS = re.compile(f"[{SPACELESS}]")
_LETTER = re.compile(rf"[^\W\d_]|[{MARKS}]")
_PAIRS = (("(", ")"), ("[", "]"), ("\uff08", "\uff09"), ("\u3010", "\u3011"))
_QUOTED = re.compile(
    r"(?<=[\u05d0-\u05ea])[\"\u05f4](?=[\u05d0-\u05ea])|\"[^\"]*\"|\u201c[^\u201c\u201d]*\u201d|\u201e[^\u201c\u201d\u201e]*[\u201c\u201d]|\u201d[^\u201d]*\u201d|\u00ab[^\u00ab\u00bb]*\u00bb"
    r"|\u00bb[^\u00ab\u00bb]*\u00ab|\u2039[^\u203a]*\u203a|\u300c[^\u300c\u300d]*\u300d|\u300e[^\u300f]*\u300f|\u300a[^\u300b]*\u300b"
)
_QUOTES = frozenset(OPENING + CLOSING)


def plain_paragraphs(markdown: str, keep_code: bool = False) -> list[str]:
    """Return the paragraphs and list items of a section's text without marks, one line each; inline code may keep its marks."""
    text = _COMMENT.sub(" ", _FENCED.sub("\n", markdown))
    paragraphs, waiting = list[str](), list[str]()

    def end() -> None:
        if waiting:
            paragraphs.append(" ".join(" ".join(waiting).split()))
            waiting.clear()

    for line in text.split("\n"):
        if not line.strip() or line.startswith("#") or line.lstrip().startswith(("|", "```")) or _RULE.match(line):
            end()
            continue
        if _ITEM.match(line):
            end()
        waiting.append(_strip_marks(_ITEM.sub("", line.lstrip("> \t")), keep_code))
    end()
    return [paragraph for paragraph in paragraphs if paragraph]


def _strip_marks(line: str, keep_code: bool) -> str:
    codes = list[str]()

    def hide(match: re.Match[str]) -> str:  # code may contain the same characters
        codes.append(match["code"].strip())
        return f"\ue000{len(codes) - 1}\ue001"

    line = CODE.sub(hide, LINK.sub(r"\1", _IMAGE.sub(" ", line.replace("\ue000", ""))))
    line = _NOTE.sub("", _TAG.sub("", line))
    for _ in range(2):  # strong around emphasis
        line = _EMPHASIS.sub(r"\2", line)
    line = line.replace("`", "").replace("\\", "")
    return _HIDDEN.sub(lambda match: f"`{codes[int(match[1])]}`" if keep_code else codes[int(match[1])], line)


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph at ends of sentences; full stops of abbreviations, initials and ordinal numbers do not count.

    Thai and Lao have no full stop: a space between two of their letters ends a clause, which counts as a sentence.
    """
    parts, start, numbered = list[str](), 0, not is_english(paragraph)
    for match in _END.finditer(paragraph):
        before = paragraph[max(0, match.start() - 14) : match.start()]
        if _ABBREVIATION.search(before) or (numbered and _ORDINAL.search(before)):
            continue
        parts.append(paragraph[start : match.end()].strip())
        start = match.end()
    return [part for part in [*parts, paragraph[start:].strip()] if part]


def is_english(text: str) -> bool:
    """Return True if a text may be English: it has common English words, or none of another language."""
    words = frozenset(text.split())
    return bool(words & _ENGLISH) or not (words & _ELSEWHERE or _NOT_ASCII.search(text))


def is_german(text: str) -> bool:
    """Return True for a German text; German capitalises every noun."""
    words = frozenset(text.split())
    return bool(words & _GERMAN) and not words & _ENGLISH


def count_words(text: str) -> int:
    """Count words; in scripts without spaces, three characters count as one."""
    return len(text.split()) + len(_SPACELESS.findall(text)) // 3


def is_usable(sentence: str) -> bool:
    """Return True if a sentence is a complete statement of a sensible length, with closed brackets and quotations."""
    if not MIN_WORDS <= count_words(sentence) <= MAX_WORDS or len(sentence) > MAX_CHARS or not _CLOSED.search(sentence):
        return False
    if not _BEGINS.match(sentence) or sentence.split()[0] == "See" or any(mark in sentence for mark in _NO_STATEMENT):
        return False
    if not all(sentence.count(opening) == sentence.count(closing) for opening, closing in _PAIRS):
        return False
    rest = _QUOTED.sub("", sentence)
    return _QUOTES.isdisjoint(_QUOTED.sub("", rest)) and len(_LETTER.findall(sentence)) > len(sentence) / 2
