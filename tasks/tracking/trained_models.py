"""Models that runs made: checkpoints, registered adapters, the champion and the documents that it answers from.

Each is a model of MLflow (`LoggedModel`), an output of the run that made it, with its metrics; a registered adapter also holds its files.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities.logged_model import LoggedModel
from mlflow.entities.logged_model_output import LoggedModelOutput
from mlflow.entities.logged_model_status import LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from tasks.tracking.run_registry import RunRegistry
from tasks.tracking.service import ADAPTER_HASH, CHAMPION, DOCUMENTS, as_service, if_there

NOT_IN_MODEL_NAMES = re.compile(r"[^\w-]+")
"""Characters that registered models may have in their names, and models and prompts may not."""


class TrainedModels(RunRegistry):
    """Models of one experiment, and the registered ones of its store."""

    experiment_id: str

    @as_service
    def record_checkpoint(self, run_id: str, step: int) -> str:
        """Record the weights after a step as a model of the run, without its files, if it is not there; return its id."""
        model = self._open_model(run_id, f"step-{step}", "checkpoint", step)
        self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        return str(model.model_id)

    def _open_model(self, run_id: str, name: str, kind: str, step: int) -> LoggedModel:
        """Return the model of a name that a run made, which a kill may have left without its files; a new one if there is none."""
        known = self.client.search_logged_models([self.experiment_id], f"source_run_id = '{run_id}' AND name = '{name}'")
        model = known[0] if known else self.client.create_logged_model(self.experiment_id, name, run_id, model_type=kind)
        self._link_model(run_id, model.model_id, step)
        return model

    def _link_model(self, run_id: str, model_id: str, step: int) -> None:
        """Make a model an output of a run, if it is none: MLflow refuses the second time with an error of the database."""
        outputs = self.client.get_run(run_id).outputs
        if outputs is None or model_id not in {output.model_id for output in outputs.model_outputs}:
            self.client.log_outputs(run_id, [LoggedModelOutput(model_id, step)])

    @as_service
    def register_adapter(
        self, run_id: str, adapter: Path, name: str, tags: Mapping[str, str], write_beside: Callable[[Path], None] | None = None
    ) -> str:
        """Store the directory of a LoRA adapter as a model of a run, and register it; return its version.

        If an adapter of the same hash is registered, its version is returned, and its model becomes one of the run, too.

        Args:
            run_id: run that made it.
            adapter: its directory.
            name: registered model.
            tags: tags of the version, `slmsearch.adapter_hash` among them.
            write_beside: writes further files of the version into a folder.
        """
        with self.lock:  # two runs that end with the same adapter must not both find it unknown
            version = self._find_version(name, tags[ADAPTER_HASH])
            if version is None:
                plain = NOT_IN_MODEL_NAMES.sub("-", f"{name}-{tags[ADAPTER_HASH][:8]}")
                model_id = self._open_model(run_id, plain, "adapter", 0).model_id
                self.client.log_model_artifacts(model_id, str(adapter))
                if write_beside is not None:
                    with TemporaryDirectory() as folder:
                        write_beside(Path(folder))
                        self.client.log_model_artifacts(model_id, folder)
                self.client.set_logged_model_tags(model_id, dict(tags))
                self.client.finalize_logged_model(model_id, LoggedModelStatus.READY)
                source = f"models:/{model_id}"
                version = self.client.create_model_version(name, source, run_id, dict(tags), await_creation_for=0, model_id=model_id)
            named = [{"name": name, "version": str(version.version)}]  # a server does so; on a file nobody does
            self.client.set_logged_model_tags(_model_of(version), {MLFLOW_MODEL_VERSIONS: json.dumps(named)})
            self._link_model(run_id, _model_of(version), 0)
            return str(version.version)

    def _find_version(self, name: str, adapter_hash: str) -> ModelVersion | None:
        try:
            self.client.create_registered_model(name, description="LoRA adapters of slmsearch; the alias `champion` is the promoted one")
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        versions = self.client.search_model_versions(f"name = '{name}'", max_results=1000)
        return next((version for version in versions if version.tags.get(ADAPTER_HASH) == adapter_hash), None)

    @as_service
    def find_adapter(self, name: str, adapter_hash: str) -> str | None:
        """Return the id of the model that is registered with an adapter of a hash, None if there is none."""
        wanted = f"name = '{name}' AND tags.`{ADAPTER_HASH}` = '{adapter_hash}'"
        found = next(iter(self.client.search_model_versions(wanted, max_results=1)), None)
        return _model_of(found) if found else None

    @as_service
    def champion(self, name: str) -> dict[str, str] | None:
        """Return version and tags of the champion, None if there is none."""
        # An unreachable store must never read as "no champion": that would promote anything.
        version = if_there(lambda: self.client.get_model_version_by_alias(name, CHAMPION))
        return {**version.tags, "version": str(version.version)} if version else None

    @as_service
    def set_documents(self, name: str, documents: str, expected: str) -> bool:
        """Record the documents of a registered model unless others than `expected` were recorded meanwhile; return whether it did."""
        with self.lock:
            if self.documents(name) != expected:
                return False
            self.client.set_registered_model_tag(name, DOCUMENTS, documents)
            return True


def _model_of(version: ModelVersion) -> str:
    return str(version.source).removeprefix("models:/")
