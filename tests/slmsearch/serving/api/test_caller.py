"""Who asked: the header of W3C Trace Context, as it is and as it must not be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slmsearch.serving.api.caller import NOBODY, Caller, read_traceparent
from slmsearch.serving.api.protocol import parse_request

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ASKED = b'{"messages": [{"role": "user", "content": "Who?"}]%s}'


@pytest.mark.parametrize("header", [f"00-{TRACE}-{SPAN}-01", f" 00-{TRACE}-{SPAN}-00 ", f"cc-{TRACE}-{SPAN}-01-more"])
def test_trace_and_span_are_read(header):
    asked = parse_request(ASKED % b"", header)
    assert asked.caller.traceparent == asked.question.traceparent == header.strip() and asked.caller.parent == (TRACE, SPAN)


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_a_malformed_header_is_ignored(header):
    assert parse_request(ASKED % b"", header).caller == NOBODY


@given(st.text())
def test_any_header_is_read_or_ignored(header):
    found = read_traceparent(header)
    assert found is None or list(map(len, Caller(traceparent=found).parent)) == [32, 16]


def test_who_asked_is_what_the_client_says():
    said = ASKED % b', "user": "ada", "safety_identifier": "hash", "metadata": {"session_id": " s1 "}'
    assert parse_request(said).caller == Caller("hash", "s1")
    assert parse_request(ASKED % b', "user": " ", "metadata": {"session_id": 5}').caller == NOBODY
    for odd in (b', "user": 5, "metadata": "s"', b', "user": {"id": 3}, "safety_identifier": []', b', "metadata": {"session_id": {}}'):
        assert parse_request(ASKED % odd).caller == NOBODY, "it serves the trace alone"
    assert parse_request(ASKED % b', "user": "%s"' % (b"u" * 3000)).caller == Caller("u" * 2000)
