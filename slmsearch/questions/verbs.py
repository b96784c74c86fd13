"""Past forms of verbs that statements of fact use; questions with "did" need the base form, and English has no rule for it."""

_IRREGULAR = """become became, begin began, break broke, bring brought, build built, buy bought, catch caught, choose chose, come came,
draw drew, fall fell, fight fought, find found, fly flew, get got, give gave, go went, grow grew, hold held, keep kept, lead led,
leave left, lose lost, make made, meet met, rise rose, run ran, sell sold, send sent, sing sang, speak spoke, spend spent, stand stood,
take took, teach taught, win won, write wrote, strike struck, sink sank, swim swam, shoot shot, pay paid"""
_REGULAR = """abandon abolish accept achieve acquire adopt allow announce appear appoint approve arrive ask attack attain attend award
ban call capture carry cause celebrate change claim close collapse colonize commission complete compose conclude conduct conquer construct
contain continue contribute convert cover create cross crown cultivate declare decline defeat define deliver demolish deploy
describe design destroy develop devise die direct discontinue discover dissolve divide dominate donate earn educate elect emerge employ
enact encounter end enter erect establish estimate exceed execute exist expand experience explain explore export express extend fail
feature file finish follow force form found free gain graduate grant halt happen help host identify implement import improve include
increase influence inherit inspire install institute introduce invade invent invite issue join kill last launch lease license like link live
locate maintain marry measure merge mention move name notice occupy occur offer open operate oppose order organize own paint pass
patent perform permit pioneer place plan play present prevent produce prohibit promote propose prove publish purchase raise ratify reach
receive recognize recommend record reduce reform refuse reign reject release remain remove rename repair replace report represent
require resign restore result retain retire return reveal rule sail save seize separate serve settle sign sponsor start stop study
submit succeed suffer support surpass surrender surround survive test total trade train transfer transform translate travel treat turn
unite unveil use visit vote want warn witness work"""


def _past(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return f"{base[:-1]}ied"
    if base in {"ban", "permit", "plan", "stop", "transfer", "submit", "commit"}:
        return f"{base}{base[-1]}ed"
    return f"{base}ed"


BASE_OF: dict[str, str] = {
    **{_past(base): base for base in _REGULAR.split()},
    **{past: base for base, past in (pair.split() for pair in _IRREGULAR.split(","))},
    "founded": "found",
    "died": "die",
}
"""Past form to base form."""
BASE_OF_PRESENT = {
    "has": "have", "had": "have", "contains": "contain", "contained": "contain", "includes": "include", "included": "include",
    "employs": "employ", "employed": "employ", "houses": "house", "housed": "house", "holds": "hold", "held": "hold",
    "comprises": "comprise", "operates": "operate", "operated": "operate", "serves": "serve", "owns": "own", "offers": "offer",
    "stands": "stand", "stood": "stand", "lies": "lie", "lay": "lie", "lives": "live", "works": "work", "begins": "begin", "ends": "end",
}  # fmt: skip
"""Present and past forms to base form, of verbs that say how many or where."""
