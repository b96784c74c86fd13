#!/usr/bin/env bash
# mcp 2.3.0 (and 1.30.0): a request whose id is written 2.0 is never answered.
#
# JSON has one kind of number, JSON-RPC allows numbers as ids, and some programs write every number with a point. One would expect an
# answer with the id 2, or an error. The SDK's server takes ids as strict integers; a message whose id is none still matches a
# notification, which has no id and gets no answer. (Over streamable HTTP, 1.30.0 answers it with 202 and an empty body.)
#
# Seen: the answers have the ids [1, 3]; the request with the id 2.0 between them has none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check mcp==2.3.0
cat > "$folder/server.py" <<'PYTHON'
import asyncio

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def main() -> None:
    server = Server("test", version="1")
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
PYTHON
cat > "$folder/client.py" <<'PYTHON'
import json
import subprocess
import sys

hello = '{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}'
lines = [
    f'{{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {hello}}}',
    '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
    '{"jsonrpc": "2.0", "id": 2.0, "method": "ping"}',
    '{"jsonrpc": "2.0", "id": 3, "method": "ping"}',
]
server = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
server.stdin.write("\n".join(lines) + "\n")
server.stdin.flush()
ids = []
while 3 not in ids:  # the last request; the pipe stays open until it is answered
    ids.append(json.loads(server.stdout.readline())["id"])
rest, _ = server.communicate()
ids += [json.loads(line)["id"] for line in rest.splitlines()]
print(ids)
sys.exit(ids != [1, 3])
PYTHON
"$folder/env/bin/python" "$folder/client.py" "$folder/server.py" 2>"$folder/log" || { tail -3 "$folder/log"; exit 1; }
