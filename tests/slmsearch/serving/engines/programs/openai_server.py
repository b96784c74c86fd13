"""A stand-in for an OpenAI-compatible server, as a program: it takes any arguments and behaves as FAKE_MODE says.

ok        answers
crash     says why and exits with 3
oom       says what CUDA says and exits with 1
killed    is killed by SIGKILL, as by the kernel
silent    never answers
stubborn  answers, and does not listen to SIGTERM
family    answers, and has started children of every kind that is hard to find again; FAKE_PIDS takes their numbers
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ARGUMENTS = sys.argv[1:]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def option(*names: str, default: str = "") -> str:
    for name in names:
        if name in ARGUMENTS:
            return ARGUMENTS[ARGUMENTS.index(name) + 1]
    return default


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = [option("--served-model-name", "--alias", "--model_alias", default="fake")]
        self.answer({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": asked["messages"][-1]["content"].upper()}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer({"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"], "choices": [choice]})

    def answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def have_a_family() -> None:
    """A child, one in a session of its own, one without the environment, and an orphan with neither; none listens to SIGTERM."""
    pids = []
    bare: dict[str, str] = {}
    for apart, environment in ((False, None), (True, None), (False, bare)):
        child = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=apart)
        assert child.stdout and child.stdout.readline() == "up\n"
        pids.append(child.pid)
    # The one in the middle ends at once, and its child belongs to nobody.
    code = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {DEAF!r}], stdout=subprocess.PIPE, text=True, env={{}},"
        " start_new_session=True); p.stdout.readline(); print(p.pid)"
    )
    orphan = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=bare)
    pids.append(int(orphan.stdout))
    Path(os.environ["FAKE_PIDS"]).write_text(" ".join(map(str, pids)))


def main() -> None:
    mode = os.environ.get("FAKE_MODE", "ok")
    print(f"fake server in mode {mode}: {json.dumps(ARGUMENTS)}", flush=True)
    if mode == "crash":
        print("RuntimeError: the weights are upside down", file=sys.stderr)
        sys.exit(3)
    if mode == "oom":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nRuntimeError: engine core failed", flush=True)
        sys.exit(1)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "silent":
        time.sleep(600)
    if mode == "family":
        have_a_family()
    server = ThreadingHTTPServer((option("--host", default="127.0.0.1"), int(option("--port"))), Handler)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    print("ended in order", flush=True)


if __name__ == "__main__":
    main()
