#!/usr/bin/env bash
# A Chroma server that deletes a collection keeps the files of its graph on the disk for good.
#
# chromadb 1.5.9: after delete_collection the folder of the collection's HNSW graph (five files) stays, also over a restart of the server;
# "chroma vacuum" shrinks the SQLite file and leaves the folders. Those that the table "segments" does not name are what is left over.
# Seen 27 November 2026, Python 3.11, three collections of 3,000 x 64 made and deleted one after the other:
#   collections 0, folders 3 with 15 files, 3.9 MB; the same after a restart and after chroma vacuum; segments named: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'chromadb==1.5.9'
"$folder/env/bin/python" - "$folder" <<'EOF'
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import chromadb
import numpy as np

CHROMA, HOME = Path(sys.executable).with_name("chroma"), Path(sys.argv[1]) / "home"
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def started():
    command = [CHROMA, "run", "--path", HOME, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            return server, chromadb.HttpClient(host="127.0.0.1", port=port)
        except ValueError:
            assert server.poll() is None
            time.sleep(0.2)


def graphs():
    files = [path for path in HOME.glob("*/*") if path.is_file()]
    return len({path.parent for path in files}), len(files), sum(path.stat().st_size for path in files)


server, client = started()
for number in range(3):
    collection = client.create_collection(f"vectors-{number}", embedding_function=None)
    collection.add(ids=[str(i) for i in range(3000)], embeddings=np.random.default_rng(number).standard_normal((3000, 64)))
    client.delete_collection(f"vectors-{number}")
deleted, left = graphs(), len(client.list_collections())
server.terminate()
server.wait()
server, client = started()
restarted = graphs()
server.terminate()
server.wait()
subprocess.run([CHROMA, "vacuum", "--path", HOME, "--force"], check=True, capture_output=True)
with sqlite3.connect(HOME / "chroma.sqlite3") as database:
    named = database.execute("select count(*) from segments").fetchone()[0]
print("collections", left, "folders, files, bytes", deleted, restarted, graphs(), "segments named", named)
assert left == named == 0
assert deleted[:2] == (3, 15) and deleted == restarted == graphs()
EOF
