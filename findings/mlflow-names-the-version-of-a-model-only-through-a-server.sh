#!/usr/bin/env bash
# A logged model knows that a version was registered of it only if a server registered it.
#
# mlflow 3.17.2 notes the versions of a logged model in its tag `mlflow.modelVersions`, from which the page of the model says whether it is
# registered, and as what. The server's handler of the request sets the tag, not the store: the same client call on `sqlite:///...` makes
# the same version, with its source and run, and the page says "Not registered" for ever, also when a server opens the file later.
# Seen 30 November 2026, Python 3.11:
#   on the file: version 1 of models:/m-..., tag None
#   on a server: version 2 of models:/m-..., tag [{"name": "searcher", "version": 2}]
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'mlflow==3.17.2'
cd "$folder"
cat > register.py <<'EOF'
import sys

import mlflow

mlflow.set_tracking_uri(sys.argv[1])
client, name = mlflow.MlflowClient(), "searcher"
experiment = client.get_experiment_by_name("Default").experiment_id
run_id = client.create_run(experiment).info.run_id
model = client.create_logged_model(experiment, name="adapter", source_run_id=run_id)
client.finalize_logged_model(model.model_id, "READY")
if sys.argv[2] == "on the file":
    client.create_registered_model(name)
version = client.create_model_version(name, f"models:/{model.model_id}", run_id, model_id=model.model_id)
tag = client.get_logged_model(model.model_id).tags.get("mlflow.modelVersions")
print(f"{sys.argv[2]}: version {version.version} of models:/m-..., tag {tag}")
assert version.source == f"models:/{model.model_id}" and (tag is None) == (sys.argv[2] == "on the file")
EOF
env/bin/python register.py sqlite:///store.db "on the file" 2> errors || { cat errors; exit 1; }
port=$(env/bin/python -c 'import socket; made = socket.socket(); made.bind(("127.0.0.1", 0)); print(made.getsockname()[1])')
env/bin/mlflow server --backend-store-uri sqlite:///store.db --port "$port" --workers 1 > server.log 2>&1 &
server=$!
until env/bin/python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$port/health')" 2> /dev/null; do kill -0 "$server"; sleep 1; done
env/bin/python register.py "http://127.0.0.1:$port" "on a server" 2> errors || { cat errors; exit 1; }
