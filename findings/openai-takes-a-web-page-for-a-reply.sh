#!/usr/bin/env bash
# OpenAI's Python client returns a web page as the completion: no exception, a plain string.
#
# openai 3.54.0 decides by the Content-Type. A reply with status 200 that is not JSON, as a proxy's sign-in page or a wrong address
# sends it, comes back from chat.completions.create() as str, and the caller meets an AttributeError at .choices.
# JSON of any other shape comes back as a ChatCompletion whose .choices is None, not as a validation error.
# Seen 27 November 2026, Python 3.11:
#   text/html  -> str '<html>Sign in</html>'
#   text/plain -> str 'yes'
#   {"status": "ok"} as JSON -> ChatCompletion, choices None
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'openai==3.54.0'
"$folder/env/bin/python" - <<'EOF'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import OpenAI

REPLIES = [("text/html", b"<html>Sign in</html>"), ("text/plain", b"yes"), ("application/json", b'{"status": "ok"}')]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        kind, body = REPLIES[self.server.number]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0)
found = []
for server.number in range(len(REPLIES)):
    found.append(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Who?"}]))
    print(REPLIES[server.number][0], "->", type(found[-1]).__name__, repr(getattr(found[-1], "choices", found[-1])))
assert found[:2] == ["<html>Sign in</html>", "yes"]
assert type(found[2]).__name__ == "ChatCompletion" and found[2].choices is None
EOF
