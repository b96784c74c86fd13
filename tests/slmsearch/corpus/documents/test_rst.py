"""reStructuredText as Markdown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.rst import read_rst
from slmsearch.corpus.pages import Page
from slmsearch.corpus.sections import split_sections

DOCUMENT = """\
.. _boats:

=========
The Boats
=========

.. toctree::
   :maxdepth: 2

   sails

Call :func:`~boats.sail` or see `the
harbour <https://example.org/h_(1)>`_ and ``a_b``, as [1]_ says. For example::

    # not a heading
    sail()

.. note:: Mind the tide.
   It turns twice.

.. code-block:: sh
   :linenos:

   row --hard

Sails
-----

.. function:: sail(boat, \\
                   wind)

   Sail it.

   .. versionadded:: 1.2

>>> sail(1)
'gone'

.. a comment
   of two lines

.. [1] In `Boats`_.

+------+-------+
| name | sails |
+======+=======+
| Gull | 2     |
+------+-------+
"""


def test_a_document_keeps_its_text_and_code_and_loses_what_leads_elsewhere():
    text = read_rst(DOCUMENT, lambda _: None)[1]
    assert [(s.level, s.heading) for s in split_sections(Page("p", "P", text))] == [(1, "The Boats"), (2, "Sails")]
    assert "Call `boats.sail` or see the\nharbour and `a_b`, as [1] says. For example:\n\n```\n# not a heading\nsail()\n```" in text
    assert "Note: Mind the tide.\nIt turns twice." in text
    assert "```sh\nrow --hard\n```" in text
    assert "`sail(boat, wind)`\n\nSail it.\n\nNew in version: 1.2" in text
    assert "```\n>>> sail(1)\n'gone'\n```" in text
    assert "[1] In Boats." in text and "| Gull | 2 |" in text
    assert not any(word in text for word in ("toctree", "sails\n\nCall", "comment", "_boats", ":linenos:", "example.org"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (".. admonition:: Beware\n\n   Of it.", "Beware\n\nOf it."),
        ("Title\n=====\n``code`` *x*", "# Title\n\n`code` *x*"),
        ("::\n\n  x", "```\nx\n```"),
        ("Text ::\n\n  x", "Text\n\n```\nx\n```"),
        (":ref:`A Title <label>`", "A Title"),
        (".. |x| image:: y.png\n\nText", "Text"),
        ("See :pep:`8`, :pep:`the guide <8>`, :rfc:`2822#section-3`.", "See PEP 8, the guide, RFC 2822."),
        (".. |mill| replace:: Halden\n   mill\n\nThe |mill| turns.", "The Halden mill turns."),
        (".. only:: html\n\n   Kept.\n\n.. only:: latex\n\n   Dropped.", "Kept."),
        (
            ".. tabs::\n\n   .. tab:: Linux\n\n      Port 4410.\n\n   .. code-tab:: py Python\n\n      x = 1",
            "Linux:\n\nPort 4410.\n\nPython:\n\n```py\nx = 1\n```",
        ),
        (
            '.. csv-table:: Prices\n   :header: "part", "price"\n\n   "wheel, oak", 700',
            "Prices\n\n| part | price |\n| --- | --- |\n| wheel, oak | 700 |",
        ),
        (
            ".. list-table::\n   :header-rows: 1\n\n   * - part\n     - price\n   * - wheel\n       of oak\n     - 700",
            "| part | price |\n| --- | --- |\n| wheel of oak | 700 |",
        ),
        ("A longer title\n====\n\ntext", "# A longer title\n\ntext"),
        (
            "See [2]_ and [#a]_.\n\n.. [2]\n   Recipe 84317.\n\n.. [#a] A note\n   goes on.",
            "See [2] and [a].\n\n[2]\n   Recipe 84317.\n\n[a] A note\n   goes on.",
        ),
        (".. note:: Mind.\n..\n\n   >>> 1\n   1\n\n..\n   A comment.", "Note: Mind.\n\n```\n>>> 1\n1\n```"),
        (".. testcode::\n   :hide:\n\n   x = 1\n\n.. doctest::\n   :options: +SKIP\n\n   >>> 1", "```\n>>> 1\n```"),
        ("Short\n===\n\ntext", "Short\n\ntext"),
        ("re\n--\n\ntext\n\nmore\n--", "# re\n\ntext\n\nmore\n--"),
        ("Mill\n~~~~\n\ntext\n\nWheel\n$$$$$\n\ntext", "# Mill\n\ntext\n\n## Wheel\n\ntext"),
        (".. unknown-thing:: of wheels\n\n   It turns.", "Unknown-thing: of wheels\nIt turns."),
        ("The `wheel`\\s and :term:`mill`\\ s of \\*oak, ``a\\b``.", "The `wheel`s and mills of *oak, `a\\b`."),
        ("Docutils_ and `the mill`__, not __init__ nor a_b; *sq_*.", "Docutils and the mill, not __init__ nor a_b; *sq_*."),
        (
            "#. one::\n\n     x\n\n   more\n\n#. two\n\n   (#) a\n   (#) b\n\n#. three\n\nend\n\n#. one",
            ("1. one:\n\n```\nx\n```\n\n   more\n\n2. two\n\n   (1) a\n   (2) b\n\n3. three\n\nend\n\n1. one"),
        ),
        ("2\\ :sup:`32` and H\\ :sub:`2`\\ O", "2^32 and H2O"),
        ("the 1\\ :sup:`st`", "the 1st"),
        (
            "Mill\n====\n\nSee :ref:`the-wheel`, :ref:`yard`.\n\n.. _the-wheel:\n\nOf the wheel\n------------\n\nfloat.__x__ turns",
            "# Mill\n\nSee Of the wheel, yard.\n\n## Of the wheel\n\nfloat.__x__ turns",
        ),
        ("| The wheel\n|   turns\n|\n| twice", "The wheel\n  turns\n\ntwice"),
        (
            "=====  ========  ====\n   Of the mill   cost\n---------------  ----\npart   price     note\n=====  ========  ====\n"
            "wheel  seven     \\*\n       hundred\n\\      2 | 3     oak, and more\n=====  ========  ====\n\nend",
            "| Of the mill part | Of the mill price | cost note |\n| --- | --- | --- |\n"
            "| wheel | seven hundred | * |\n|  | 2 \\| 3 | oak, and more |\n\nend",
        ),
        (
            "  +-------+---------------+\n  | part  | price         |\n  +=======+=======+=======+\n"
            "  | wheel | seven | ``a`` |\n  |       | hundr.|       |\n"
            "  |       +-------+-------+\n  |       | 8     | b     |\n  +-------+-------+-------+",
            "| part | price | price |\n| --- | --- | --- |\n| wheel | seven hundr. | `a` |\n| wheel | 8 | b |",
        ),
        (".. sidebar:: On wheels\n\n   Oak\n   ====\n\n   It turns.", "On wheels:\n\nOak\n\nIt turns."),
    ],
)
def test_single_parts(text: str, wanted: str):
    assert read_rst(text, lambda _: None)[1] == wanted


def test_fields_of_the_head_give_title_and_metadata():
    title, text, metadata, *_ = read_rst("PEP: 8\nTitle: Style of ``mills``\nAuthor: Ann\n\nWheel\n=====\n\ntext", lambda _: None)
    assert (title, text) == ("Style of mills", "PEP 8\n\n# Wheel\n\ntext")
    assert metadata == {"author": "Ann", "number": "PEP 8"}
    _, text, metadata, *_ = read_rst("Mill\n====\n\n:date: 2024-01-02\n:author: Ann\n\ntext", lambda _: None)
    assert (text, metadata) == ("# Mill\n\ntext", {"date": "2024-01-02", "author": "Ann"})


@pytest.mark.parametrize("order", ["{head}{title}text", "{title}{head}text"])
def test_fields_that_are_no_metadata_are_lines_of_the_text(order: str):
    head = ":Owner: Finance\n:date: 2024-01-02\n:Approved by: Jane\n   Doe\n:orphan:\n:tocdepth: 2\n\n"
    _, text, metadata, *_ = read_rst(order.format(head=head, title="Mill\n====\n\n"), lambda _: None)
    wanted = order.format(head="Owner: Finance\nApproved by: Jane Doe\n\n", title="# Mill\n\n")
    assert (text, metadata) == (wanted, {"date": "2024-01-02"})


def test_what_is_included_is_read_and_what_is_not_there_is_named():
    files = {"part.txt": "Wheel\n-----\n\nIt turns.", "a.py": "x = 1"}
    text = "Mill\n====\n\n.. include:: part.txt\n\n.. literalinclude:: a.py\n   :language: python\n\n.. include:: gone.txt\n\nend"
    _, found, _, dropped, _ = read_rst(text, files.get)
    assert found == "# Mill\n\n## Wheel\n\nIt turns.\n\n```\nx = 1\n```\n\nend"
    assert dropped == [("include", ".. include:: gone.txt")]


@given(
    st.lists(
        st.sampled_from(
            [
                "Title",
                "=====",
                "::",
                "  x",
                "    .. note:: y",
                ".. x::",
                "``",
                "`a",
                ":r:`b`",
                "# h",
                "```",
                "",
                "|",
                "== ==",
                "-- --",
                "a  b",
                "+--+--+",
                "|a | b|",
                "+==+==+",
                "#. i",
                "\\",
            ]
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_any_lines_are_read_and_code_stays_closed(lines: list[str]):
    text = read_rst("\n".join(lines), lambda _: None)[1]
    assert split_sections(Page("p", "P", text + "\n\n# After"))[-1].heading == "After", "no fence is left open"


@pytest.mark.parametrize(
    "piece", ["\n", ".. _a:\n", ".. _a:\n\n", "=== ===\n", "=== ===\na b\n", "+--+--+\n", "#. a::\n", "a_b.", "| a\n", "\\"]
)
def test_monotonous_documents_are_read(piece: str):
    assert isinstance(read_rst(f".. _a:\n{piece * (60_000 // len(piece))}", lambda _: None)[1], str)
