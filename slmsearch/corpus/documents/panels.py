"""Parts of an HTML page that only a click shows: tab panels, accordions, details. They are text, under the name that is clicked.

Elements that CSS always hides are not text: no click can show them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from bs4 import Tag

from slmsearch.corpus.documents.inventory import HEADINGS, Inventory, next_element, previous_element, put_label
from slmsearch.corpus.documents.text import one_line

_NOT_SHOWN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_SHOWN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*(?!none)|visibility\s*:\s*visible)", re.IGNORECASE)
_SIMPLE = re.compile(r"[a-z]*([.#][\w-]+)", re.IGNORECASE)
_NAME = re.compile(r"[.#]([\w-]+)")
_WORD = re.compile(r"[\w-]+")
_OPENING = re.compile(r"toggle|slide|\.next|nextElementSibling|accordion|collaps", re.IGNORECASE)
"""Words in scripts that open the element after the clicked one."""
_TITLES = frozenset({*HEADINGS, "dt", "summary", "legend"})
_BLOCKS = frozenset({"div", "section", "article", "p", "ul", "ol", "dl", "dd", "li", "table", "td", "blockquote"})
_MIN_LETTERS = 20
"""Minimum number of letters in a block that is hidden from screen readers and still text; icons have fewer."""
MAX_NAME_LETTERS = 80
"""Maximum number of letters in a tab's name."""
_POINTERS = ("aria-controls", "data-target", "data-bs-target", "href", "for")


def open_panels(page: Inventory) -> None:
    """Turn elements that can be shown into plain text, and drop the others."""
    pointed = {str(tag[name]).removeprefix("#") for tag in page.everything() for name in _POINTERS if tag.has_attr(name)}
    events = (str(value) for tag in page.everything() for name, value in tag.attrs.items() if name.startswith("on"))
    pointed.update(word for event in events for word in _WORD.findall(event))
    found = [*_by_roles(page), *_by_links(page), *_by_radios(page)]
    for panel, name in found:
        text = one_line(name.get_text(" "))
        if text and not _begins_with(panel, text):
            put_label(panel, text)
    panels = {id(parent) for panel, _ in found for parent in (panel, *panel.parents)}
    for tag in list(page.with_role("tab", "tablist")):
        if page.is_gone(tag) or id(tag) in panels:
            continue
        if page.letters(tag) <= MAX_NAME_LETTERS if tag.get("role") == "tab" else not page.unlinked(tag):
            page.drop(tag)  # each panel holds its name
    _open_titles(page)
    _drop_hidden(page, pointed, {id(panel) for panel, _ in found})


def _begins_with(panel: Tag, text: str) -> bool:
    heading = panel.find(HEADINGS)
    return isinstance(heading, Tag) and one_line(heading.get_text(" ")) == text


def _by_roles(page: Inventory) -> list[tuple[Tag, Tag]]:
    """Return the panels of ARIA's tabs with their tabs: by id, else by their order."""
    named: dict[int, tuple[Tag, Tag]] = {}
    for tab in page.with_role("tab"):
        for panel in _targets(page, tab):
            named[id(panel)] = panel, tab
    for panel in list(page.everything()):
        labelling = page.ids.get(str(panel.get("aria-labelledby")))
        if labelling is not None and labelling.name == "li" and not any(parent is labelling for parent in panel.parents):
            labelling["role"] = "tab"
            page.give_role(labelling, "tab")  # roles may be missing without scripts
        elif panel.get("role") != "tabpanel":
            continue
        if labelling is not None and id(panel) not in named:
            named[id(panel)] = panel, labelling
    beside: dict[int, list[Tag]] = defaultdict(list)
    for panel in page.with_role("tabpanel"):
        beside[id(panel.parent)].append(panel)
    for tablist in page.with_role("tablist"):
        own = tablist.find_all(role="tab")
        first = tablist.find_next(role="tabpanel")
        panels = beside[id(first.parent)] if isinstance(first, Tag) else []
        if len(panels) == len(own) and not any(id(panel) in named for panel in panels):
            named |= {id(panel): (panel, tab) for panel, tab in zip(panels, own, strict=True)}
    return [(panel, tab) for panel, tab in named.values() if not any(tab is inner for inner in panel.descendants)]


def _targets(page: Inventory, tag: Tag) -> list[Tag]:
    """Return the elements of this page that an element declares to control or links to."""
    inner = tag.find("a", href=True) if tag.name not in ("a", "button") else None
    values = [str(source.get(name, "")) for source in (tag, inner) if isinstance(source, Tag) for name in _POINTERS]
    found = (page.ids.get(value.removeprefix("#")) for value in values if value)
    return [target for target in found if target is not None and target is not tag]


def _by_links(page: Inventory) -> list[tuple[Tag, Tag]]:
    """Return panels that the links of a list lead to one by one: all siblings, none with a heading, and no other elements beside them."""
    found = []
    for listed in page.all(("ul", "ol")):
        if page.unlinked(listed) or not page.linked(listed):
            continue
        links = listed.find_all("a", href=True)
        if len(links) < 2 or not all(str(link["href"]).startswith("#") for link in links):
            continue
        panels = [page.ids.get(str(link["href"])[1:]) for link in links]
        first = panels[0]
        if first is None or first.parent is None or first.name not in ("div", "section", "li"):
            continue
        siblings = [tag for tag in first.parent.find_all(recursive=False) if page.letters(tag) and tag is not listed]
        in_order = len(siblings) == len(panels) and all(a is b for a, b in zip(siblings, panels, strict=True))
        if in_order and not any(tag.find(HEADINGS) for tag in siblings):
            found += list(zip(siblings, links, strict=True))
            page.give_role(listed, "tablist")
    return found


def _by_radios(page: Inventory) -> list[tuple[Tag, Tag]]:
    """Return panels that stylesheets show for a chosen radio button, with the labels of the buttons."""
    labels = {str(label.get("for")): label for label in page.all(["label"])}
    sets: dict[str, list[Tag]] = {}
    for button in page.all(["input"]):
        if button.get("type") == "radio" and str(button.get("id")) in labels:
            sets.setdefault(str(button.get("name")), []).append(labels[str(button["id"])])
    found = []
    for names in sets.values():
        after = [panel for name in names if (panel := next_element(name)) is not None and panel.name in ("div", "section")]
        box = names[-1].parent if len(after) < len(names) else None
        following = next_element(names[-1]) or (next_element(box) if box is not None else None)
        inner = following.find_all(recursive=False) if following is not None else []
        panels = after if len(after) == len(names) else list(inner)
        if len(panels) != len(names) or len(names) < 2:
            continue
        for panel, name in zip(panels, names, strict=True):
            found.append((panel, name))
            name["role"] = "tab"
            page.give_role(name, "tab")
    return found


def _open_titles(page: Inventory) -> None:
    """Turn clickable titles into paragraphs, and drop all other buttons."""
    for button in page.all(["button"]):
        if button.find_parent(list(_TITLES)) is not None:
            button.name = "span"
            continue
        following = next_element(button)
        opens = button.has_attr("aria-expanded") or any(map(page.letters, _targets(page, button)))
        if page.letters(button) and (opens or (following is not None and _is_hidden(following))):
            button.name, button["aria-expanded"] = "p", "false"
        else:
            page.drop(button, "control")


def _is_hidden(tag: Tag) -> bool:
    return (tag.has_attr("hidden") and tag["hidden"] != "until-found") or _NOT_SHOWN.search(str(tag.get("style", ""))) is not None


def _drop_hidden(page: Inventory, pointed: set[str], panels: set[int]) -> None:
    """Drop elements that cannot be shown: no tab, link or script refers to them."""
    by_rule, shown = _styles("\n".join(style.get_text() for style in page.all(["style"])))
    scripts = list(page.all(["script"]))
    code = "\n".join(script.get_text() for script in scripts)
    hidden = list[Tag]()
    for tag in list(page.everything()):
        if page.is_gone(tag) or not tag.attrs:
            continue
        if tag.get("aria-hidden") == "true" and not (tag.name in _BLOCKS and page.letters(tag) >= _MIN_LETTERS):
            page.drop(tag, "decoration")
            continue
        if _is_hidden(tag) or (by_rule and by_rule & _marks(tag)):
            hidden.append(tag)
    if not hidden:
        return
    named = set(_WORD.findall(code)) | shown | pointed
    opens = _OPENING.search(code) is not None or any(script.has_attr("src") for script in scripts)
    for tag in hidden:
        if page.is_gone(tag) or tag.get("role") == "tabpanel" or id(tag) in panels or tag.find("math") is not None:
            continue  # formulas may be hidden behind a picture
        if not _can_be_shown(tag, named, opens and not tag.has_attr("hidden")):
            page.drop(tag, "hidden")


def _styles(text: str) -> tuple[set[str], set[str]]:
    """Return the classes and ids that a stylesheet hides everywhere, and the words of those that some of its rules show."""
    first, *others = text.split("/*")
    plain = first + "".join(other.partition("*/")[2] for other in others)
    hidden, shown = set[str](), set[str]()
    depth = 0
    for piece in plain.split("}"):
        outside = depth == 0 and piece.count("{") == 1
        depth = max(0, depth + piece.count("{") - 1)
        if not outside:  # skip blocks for print, narrow windows and the like
            continue
        selectors, _, declarations = piece.partition("{")
        if _NOT_SHOWN.search(declarations):
            hidden |= {found[1] for selector in selectors.split(",") if (found := _SIMPLE.fullmatch(selector.strip()))}
        elif _SHOWN.search(declarations):
            shown |= set(_NAME.findall(selectors))
    return {name for name in hidden if name[1:] not in shown}, shown


def _marks(tag: Tag) -> set[str]:
    return {f".{name}" for name in tag.get_attribute_list("class")} | {f"#{tag.get('id')}"}


def _can_be_shown(tag: Tag, named: Iterable[str], opens: bool) -> bool:
    """Return True if a hidden element is referred to, or follows a clickable one directly."""
    names = {str(name) for name in (*tag.get_attribute_list("class"), tag.get("id")) if name}
    if names.intersection(named):
        return True
    before = previous_element(tag)
    if before is None and tag.parent is not None:
        before = previous_element(tag.parent)
    if before is None:
        return False
    clicked = _is_clicked(before) or before.find(_is_clicked) is not None
    return clicked or (opens and (before.name in _TITLES or before.find(list(_TITLES)) is not None))


def _is_clicked(tag: Tag) -> bool:
    return (
        tag.name in ("button", "summary") or tag.get("role") == "button" or any(map(tag.has_attr, ("onclick", "aria-expanded", "tabindex")))
    )
