"""Messages from a stranger: whatever comes, the server waits no longer and keeps no more than it said."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.extensions.sandbox.engine import MAX_MESSAGE_BYTES, MAX_TOTAL_BYTES, Channel, ChannelError


class Pair:
    """A channel and the other side of its pipes.

    A descriptor is closed once and only when no thread writes to it any more: its number is another file's the moment after.
    """

    def __init__(self) -> None:
        channel_in, self.out = os.pipe()
        self.inp, channel_out = os.pipe()
        self.fds = [channel_in, self.out, self.inp, channel_out]
        self.channel = Channel(channel_in, channel_out)
        self.writers: list[threading.Thread] = []

    def write(self, body: bytes) -> None:
        os.write(self.out, len(body).to_bytes(4, "big") + body)

    def meanwhile(self, work: Callable[[], object]) -> None:
        def until_refused() -> None:
            with suppress(OSError):
                work()

        self.writers.append(threading.Thread(target=until_refused))
        self.writers[-1].start()

    def end(self, fd: int) -> None:
        self.fds.remove(fd)
        os.close(fd)

    def close(self) -> None:
        self.end(self.fds[0])  # what the channel reads from: who writes to it is refused
        for writer in self.writers:
            writer.join()
        for fd in list(self.fds):
            self.end(fd)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def soon() -> float:
    return time.monotonic() + 5.0


def test_messages_arrive_one_by_one_however_they_are_cut(pair: Pair) -> None:
    data = b"".join(len(body).to_bytes(4, "big") + body for body in (b'{"a": 1}', '{"b": "ß"}'.encode()))
    pair.meanwhile(lambda: [os.write(pair.out, data[i : i + 1]) for i in range(len(data))])
    assert pair.channel.receive(soon()) == {"a": 1}
    assert pair.channel.receive(soon()) == {"b": "ß"}


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_no_bytes_do_anything_but_end_the_conversation(data: bytes) -> None:
    pair = Pair()
    os.write(pair.out, data)
    pair.end(pair.out)
    try:
        while True:
            message = pair.channel.receive(soon())
            assert isinstance(message, dict)
    except ChannelError as error:
        assert str(error).startswith("stopped: ")
    finally:
        pair.close()


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[]", b'"x"', b"1", b"\xff\xfe", b'{"a": NaN', b""])
def test_what_is_no_message(pair: Pair, body: bytes) -> None:
    pair.meanwhile(lambda: pair.write(body))
    with pytest.raises(ChannelError, match="own channel"):
        pair.channel.receive(soon())


def test_a_message_that_is_too_long_is_not_waited_for(pair: Pair) -> None:
    os.write(pair.out, (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ChannelError, match="own channel"):
        pair.channel.receive(soon())


def test_messages_that_are_too_many(pair: Pair) -> None:
    body = json.dumps({"printed": "x" * (MAX_MESSAGE_BYTES - 100)}).encode()

    pair.meanwhile(lambda: [pair.write(body) for _ in range(2 * MAX_TOTAL_BYTES // len(body))])
    with pytest.raises(ChannelError, match="wrote too much"):
        while True:
            pair.channel.receive(soon())
    assert pair.channel.received_bytes <= MAX_TOTAL_BYTES + MAX_MESSAGE_BYTES


def test_nobody_is_waited_for_longer_than_said(pair: Pair) -> None:
    with pytest.raises(ChannelError, match="ran out of time"):
        pair.channel.receive(time.monotonic() + 0.05)
    with pytest.raises(ChannelError, match="ran out of time"):  # the pipe is full and nobody reads
        while True:
            pair.channel.send({"value": "x" * 10_000}, time.monotonic() + 0.05)


def test_who_is_gone_is_noticed_at_once(pair: Pair) -> None:
    pair.end(pair.inp)
    with pytest.raises(ChannelError, match="interpreter ended"):
        pair.channel.send({}, None)
    pair.end(pair.out)
    with pytest.raises(ChannelError, match="interpreter ended"):
        pair.channel.receive(None)
