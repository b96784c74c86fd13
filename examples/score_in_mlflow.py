"""Score a registered searcher by MLflow on a data set of its evaluations: python examples/score_in_mlflow.py MODEL_URI DATASET

Run it in the folder of a project, with MLFLOW_TRACKING_URI=sqlite:///mlruns/mlflow.db; data sets are listed on the experiment's page.
"""

import sys
from typing import Any

import mlflow
import mlflow.genai
import pandas as pd
from mlflow.genai.scorers import scorer

from slmsearch.judge.exact import exact_match

uri, name = sys.argv[1:]


@scorer
def exact(outputs: str, expectations: dict[str, Any]) -> bool:
    """Return whether an answer equals one of the right ones, as the product's own tables count it."""
    return exact_match(outputs, (expectations["expected_response"], *expectations["aliases"]))


model = mlflow.pyfunc.load_model(uri)
experiment = mlflow.set_experiment("slmsearch")
(dataset,) = mlflow.MlflowClient().search_datasets([experiment.experiment_id], f"name = '{name}'")


def answer(question: str) -> str:
    """Answer a question of the data set."""
    return model.predict(pd.DataFrame({"question": [question]}))["answer"][0] or ""


found = mlflow.genai.evaluate(data=dataset, predict_fn=answer, scorers=[exact])
print(found.metrics["exact/mean"])
