"""Messages to and from an instance, over two pipes, with a deadline for each and a limit on their size.

The other side may send anything, at any pace, or nothing; it may stop reading. None of that makes the server wait longer than the
deadline or keep more than the limit.
"""

import json
import marshal
import os
import select
import time

HEADER_BYTES = 4
MAX_MESSAGE_BYTES = 256 * 1024
MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Of all messages of one program; far more than tool calls and what may come back of its output."""
BLOCK = 65536
MARSHAL_VERSION = 2
"""A form that every Python 3 reads; the one in a container may be another than this."""


class ChannelError(Exception):
    """The conversation is over; the message says why, in words for the model."""


class Channel:
    """One side of a conversation."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Take over two descriptors."""
        self.received_bytes = 0
        self.max_message_bytes, self.max_total_bytes = MAX_MESSAGE_BYTES, MAX_TOTAL_BYTES
        self._read_fd, self._write_fd = read_fd, write_fd
        self._buffer = bytearray()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def receive(self, deadline: float | None) -> dict[str, object]:
        """Return the next message; `deadline` is by `time.monotonic()`, None waits for ever.

        Raises:
            ChannelError: none came in time, the other side is gone, or what it sent is no message.
        """
        length = int.from_bytes(self._take(HEADER_BYTES, deadline), "big")
        if length > self.max_message_bytes:
            raise ChannelError("stopped: it wrote to the sandbox's own channel")
        body = bytes(self._take(length, deadline))
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ChannelError("stopped: it wrote to the sandbox's own channel")
        return message

    def send(self, message: dict[str, object], deadline: float | None) -> None:
        """Write a message: dicts, lists, tuples, strings, numbers and None.

        Raises:
            ChannelError: the other side is gone or does not read.
        """
        body = marshal.dumps(message, MARSHAL_VERSION)
        data = memoryview(len(body).to_bytes(HEADER_BYTES, "big") + body)
        while data:
            _wait(self._write_fd, select.POLLOUT, deadline)
            try:
                data = data[os.write(self._write_fd, data[:BLOCK]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelError("stopped: its interpreter ended") from error

    def _take(self, count: int, deadline: float | None) -> bytearray:
        while len(self._buffer) < count:
            _wait(self._read_fd, select.POLLIN, deadline)
            try:
                block = os.read(self._read_fd, BLOCK)
            except BlockingIOError:
                continue
            if not block:
                raise ChannelError("stopped: its interpreter ended")
            self.received_bytes += len(block)
            if self.received_bytes > self.max_total_bytes:
                raise ChannelError("stopped: it wrote too much")
            self._buffer += block
        taken = self._buffer[:count]
        del self._buffer[:count]
        return taken


def _wait(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ChannelError("stopped: it ran out of time")
        # A pipe whose other end is closed reports at once, too; reading or writing then says so.
        if poll.poll(None if left is None else max(1, int(left * 1000))):
            return
