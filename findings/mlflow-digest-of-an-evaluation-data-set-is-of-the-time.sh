#!/usr/bin/env bash
# The digest of an MLflow evaluation data set says when it was written, not what is in it.
#
# mlflow 3.17.2 hashes the name and the time of the last update in milliseconds. To merge records that are there already, which changes
# none of them, makes a new digest, and two data sets of equal records never share one: runs cannot be compared by the digest of their input,
# as they can for `mlflow.data.from_pandas`, whose digest is of the values. Of the records themselves nothing is hashed that a client can read.
# Seen 29 November 2026, Python 3.11:
#   records 2 2, digests 8515cbeb fd98acd8: the same records merged twice
#   records equal True, digests equal False: the same records in another experiment
#   from_pandas: digests equal True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'mlflow==3.17.2'
cat > "$folder/digests.py" <<'EOF'
import time

import mlflow
import pandas as pd

mlflow.set_tracking_uri("sqlite:///store.db")
client = mlflow.MlflowClient()
records = [{"inputs": {"question": f"Which {number}?"}, "expectations": {"expected_response": str(number)}} for number in range(2)]
experiments = [client.create_experiment(name) for name in ("one", "two")]


def merge(dataset):
    dataset.merge_records(records)
    time.sleep(0.01)
    return client.get_dataset(dataset.dataset_id)


made = [client.create_dataset("questions", [experiment]) for experiment in experiments]
first, again, other = merge(made[0]), merge(made[0]), merge(made[1])
print(f"records {len(first.records)} {len(again.records)}, digests {first.digest} {again.digest}: the same records merged twice")
assert len(first.records) == len(again.records) == 2 and first.digest != again.digest

content = [sorted((str(one.inputs), str(one.expectations)) for one in found.records) for found in (again, other)]
print(f"records equal {content[0] == content[1]}, digests equal {again.digest == other.digest}: the same records in another experiment")
assert content[0] == content[1] and again.digest != other.digest

tables = [mlflow.data.from_pandas(pd.DataFrame({"question": ["a", "b"]}), name="questions") for _ in range(2)]
print("from_pandas: digests equal", tables[0].digest == tables[1].digest)
assert tables[0].digest == tables[1].digest
EOF
cd "$folder"
MLFLOW_DISABLE_TELEMETRY=true "$folder/env/bin/python" digests.py 2>/dev/null
