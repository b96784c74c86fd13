#!/usr/bin/env bash
# A judge on loopback makes MLflow fetch a price list from the internet, and a 404 there is asked for four times.
#
# mlflow 3.17.2 adds the cost of each judgement to its feedback. For "openai:/NAME" it asks MLFLOW_MODEL_CATALOG_URI, by default a release
# page on GitHub, whatever OPENAI_BASE_URL says; a table of the same prices lies in the package and is read afterwards. 404 counts
# among the codes worth a retry, with a backoff of 1, 2 and 4 seconds and a time limit of 5 s each: the first judgement waits. Behind a
# firewall that drops packets it looks like a scorer that hangs. MLFLOW_MODEL_CATALOG_URI= (empty) asks nobody.
# Seen 29 November 2026, Python 3.11, with loopback in the place of GitHub:
#   asked of the price list: ['/openai.json', '/openai.json', '/openai.json', '/openai.json']
#   feedback: yes
#   with an empty address: []
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'mlflow==3.17.2'
cat > "$folder/judge.py" <<'EOF'
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

asked = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": json.dumps({"rationale": "read", "result": "yes"})}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        reply["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        reply["usage"] = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
here = f"http://127.0.0.1:{server.server_port}"
os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{here}/v1", "MLFLOW_MODEL_CATALOG_URI": here if sys.argv[1] == "listed" else ""}
from mlflow.genai.judges import is_grounded

feedback = is_grounded(request="Who?", response="Ada", context=[{"content": "Ada wrote it."}], model="openai:/local")
print("asked of the price list:", asked, "feedback:", feedback.value)
assert str(getattr(feedback.value, "value", feedback.value)) == "yes"
assert asked == (["/openai.json"] * 4 if sys.argv[1] == "listed" else [])
EOF
cd "$folder"
for way in listed silent; do
    "$folder/env/bin/python" judge.py "$way"
done
