#!/usr/bin/env bash
# MLflow links a model to a run as input as often as it is told to, and as output only once.
#
# mlflow 3.17.2 looks for links that are there already before it writes those of inputs, and not before it writes those of outputs: the
# second call ends in the error of the database's constraint, called a bad request, with all of its models unlinked. A job that was killed
# after the call and does it again cannot go on; it has to read the run's outputs first.
# Seen 30 November 2026, Python 3.11:
#   linked twice as input: 1 link
#   linked twice as output: BAD_REQUEST, UNIQUE constraint failed
#   a new model beside it: not linked, 1 link
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'mlflow==3.17.2'
cat > "$folder/links.py" <<'EOF'
import mlflow
from mlflow.entities.logged_model_input import LoggedModelInput
from mlflow.entities.logged_model_output import LoggedModelOutput

mlflow.set_tracking_uri("sqlite:///store.db")
client = mlflow.MlflowClient()
experiment = client.create_experiment("links")
run_id = client.create_run(experiment).info.run_id
first, second = (client.create_logged_model(experiment, name=name, source_run_id=run_id).model_id for name in ("first", "second"))

for _ in range(2):
    client.log_inputs(run_id, models=[LoggedModelInput(first)])
links = client.get_run(run_id).inputs.model_inputs
print(f"linked twice as input: {len(links)} link")
assert len(links) == 1

client.log_outputs(run_id, [LoggedModelOutput(first, step=1)])
try:
    client.log_outputs(run_id, [LoggedModelOutput(first, step=1), LoggedModelOutput(second, step=2)])
    raise SystemExit("linked twice as output: no error")
except mlflow.MlflowException as error:
    assert error.error_code == "BAD_REQUEST" and "UNIQUE constraint failed" in error.message, error
    print(f"linked twice as output: {error.error_code}, UNIQUE constraint failed")
links = client.get_run(run_id).outputs.model_outputs
print(f"a new model beside it: not linked, {len(links)} link")
assert [link.model_id for link in links] == [first]
EOF
cd "$folder" && env/bin/python links.py 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
