"""reStructuredText as Markdown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.documents.rst import rst_to_markdown
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
    text = rst_to_markdown(DOCUMENT)
    assert [(s.level, s.heading) for s in split_sections(Page("p", "P", text))] == [(1, "The Boats"), (2, "Sails")]
    assert "Call `boats.sail` or see the\nharbour and `a_b`, as [1] says. For example:\n\n```\n# not a heading\nsail()\n```" in text
    assert "Note: Mind the tide.\nIt turns twice." in text
    assert "```sh\nrow --hard\n```" in text
    assert "`sail(boat, wind)`\n\nSail it.\n\nNew in version: 1.2" in text
    assert "```\n>>> sail(1)\n'gone'\n```" in text
    assert "[1] In Boats." in text and "| Gull | 2     |" in text
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
    ],
)
def test_single_parts(text: str, wanted: str):
    assert rst_to_markdown(text) == wanted


@given(st.lists(st.sampled_from(["Title", "=====", "::", "  x", "    .. note:: y", ".. x::", "``", "`a", ":r:`b`", "# h", "```", "", "|"])))
@settings(max_examples=100, deadline=None)
def test_any_lines_are_read_and_code_stays_closed(lines: list[str]):
    text = rst_to_markdown("\n".join(lines))
    assert split_sections(Page("p", "P", text + "\n\n# After"))[-1].heading == "After", "no fence is left open"
