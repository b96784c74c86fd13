"""Clients that hang up, by real sockets."""

import json
import socket
import threading

import pytest

from slmsearch.processes.ports import free_port
from slmsearch.serving.api.http_server import Place, serve
from slmsearch.serving.api.searcher_service import SearcherService
from tests.slmsearch.serving.api.fakes import WAIT_SECONDS, Control, served, settings
from tests.slmsearch.serving.api.test_service import control, counted, run, until

__all__ = ["control"]


def send(place: Place, text: str, stream: bool) -> socket.socket:
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    client = socket.create_connection((place.host, place.port), timeout=WAIT_SECONDS)
    client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
    return client


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_has_no_place_in_the_queue_and_no_answer(control: Control, stream: bool) -> None:
    control.free = False
    asked = SearcherService(served(), settings(queue=1))
    place, stop, ready = Place("127.0.0.1", free_port(), None), threading.Event(), threading.Event()
    thread = threading.Thread(target=serve, args=(asked, place, stop, ready.set))
    thread.start()
    try:
        assert ready.wait(WAIT_SECONDS)
        played = send(place, "Alba?", stream)
        assert control.next_batch() == ["Alba?"]
        waits = send(place, "Brixa?", stream)
        run(until(lambda: len(asked.waiting) == 1))
        for number, client in enumerate((waits, played), 1):
            client.close()
            run(until(lambda number=number: counted(asked, "requests_total", outcome="abandoned") == number))
        assert len(asked.waiting) == 0
        with send(place, "Delos?", stream) as client:
            run(until(lambda: len(asked.waiting) == 1))
            control.go.release(2)
            assert b"1503" in client.makefile("rb").read()
        assert control.next_batch() == ["Delos?"], "the others are not played any more"
        assert counted(asked, "requests_total", outcome="answered") == 1
    finally:
        stop.set()
        control.go.release(100)
        thread.join(WAIT_SECONDS)
