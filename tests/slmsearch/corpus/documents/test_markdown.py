"""Markdown and its tongues: headings as CommonMark reads them, front matter, includes, and marks that are no text."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from slmsearch.corpus.documents.dialects import Dropped
from slmsearch.corpus.documents.front_matter import split_fields, split_front_matter
from slmsearch.corpus.documents.markdown import parse_blocks, plain_heading, read_markdown
from slmsearch.corpus.documents.markup import guess_kind
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections
from tests.slmsearch.corpus.documents.builders import read

CASES = Path(__file__).parents[5] / "shared" / "cases"


def content(text: str, is_mdx: bool = False) -> str:
    return read_markdown(text, None, is_mdx)[1]


def headings(text: str) -> list[tuple[int, str]]:
    return [(section.level, section.heading) for section in split_sections(Page("p", "P", content(text))) if section.level]


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not there")
def test_the_shared_cases_give_what_a_person_expects() -> None:
    pages, _ = read(CASES)
    front = pages["front_matter"]
    assert front.title == "Grinding the burrs"
    assert (front.metadata["date"], front.metadata["tags"]) == ("2024-03-01", ["mill", "burrs"])
    assert [section.heading for section in split_sections(front)] == ["Grinding the burrs", "Wheel"]
    assert not any(word in front.content for word in ("draft", "date:", "internal"))
    assert pages["guide/_index"].title == "Guide to the mill"
    setext = pages["setext"]
    assert (setext.title, [section.heading for section in split_sections(setext)]) == ("Halden mill", ["Halden mill", "Wheel", "Roof"])
    assert split_sections(setext)[2].text.endswith("The roof has 4,000 shingles of larch.")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Mill\n====\n\ntext\n\nWheel\n-----\n\ntext", [(1, "Mill"), (2, "Wheel")]),
        ("Mill\n===\n\n#tag", [(1, "Mill")]),
        ("# Mill #\n\n## Wheel ##   \n\n### C#\n\ntext", [(1, "Mill"), (2, "Wheel"), (3, "C#")]),
        ("# Mill {#the-mill .big}\n\n## [Wheel](wheel.md) of `oak`\n\n## **Bold** _and_ snake_case\n\ntext", [
            (1, "Mill"), (2, "Wheel of oak"), (2, "Bold and snake_case")]),
        ("# `Rc<T>` and <b>oak</b>\n\ntext", [(1, "Rc<T> and oak")]),
        ("   ## Indented\n\ntext\n\n    # code\n", [(2, "Indented")]),
        ("#tag of a note\n\n#1 on the list\n\n#!/bin/sh\n\n####### seven\n\n# Mill", [(1, "Mill")]),
        ("text\n\n<!-- # comment\n## another\n-->\n\n```\n# code\n```\n\n~~~\n## code\n~~~\n\n## Wheel", [(2, "Wheel")]),
        ("- one\n\n  ## In a list\n\n  text\n- two\n", [(2, "In a list")]),
        ("> # Of a note\n> text\n\n## Wheel\n\ntext", [(2, "Wheel")]),
        ("<h1 align=center>Mill &amp; yard</h1>\n\ntext\n\n<div><h2>Wheel</h2>oak</div>", [(1, "Mill & yard"), (2, "Wheel")]),
        ("text\nof two lines\n---\n\nmore", [(2, "text of two lines")]),
        ("a rule\n\n---\n\nno heading", []),
        ("# \n\ntext\n\n#\n", []),
        ("| a | b |\n|---|---|\n| # | 1 |\n", []),
    ],
)  # fmt: skip
def test_headings_are_those_of_commonmark(text: str, wanted: list[tuple[int, str]]) -> None:
    found = headings(text)
    assert [item for item in found if item != (1, "P")] == wanted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- one\n\n  ```sh\n  make", "```sh\nmake\n```"),
        ("> ```\n> make", "```\nmake\n```"),
        ("- > ~~~\n  > make\n  > ~~~", "```\nmake\n```"),
        ("    ```\n    make", "````\n```\nmake\n````"),
        ("```\nmake\n    ```\nmore\n```", "````\nmake\n    ```\nmore\n````"),
        ("!!! note\n    ```\n    make", "```\nmake\n```"),
        ("- one\n\n  ~~~objective-c x=`1\n  make", "```objective-c x=1\nmake\n```"),
        ("1. one\n\n   ```\n   make\n   ```", "1. one\n\n   ```\n   make\n   ```"),
        ("````md\n```\n````", "````md\n```\n````"),
    ],
)
def test_code_ends_for_sections_where_it_ends_for_commonmark(text: str, code: str) -> None:
    assert headings(f"{text}\n\n## Wheel\n\ntext")[-1:] == [(2, "Wheel")]
    assert content(f"{text}\n\n## Wheel\n\ntext").endswith(f"{code}\n\n## Wheel\n\ntext")


def test_no_other_line_begins_like_a_heading() -> None:
    assert content("#tag\n\n#1 on the list\n\n####### seven") == "\\#tag\n\n\\#1 on the list\n\n\\####### seven"


@pytest.mark.parametrize(
    ("text", "title", "metadata", "rest"),
    [
        ("---\ntitle: Mill\ntags: [a, b]\ndate: 2024-03-01\n---\n# x", "Mill", {"tags": ["a", "b"], "date": "2024-03-01"}, "# x"),
        ('+++\ntitle = "Mill"\ndate = 2024-03-01T10:00:00Z\n+++\nx', "Mill", {"date": "2024-03-01T10:00:00+00:00"}, "x"),
        ('{\n"title": "Mill", "categories": ["a"]\n}\n\nx', "Mill", {"tags": ["a"]}, "x"),
        ("---\ntitle: Mill: a history\nkeywords: a, b\n---\nx", "Mill: a history", {"tags": ["a", "b"]}, "x"),
        ("---\ntitle: 42\nauthor:\n- Ann\n- Bo\n...\nx", "42", {"author": ["Ann", "Bo"]}, "x"),
        ("---\n\ntext between rules\n\n---\n\nx", "", {}, "---\n\ntext between rules\n\n---\n\nx"),
        ("text\n---\nx", "", {}, "text\n---\nx"),
        ("---\n---\nx", "", {}, "---\n---\nx"),
        ("% Mill wheels\n% Ann\n% 2024\n\nx", "Mill wheels", {"author": "Ann", "date": "2024"}, "x"),
        (
            "---\ntitle: Mill: a\ndate: 2024-03-05\nLast edited: monday\n---\nx",
            "Mill: a",
            {"date": "2024-03-05"},
            "Last edited: monday\n\nx",
        ),
        ('---\ntitle: {{title}}\n"quoted": x\n---\nx', "{{title}}", {}, "quoted: x\n\nx"),
        ("---\ncategory: b\ntags: [a]\n---\nx", "", {"tags": ["a", "b"]}, "x"),
        ("---\ncreated: 2019-01-01\n---\nx", "", {"date": "2019-01-01"}, "x"),
        ("% Mill wheels\n\nx", "Mill wheels", {}, "x"),
        ("% of all\nwheels\n\nx", "", {}, "% of all\nwheels\n\nx"),
    ],
)
def test_front_matter_is_metadata_and_no_text(text: str, title: str, metadata: dict[str, object], rest: str) -> None:
    found = split_front_matter(text)
    assert (found.title, found.metadata, found.rest) == (title, metadata, rest)


@pytest.mark.parametrize(
    ("text", "metadata", "rest"),
    [
        ("---\ncreated: 2019-01-01\ndate: 2024-05-01\n---\nx", {"date": "2024-05-01"}, "created: 2019-01-01\n\nx"),
        ("---\ndate: 2024-05-01\ncreated: 2019-01-01\n---\nx", {"date": "2024-05-01"}, "created: 2019-01-01\n\nx"),
        ("---\ncustomer: ACME\nPrice: 12500 CHF\nparts: [oak, 2]\n---\n\nx", {}, "customer: ACME\nPrice: 12500 CHF\nparts: oak, 2\n\nx"),
        ('+++\nowner = "Jane"\nsigned = 2024-03-01\n+++\nx', {}, "owner: Jane\nsigned: 2024-03-01\n\nx"),
        ('{\n"owner": "Jane",\n"title": "Mill"\n}\n\nx', {}, "owner: Jane\n\nx"),
        ("---\nowner: Jane: of ACME\nparts:\n- oak\n- ash\nnote: one\n  two\n# hidden\n---\nx", {}, (
            "owner: Jane: of ACME\nparts: oak, ash\nnote: one two\n\nx")),
        (f"---\nsummary: {'oak ' * 200}\n---\nx", {}, f"summary: {('oak ' * 200).strip()}\n\nx"),
        ("---\nweight: 12 kg\nlayout: two floors\n---\nx", {}, "weight: 12 kg\nlayout: two floors\n\nx"),
        ("---\nDecision: we ship.\nAnna calls.\n---\n\nx", {}, "---\nDecision: we ship.\nAnna calls.\n---\n\nx"),
        ("---\nDecision=ship\n---\n\nx", {}, "---\nDecision=ship\n---\n\nx"),
    ],
)  # fmt: skip
def test_fields_that_are_no_metadata_are_lines_of_the_text(text: str, metadata: dict[str, object], rest: str) -> None:
    found = split_front_matter(text)
    assert (found.metadata, found.rest, found.dropped) == (metadata, rest, ())


@pytest.mark.parametrize(
    "fields",
    [
        "hide:\n- navigation\n- toc\nsearch_boost: 2\nrender_macros: true",
        "classes: wide\nauthor_profile: true\nredirect_from: [/a/, /b/]\nexcerpt_separator: <!-- more -->",
        "outline: deep\nlastUpdated: true\nprev: false\nsidebar_label: Getting Started\nweight: 7\nimage: /a/b.png\nlinkTitle: Hello",
    ],
)
def test_of_common_generators_no_field_is_text(fields: str) -> None:
    found = split_front_matter(f"---\n{fields}\n---\nx")
    assert found.rest == "x" and len(found.dropped) >= 3
    assert split_front_matter("---\nweight: 12kg\ncover: steel\n---\nx").rest == "weight: 12kg\ncover: steel\n\nx"


def test_fields_for_the_generator_of_a_site_are_dropped_and_named() -> None:
    read = read_markdown("---\nlayout: post\nweight: 10\npublished: true\nmenu: {main: {name: Mill}}\nslug:\n---\nx")
    assert (read.content, read.metadata) == ("x", {})
    assert read.dropped == [("field", "layout: post"), ("field", "weight: 10"), ("field", "menu"), ("field", "published: True")]


def test_fields_of_a_head_are_metadata() -> None:
    text = "PEP: 8\nTitle: Style guide\n  for mills\nAuthor: Ann <a@b.c>\nStatus: Active\n\n\nIntroduction\n============\n"
    found = split_fields(text)
    assert (found.title, found.rest) == ("Style guide for mills", "PEP 8\n\nIntroduction\n============\n")
    assert found.metadata == {"author": "Ann <a@b.c>", "status": "Active", "number": "PEP 8"}
    assert split_fields("Title: Trips\nOwner: Jane\nWeight: 3\nOwner: Jo\n\nx").rest == "Owner: Jane\nWeight: 3\nOwner: Jo\n\nx"
    assert split_fields("PEP: 9\nTitle: a\nType: Process\n\nx").rest == "PEP 9\n\nType: Process\n\nx"
    for none in ("Title: alone\n\nx", "Note: this\nWarning: that\n\nx", "Title: a\nAuthor: b\ntext at once"):
        assert not split_fields(none).found and split_fields(none).rest == none


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("See [[Wheel|the wheel]] and [[Mill#Roof]] of [[Yard]].", "See the wheel and Mill, Roof of Yard."),
        ("![[wheel.png]]\n\n![[Mill#Roof]]", "Mill, Roof"),
        ("> [!warning]- Mind the wheel\n> It turns.", "> Mind the wheel:\n> It turns."),
        ("It turns so: ^376b9d\n\n- one ^wheel-1\n\n2 ^10", "It turns so:\n\n- one\n\n2 ^10"),
        ("> [!note]\n> It turns.", "> Note:\n> It turns."),
        ("iterators in [Chapter 13][ch]<!-- ignore\n-->. Write `<!-- toc -->`.", "iterators in [Chapter 13][ch]. Write `<!-- toc -->`."),
        ("{{< code-toggle file=hugo >}}\na = 1\n{{< /code-toggle >}}", "```\na = 1\n```"),
        ('<Listing number="1-2" file-name="a.rs" caption="A `Box<T>`">\n\ntext\n\n</Listing>', "Listing 1-2, a.rs, A `Box<T>`\n\ntext"),
        ("one %%hidden\nover lines%% two", "one  two"),
        ("one\n\n%%\nhidden\n\nparagraphs\n%%\n\ntwo (%%hidden%%).", "one\n\ntwo ()."),
        ('Print "%d%%", or\n\n    printf("%d%%", a);\n\nIt stays.', 'Print "%d%%", or\n\n    printf("%d%%", a);\n\nIt stays.'),
        ("Cells:\n\n%%time\n\nIt stays.\n\n%%bash", "Cells:\n\n%%time\n\nIt stays.\n\n%%bash"),
        ("for %%f in (a b) do echo %%f, %%f", "for %%f in (a b) do echo %%f, %%f"),
        ("Mark cells by `%%px`.\n\nOthers, as `%%bash`, stay.", "Mark cells by `%%px`.\n\nOthers, as `%%bash`, stay."),
        ('{{< figure src="a.png" >}}\n\n{{% note %}}Kept.{{% /note %}}', "Kept."),
        ("---\nlayout: post\n---\n{% if x %}Kept {{ site.name }} text.{% endif %}", "Kept  text."),
        ("A template says `{{ x }}` and {{ y }}.", "A template says `{{ x }}` and {{ y }}."),
        ("{% highlight sh %}\n# no heading\n{% endhighlight %}", "```sh\n# no heading\n```"),
        ("text {: .note}\n\n{:toc}\n\n* TOC", "text"),
        ('!!! note "Mind"\n    It turns.\n\n    Twice.\n\nafter', "Mind:\n\nIt turns.\n\nTwice.\n\nafter"),
        ("!!! warning\n    It turns.", "Warning:\n\nIt turns."),
        ('=== "Linux"\n\n    Port 4410.\n\n=== "Mac"\n\n    Port 4420.', "Linux:\n\nPort 4410.\n\nMac:\n\nPort 4420."),
        (":::tip Oil it\nEvery day.\n:::", "Oil it:\n\nEvery day."),
        ("```{note} Mind\n:class: x\nIt turns.\n```", "Note:\n\nMind\nIt turns."),
        ("```{code-block} sh\n:linenos:\nmake\n```", "```sh\nmake\n```"),
        ("(label)=\n## Wheel\n\nSee {ref}`the roof <roof>` and {doc}`yard`.", "## Wheel\n\nSee the roof and yard."),
        ("10<sup>6</sup>, the 1<sup>st</sup>, XX<sup>e</sup>\n\n## m<sup>2</sup>\n\n<div>10<sup>-6</sup></div>",
            "10^6, the 1st, XXe\n\n## m^2\n\n10^-6"),
        ("text<br>more <kbd>Ctrl</kbd>+<b>C</b> `<b>`", "text more Ctrl+C `<b>`"),
        ("[wheel]: https://a.b \"t\"\n\nA [Wheel][], [oak][wheel], [none][].", "A [Wheel](https://a.b), [oak](https://a.b), [none][]."),
        ('A {{% mill-term "oak wheel" %}} or {{< glossary term >}}. {{< new-in 1.12.0 />}} [x]({{< ref "yard" >}})',
         "A oak wheel or term. New in 1.12.0 [x]()"),
        ('{{< figure\n  src="a.png"\n  caption="The wheel"\n>}}\n\nA <a\n  href="x">link</a>, <Wheel\n  n="1"/> 2 < 3\nand > 1',
         "The wheel\n\nA link, <Wheel   n=\"1\"/> 2 < 3\nand > 1"),
        ("{{< code-toggle config=mill />}}\n\nIt turns.\n\n{{< code-toggle >}}\na = 1\n{{< /code-toggle >}}",
         "It turns.\n\n```\na = 1\n```"),
        ("The [wheel][] and [roof][r].\n\n[wheel]: {{% url wheel %}}\n[r]: {{< ref \"roof\" >}}", "The wheel and roof."),
        ("&nbsp;|a&nbsp;b\n-|-\n1|2", "| |a b\n-|-\n1|2"),
        ("## Wheel {{< new-in 1.2 />}} {{< x >}}\n\ntext", "## Wheel New in 1.2\n\ntext"),
        ("| <code>a &vert; <em>b</em></code> | R&amp;D &#8212; `&lt;` |", "| `a \\| b` | R&D \u2014 `&lt;` |"),
        ("<details><summary>More</summary>\n\nIt turns.\n\n</details>", "More\n\nIt turns."),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    ],
)  # fmt: skip
def test_what_a_tongue_adds_becomes_plain(text: str, wanted: str) -> None:
    assert content(text) == wanted


def test_mdx_loses_its_code_and_keeps_its_text() -> None:
    head = "import Tabs from '@theme/Tabs';\nexport const x = 1;\n\n# Mill\n\n"
    text = f"{head}<Tabs>\n<TabItem value='l' label='Linux'>\n\nPort 4410.\n\n</TabItem>\n</Tabs>\n"
    _, found, _, dropped, _ = read_markdown(text, None, True)
    assert found == "# Mill\n\nLinux:\n\nPort 4410."
    assert dropped == [("module", "import Tabs from '@theme/Tabs';"), ("module", "export const x = 1;")]


def test_shortcodes_are_counted() -> None:
    dropped: list[Dropped] = read_markdown("{{< a >}} text {{< b >}}")[3]
    assert dropped == [("shortcode", "{{< a >}}"), ("shortcode", "{{< b >}}")]


def test_files_are_included_from_the_folder_and_from_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "book" / "src").mkdir(parents=True)
    (tmp_path / "secret.rs").write_text("secret")
    (tmp_path / "book" / ".hidden").write_text("secret")
    (tmp_path / "book" / "main.rs").write_text("// top\n// ANCHOR: here\nfn main() {}\n// ANCHOR_END: here\nfn other() {}\n")
    (tmp_path / "book" / "part.md").write_text("---\ntitle: no\n---\nThe part.")
    lines = ["# Mill", "```rust", "{{#rustdoc_include ../main.rs:here}}", "```", "{{#include ../main.rs:5}}", '{{% include "/part.md" %}}',
             "{{#include ../../secret.rs}}", "{{#include ../.hidden}}", "{{#include gone.md}}"]  # fmt: skip
    (tmp_path / "book" / "src" / "a.md").write_text("\n\n".join(lines))
    pages, _ = read(tmp_path / "book")
    assert pages["src/a"].content.split("\n\n") == ["# Mill", "```rust", "fn main() {}", "```", "fn other() {}", "The part."]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Mill\n====\n\nSee :ref:`wheel`.\n\nWheel\n-----\n", "rst"),
        ("Mill\n====\n\ntext\n\nWheel\n-----\n\ntext", "markdown"),
        ("====\nMill\n====\n\n-----\nWheel\n-----\ntext", "rst"),
        ("# Mill\n\nsome text\n\nmore\n\n## Wheel\n\ntext\n\ntext", "markdown"),
        ("#!/bin/sh\n# Mill\n## Wheel\n", "text"),
        ("# set the gate\nopen = 1\n# set the stone\nlift = 2\n# and more\n", "text"),
        ("Dear miller,\n\nthe wheel turns.\n", "text"),
    ],
)
def test_plain_text_is_looked_into(text: str, kind: str) -> None:
    assert guess_kind(text) == kind


PIECES = [
    "# a",
    "## b ##",
    "c\n===",
    "word",
    "- item",
    "  # in",
    "> # q",
    "```",
    "~~~",
    "    # code",
    "<!-- x",
    "-->",
    "<div>",
    "{{< s >}}",
    "{%",
    "[[w]]",
    "!!! note",
    "    in",
    ":::tip",
    ":::",
    "#t",
    "\\# e",
    "",
    "%%",
    "`",
    "---",
    "\n<h2>x</h2>",
    "$x$",
    "![a](b)",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
@settings(max_examples=300, deadline=None)
def test_any_lines_give_headings_that_have_a_name(lines: list[str]) -> None:
    text = content("\n".join(lines))
    for line in text.split("\n"):
        assert "\x00" not in line
    assert all(section.heading.strip() for section in split_sections(Page("p", "P", text)))
    assert content("\n".join([*lines, *["word"] * 3])).count("word") >= 0


@given(st.lists(st.sampled_from([*PIECES, "|a|b|", "|-|-|", "a\n=", "> b\n> -", "1. c\n   ===", "[a]: b", "\t- d", "* * *"]), max_size=10))
@settings(max_examples=300, deadline=None)
def test_rules_that_a_text_cannot_use_change_nothing(lines: list[str]) -> None:
    text = "\n".join(lines)
    whole = MarkdownIt("commonmark").enable("table")
    whole.core.ruler.enableOnly(["normalize", "block"])
    assert parse_blocks(text) == whole.parse(text)


@given(st.lists(st.text("abc #`*_", min_size=1, max_size=12), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_words_are_kept(lines: list[str]) -> None:
    text = "\n\n".join(lines)
    letters = [c for c in text if c in "abc"]
    assert [c for c in content(text) if c in "abc"] == letters


@given(st.text("a*_`[]()#{}<>!\\ ", max_size=30))
def test_a_plain_heading_is_one_line_with_its_letters(text: str) -> None:
    assert "\n" not in plain_heading(text)


MONOTONOUS = [
    "\n",
    " ^a",
    "<a b\n",
    "{{< a\n",
    "[ ",
    "> ",
    "- ",
    "*",
    "{{",
    "<a ",
    "`",
    "[[",
    "#",
    "{%",
    "%%",
    "<!--",
    "![[",
    "\\",
    "<script ",
    "<h1>",
    "*a",
    "a:",
    "{% highlight x %}",
    "`a``b```",
    "<details>\n\n",
    "\n```",
    "    - ",
]


@pytest.mark.parametrize("piece", MONOTONOUS)
@pytest.mark.parametrize("begin", ["", "# "])
def test_monotonous_texts_are_read(piece: str, begin: str) -> None:
    assert isinstance(content(begin + piece * (60_000 // len(piece))), str)
