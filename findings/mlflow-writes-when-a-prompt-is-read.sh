#!/usr/bin/env bash
# Loading a prompt writes: a client bound to a store, in no experiment, lists the prompt under "Default", from a thread, after it returned.
#
# mlflow 3.17.2: MlflowClient.load_prompt and register_prompt start a thread that adds the id of the *fluent* API's experiment ("0" where
# none was set, whichever experiments the client works in) to the prompt's tag of experiments. Nothing waits for that thread: beside a
# tag set by hand on a new prompt the two insert the same row, and the loser's caller gets an IntegrityError of the store.
# create_prompt, create_prompt_version, get_prompt_version and search_prompt_versions read and write without it.
# Seen 30 November 2026, Python 3.11:
#   quiet calls: experiments None, threads []
#   load_prompt: experiments ,0, threads ['link_prompt_to_experiment_thread']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'mlflow==3.17.2'
cat > "$folder/prompts.py" <<'EOF2'
import threading

from mlflow import MlflowClient

TAG = "_mlflow_experiment_ids"
started = []
start = threading.Thread.start


def note(thread):
    if thread.name.startswith("link_prompt"):
        started.append(thread)
    start(thread)


threading.Thread.start = note
client = MlflowClient("sqlite:///store.db")
client.create_experiment("mine")
client.create_prompt("greeting")
client.create_prompt_version("greeting", "Hello {{name}}")
assert client.get_prompt_version("greeting", 1).template == client.search_prompt_versions("greeting")[0].template
quiet = client.get_prompt("greeting").tags.get(TAG)
print("quiet calls: experiments", quiet, "threads", started)
client.load_prompt("prompts:/greeting@latest", cache_ttl_seconds=0)
for thread in started:
    thread.join()
names = [thread.name.rpartition("-")[0] for thread in started]
loud = client.get_prompt("greeting").tags.get(TAG)
print("load_prompt: experiments", loud, "threads", names)
assert (quiet, loud, names) == (None, ",0,", ["link_prompt_to_experiment_thread"])
EOF2
cd "$folder"
"$folder/env/bin/python" prompts.py 2>"$folder/errors" || { cat "$folder/errors"; exit 1; }
