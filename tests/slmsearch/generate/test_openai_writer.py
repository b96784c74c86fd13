"""The served policy against a small chat-completions server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slmsearch.generate.openai_writer import OpenAIWriter
from slmsearch.generate.writer import Sampling


class Handler(BaseHTTPRequestHandler):
    """Answers with the number of messages it was sent; says no when the last one asks for it."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]["content"]
        self.server.bodies.append(body)
        status = 400 if last == "fail" else 200
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": f"{len(body['messages'])} messages"},
                    "finish_reason": "length" if last == "long" else "stop",
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8},
        }
        data = json.dumps(reply if status == 200 else {"error": {"message": "no"}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.bodies = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_dialogues_grow_and_failures_stay_with_their_row(server):
    writer = OpenAIWriter("qwen", f"http://127.0.0.1:{server.server_port}/v1", tool_role="user")
    prompts = [[{"role": "user", "content": question}] for question in ("a", "fail", "long")]
    assert writer.open(prompts, Sampling(0.0, 5, 30)) == [(), (), ()]
    a, failed, cut = writer.write([0, 1, 2], [None] * 3, [100] * 3)
    assert (a.text, a.ended, a.num_tokens, a.failure) == ("1 messages", True, 7, "")
    assert failed.failure.startswith("generation: BadRequestError")
    assert (cut.ended, cut.failure) == (False, "")
    (again,) = writer.write([0], ["4821: Mira"], [12])
    assert again.text == "3 messages"
    assert server.bodies[-1]["messages"][1:] == [{"role": "assistant", "content": "1 messages"}, {"role": "user", "content": "4821: Mira"}]
    assert (server.bodies[-1]["max_tokens"], server.bodies[-1]["temperature"], server.bodies[-1]["seed"]) == (12, 0.0, 5)


def test_a_server_that_is_gone_is_a_failure(server):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    writer = OpenAIWriter("qwen", url)
    writer._client = writer._client.with_options(max_retries=0)
    server.shutdown()
    server.server_close()
    writer.open([[{"role": "user", "content": "a"}]], Sampling())
    (written,) = writer.write([0], [None], [100])
    assert written.failure.startswith("generation: APIConnectionError")


def test_a_tool_message_says_which_call_it_answers(server) -> None:
    """OpenAI's protocol demands it, and llama-cpp-python answers nothing without."""
    writer = OpenAIWriter("qwen", f"http://127.0.0.1:{server.server_port}/v1")
    writer.open([[{"role": "user", "content": "a"}]], Sampling())
    writer.write([0], [None], [50])
    writer.write([0], ["4821: Mira"], [50])
    assert server.bodies[-1]["messages"][-1] == {"role": "tool", "content": "4821: Mira", "tool_call_id": "call"}
