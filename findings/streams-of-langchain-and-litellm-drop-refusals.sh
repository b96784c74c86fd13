#!/usr/bin/env bash
# langchain-openai 1.7.4 and litellm 1.110.2: a refusal is there in a whole reply and gone in a stream of the same.
#
# OpenAI's protocol has `refusal` beside `content`, in a message and in the deltas of a stream. Both libraries hand it on from a message.
# From a stream, where it comes in a delta of its own, both give empty texts and no error: a program that shows a stream shows nothing.
# openai 3.57.0, through which both ask, has the refusal in its chunks.
#
# Seen: openai stream: no answer / langchain whole: no answer, stream: nothing / litellm whole: no answer, stream: nothing
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check langchain-openai==1.7.4 litellm==1.110.2 openai==3.57.0
cat > "$folder/ask.py" <<'PYTHON'
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
HEAD = {"id": "c", "created": 1, "model": "m"}


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("stream"):
            deltas = [({"role": "assistant", "content": ""}, None), ({"refusal": "no answer"}, None), ({}, "stop")]
            chunks = [
                {**HEAD, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas
            ]
            kind, body = "text/event-stream", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        else:
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, "refusal": "no answer"}}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            kind, body = "application/json", json.dumps({**HEAD, "object": "chat.completion", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"

import litellm
import openai
from langchain_openai import ChatOpenAI

messages = [{"role": "user", "content": "?"}]
client = openai.OpenAI(base_url=url, api_key="x")
direct = [chunk.choices[0].delta.refusal for chunk in client.chat.completions.create(model="m", messages=messages, stream=True)]
chat = ChatOpenAI(model="m", base_url=url, api_key="x")
whole = [chat.invoke("?").additional_kwargs.get("refusal")]
chunks = [chunk.model_dump_json() for chunk in chat.stream("?")]
options = {"model": "openai/m", "api_base": url, "api_key": "x", "messages": messages}
whole.append(litellm.completion(**options).choices[0].message.refusal)
chunks += [chunk.model_dump_json() for chunk in litellm.completion(**options, stream=True)]
print("openai stream:", direct, "whole replies of both:", whole, "chunks of both that have it:", [one for one in chunks if "no answer" in one])
assert "no answer" in direct and whole == ["no answer"] * 2 and len(chunks) >= 4 and not any("no answer" in one for one in chunks)
PYTHON
"$folder/env/bin/python" "$folder/ask.py" 2>"$folder/log" || { tail -3 "$folder/log"; exit 1; }
