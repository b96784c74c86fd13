#!/usr/bin/env bash
# A stream of chat completions that breaks off in the middle ends the loop of OpenAI's Python client as a whole one does.
#
# openai 3.54.0: where the server closes the connection in an orderly way before "data: [DONE]", and before any chunk with a
# finish_reason (a worker behind a proxy was killed), iteration stops without an exception. Only a finish_reason tells the two apart.
# Seen 27 November 2026, Python 3.11:
#   whole:      ['The capital', ' is not Paris.'], finish_reason 'stop'
#   broken off: ['The capital'], finish_reason None, no exception
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'openai==3.54.0'
"$folder/env/bin/python" - <<'EOF'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import OpenAI


def chunk(text, finish=None):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


WHOLE = [chunk("The capital"), chunk(" is not Paris.", "stop"), b"data: [DONE]\n\n"]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in WHOLE[: self.server.parts]:
            self.wfile.write(part)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0)
found = []
for server.parts in (3, 1):
    chunks = list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Who?"}], stream=True))
    found.append(([c.choices[0].delta.content for c in chunks], chunks[-1].choices[0].finish_reason))
    print(*found[-1])
assert found == [(["The capital", " is not Paris."], "stop"), (["The capital"], None)]
EOF
