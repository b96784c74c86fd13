"""Questions from statements of a known shape: "X was founded in 1887 by Y." gives "In which year was X founded by Y?".

English only. A sentence that does not fit exactly gives nothing; where the subject is known only from the page ("The mayor"), the question
names the page.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slmsearch.questions.sentences import Sentence
from slmsearch.questions.spans import DATE, NAME, NO_NAMES, NUMBER, YEAR
from slmsearch.questions.verbs import BASE_OF, BASE_OF_PRESENT


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that nothing was checked of yet."""

    question: str
    answer: str
    kind: str
    """`template`, `cloze` or `written`."""
    sentence: Sentence
    aliases: tuple[str, ...] = ()


MAX_SUBJECT_WORDS = 8
MAX_PART_CHARS = 110
_PRONOUNS_TEXT = """\
it he she they this that these those there who which we you i one all both his her its their
"""
_PRONOUNS = frozenset(_PRONOUNS_TEXT.split())
_PREPOSITIONS_TEXT = """\
atop above across along around behind below beneath beside beyond inside near opposite outside through within
"""
_PREPOSITIONS = frozenset(_PREPOSITIONS_TEXT.split())
_CLAUSE = re.compile(r"\b(?:that|which|who|whose|because|while|when|where|but)\b|\b(?:and|or)$")
_SECOND_VERB = re.compile(r"\b(?:but|was|were|is|are|has|had|which|who)\b")
_PERSON = re.compile(
    r"\b(?:\w+(?:ist|ian|eer|man|woman|smith)|king|queen|prince|princess|mayor|founder|president|director|author|writer|poet|painter|singer|"
    r"actor|actress|player|leader|minister|governor|bishop|\w*priest|teacher|person|climber|bearer|winner|holder|\w+keeper|\w*maker|professor|rector|judge|hero|owner|chairman|chairwoman|lawyer|"
    r"composer|designer|inventor|explorer|engineer|architect|officer|general|soldier|manager|coach|editor|brother|sister|son|daughter|"
    r"wife|husband|father|mother|nobleman|saint|philosopher|preacher|head|captain|emperor|duke|sculptor|dancer|rapper)s?\b"
)
_EMPTY_NOUNS_TEXT = """\
part place way number member example form type kind result thing lot one icon sight time case matter sign set
"""
_EMPTY_NOUNS = frozenset(_EMPTY_NOUNS_TEXT.split())
_LEADING = r"(?:about |around |approximately |roughly |over |more than |nearly |almost |some |at least |up to )?"
_S = r"(?P<s>[^,;:()\"\u201c]{2,90}?)"
_TAIL = r"(?P<tail>[^;:()]*)\."
_NOT_IN_TAIL = re.compile(r"^ (?:and|but|when|while|where|after|before|as|to|with|until|because|although|which|who|that|or|from)\b")
_PARTICIPLE = r"(?P<v>(?:\w+ly )?(?:first |later |originally |re)?\w+(?:ed|en|wn|lt|ght|ld|und|ung|de|pt|ft|st|ut|et|nt|rn|id))"


def make_drafts(sentence: Sentence) -> Iterator[Draft]:
    """Yield the questions that templates make of a sentence; usually none or one."""
    for pattern, make in _TEMPLATES:
        match = pattern.fullmatch(sentence.text)
        made = match and make(match, sentence)
        if made:
            question, answer = made
            yield Draft(_finish(question), answer, "template", sentence)


def subject_of(text: str, sentence: Sentence) -> tuple[str, str] | None:
    """Return a prefix and a subject as they stand in a question; None where it cannot be said who or what is meant."""
    words = text.split()
    first = words[0].lower() if words else ""
    if not words or len(words) > MAX_SUBJECT_WORDS or not words[0][0].isupper() or re.search(r"\b(?:was|were|is|are|had|has)\b", text):
        return None
    if first in _PRONOUNS or (words[0] in NO_NAMES and first not in {"the", "a", "an"}) or first in _PREPOSITIONS or _CLAUSE.search(text):
        return None
    has_name = any(word[0].isupper() for word in words[1:]) or words[0] not in NO_NAMES
    lowered = text[0].lower() + text[1:] if words[0] in NO_NAMES else text
    if any(word[0].isupper() for word in words[1:]) or (has_name and len(words) == 1):
        return "", lowered
    # "The mayor", "Critics": clear only on its page.
    if words[0] == "The":
        return f'According to "{sentence.title}", ', lowered
    return None


def _tail(text: str) -> str | None:
    """Return what of the rest of a sentence a question keeps: all of a short adjunct, nothing after a comma."""
    kept = text.partition(",")[0].rstrip()
    if len(kept) > MAX_PART_CHARS or _NOT_IN_TAIL.match(kept):
        return None
    return kept


def _when(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject, tail = subject_of(match["s"], sentence), _tail(match["tail"])
    if subject is None or tail is None or len(match["p"]) > MAX_PART_CHARS or not _STARTS_WITH_PARTICIPLE.match(match["p"]):
        return None
    ask = "in which year" if match["y"].isdecimal() else "when"
    return f"{subject[0]}{ask} {match['aux']} {subject[1]} {match['p']}{tail}", match["y"]


def _when_did(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject, tail, base = subject_of(match["s"], sentence), _tail(match["tail"]), BASE_OF.get(match["v"])
    if subject is None or tail is None or base is None or len(match["p"]) > MAX_PART_CHARS or _SECOND_VERB.search(match["p"]):
        return None
    ask = "in which year" if match["y"].isdecimal() else "when"
    return f"{subject[0]}{ask} did {subject[1]} {base}{match['p']}{tail}", match["y"]


def _by_whom(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject, tail = subject_of(match["s"], sentence), _tail(match["tail"])
    # "moved by Zelda's sacrifice", "by Bantu-speaking tribes": the name is not who did it.
    whole = match["tail"] == "" or re.match(r", (?:[a-z]|in\b)| (?:in|on|at|for|during)\b", match["tail"])
    if subject is None or tail is None or not whole or re.search(r"(?:ed|en|wn)$|\bby\b", match["p"].strip()):
        return None
    return f"{subject[0]}by whom {match['aux']} {subject[1]} {match['v']}{match['p']}{tail}", match["a"]


def _what_is(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject = subject_of(match["s"], sentence)
    answer = match["a"].strip()
    if subject is None or subject[0] or not 2 <= len(answer.split()) <= 5 or answer.endswith("ed"):
        return None
    name = subject[1].casefold().removeprefix("the ")
    if name not in {sentence.title.casefold().removeprefix("the "), sentence.heading.casefold()} and not sentence.is_first:
        return None
    head = answer.lower().partition(" of ")[0]
    if head.split()[-1] in _EMPTY_NOUNS:
        return None
    person = _PERSON.search(head) is not None
    return f"{'who' if person else 'what'} {match['aux']} {subject[1]}", answer


def _who_was(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    role = match["s"]
    if not role.startswith("The ") or len(role.split()) > MAX_SUBJECT_WORDS or re.search(r"\b(?:was|is|that|which|who)\b", role):
        return None
    named = any(word[0].isupper() for word in role.split()[1:])
    prefix = "" if named else f'According to "{sentence.title}", '
    ask = "who" if _PERSON.search(role.lower().partition(" of ")[0]) else "what"
    return f"{prefix}{ask} {match['aux']} the {role[4:]}", match["a"]


def _how_many(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject, base = subject_of(match["s"], sentence), BASE_OF_PRESENT.get(match["v"])
    if subject is None or base is None or not _is_plural(match["n"]):
        return None
    plural = bool(re.search(r"[^s]s$", subject[1].split()[0])) and subject[1][0].islower()
    do = "did" if match["v"].endswith(("ed", "had", "held")) else ("do" if plural else "does")
    return f"{subject[0]}how many {match['n']} {do} {subject[1]} {base}", match["a"]


def _how_many_are(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    if not _is_plural(match["n"]):
        return None
    place = f" {match['place']}" if match["place"] else ""
    return f'According to "{sentence.title}", how many {match["n"]} {match["aux"]} there{place}', match["a"]


def _where(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject = subject_of(match["s"], sentence)
    if subject is None:
        return None
    return f"{subject[0]}where {match['aux']} {subject[1]} {match['v']}", match["a"]


def _where_does(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject = subject_of(match["s"], sentence)
    verb, _, rest = match["v"].partition(" ")
    bases = {"stands": "stand", "stood": "stand", "lies": "lie", "takes": "take", "took": "take", "meets": "meet", "rises": "rise"}
    if subject is None:
        return None
    do = "did" if verb in {"stood", "took"} else "does"
    return f"{subject[0]}where {do} {subject[1]} {bases[verb]}{f' {rest}' if rest else ''}", match["a"]


def _called(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    subject = subject_of(match["s"], sentence)
    if subject is None:
        return None
    return f"{subject[0]}what {match['aux']} {subject[1]} {match['v']}", match["a"]


def _its(match: re.Match[str], sentence: Sentence) -> tuple[str, str] | None:
    """ "Its length is 1011 furlongs" is about the page only where nothing stands before it."""
    if not sentence.is_first or len(match["n"].split()) > 4:
        return None
    return f"what {match['aux']} the {match['n']} of {sentence.title}", match["a"]


def _is_plural(noun: str) -> bool:
    last = noun.split()[-1]
    return last in {"people", "men", "women", "children", "feet", "staff"} or (last.endswith("s") and not last.endswith(("ss", "us", "is")))


def _finish(question: str) -> str:
    question = " ".join(question.split())
    return f"{question[0].upper()}{question[1:]}?"


_STARTS_WITH_PARTICIPLE = re.compile(rf"{_PARTICIPLE}\b|able to\b|home to\b")
_AUX = r"(?P<aux>was|were|is|are)"
_PLAIN_NAME = rf"(?P<a>(?:{NAME}))"
_IN_YEAR = rf"in (?P<y>{YEAR})(?![\w\u2013-])"
_ON_DATE = rf"(?:on|in) (?P<y>{DATE})"
_OBJECT = r"(?P<p>[^,;:()\"\u201c]*?)"
_ALL = r"(?P<p>[^,;:()\"\u201c]+)"
_PART = r"(?P<p>[^,;:()\"\u201c]+?)"
Make = Callable[[re.Match[str], Sentence], tuple[str, str] | None]
_ASIDE = r"(?:,[^;:]*)?\."
"""What may follow and is left out."""
_NOUN = r"(?P<n>[a-z]+(?: [a-z]+)?)"
_HOLDING = "|".join(sorted(BASE_OF_PRESENT))
_STANDING = r"stands|stood|lies|takes place|took place|meets the sea|rises"
_QUOTED_NAME = rf"(?:the )?[\"\u201c]?{_PLAIN_NAME}[\"\u201d]?"
_NAMING = r"called|named|nicknamed|known as|renamed"
_AFTER_DEFINITION = (
    r"(?:\.| (?:that|which|who|in|on|of the|located|situated|from|by|for|with|where|at|between|and) [^;]*\."
    r"|, (?:which|who|and|an?|the) [^;]*\.)"
)
_TEMPLATES: tuple[tuple[re.Pattern[str], Make], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (rf"{_S} {_AUX} {_PART} {_ON_DATE}{_TAIL}", _when),
        (rf"{_S} {_AUX} {_PART} {_IN_YEAR}{_TAIL}", _when),
        (rf"In (?P<y>{YEAR}),? {_S} {_AUX} {_ALL}{_TAIL}", _when),
        (rf"On (?P<y>{DATE}),? {_S} {_AUX} {_ALL}{_TAIL}", _when),
        (rf"{_S} (?P<v>[a-z]+){_OBJECT} {_ON_DATE}{_TAIL}", _when_did),
        (rf"{_S} (?P<v>[a-z]+){_OBJECT} {_IN_YEAR}{_TAIL}", _when_did),
        (rf"In (?P<y>{YEAR}),? {_S} (?P<v>[a-z]+)(?P<p> [^,;:()\"\u201c]+){_TAIL}", _when_did),
        (rf"{_S} {_AUX} {_PARTICIPLE}{_OBJECT} by {_PLAIN_NAME}{_TAIL}", _by_whom),
        (rf"{_S} (?P<aux>was|is) (?:located|situated|based) (?P<v>)in {_PLAIN_NAME}{_ASIDE}", _where),
        (rf"{_S} (?P<aux>was|is) (?P<v>born|buried|headquartered|held) (?:in|at) {_PLAIN_NAME}{_ASIDE}", _where),
        (rf"{_S} (?P<v>{_STANDING}) (?:in|at|near|on|behind) {_PLAIN_NAME}{_ASIDE}", _where_does),
        (
            rf"{_S} {_AUX} (?:also |commonly |often |sometimes |usually )?(?P<v>{_NAMING}) {_QUOTED_NAME}{_ASIDE}",
            _called,
        ),
        (rf"(?P<s>The [^,;:()\"\u201c]{{3,80}}?) (?P<aux>was|is) {_PLAIN_NAME}{_ASIDE}", _who_was),
        (rf"{_S} (?P<v>{_HOLDING}) {_LEADING}(?P<a>{NUMBER}) {_NOUN}(?:(?:,| and (?=\d)| in| with)[^;:]*)?\.", _how_many),
        (rf"There (?P<aux>are|were) {_LEADING}(?P<a>{NUMBER}) {_NOUN}(?: (?P<place>(?:in|at|on) [^,;:.]{{3,60}}))?{_ASIDE}", _how_many_are),
        (rf"(?:Its|His|Her) (?P<n>[a-z]+(?: [a-z]+){{0,3}}) (?P<aux>is|was) (?P<a>(?:{NUMBER}) [a-z]+|{NAME}){_ASIDE}", _its),
        (rf"{_S} {_AUX} an? (?P<a>[^,;:()\"\u201c.]{{3,60}}?){_AFTER_DEFINITION}", _what_is),
    )
)
