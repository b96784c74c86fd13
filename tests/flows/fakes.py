"""A small corpus and stand-ins for what takes minutes: the embedder, the model, training."""

import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import Artifact

from slmsearch.artifacts.files import replace_json
from slmsearch.config import RunConfig
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.retrieval.embed import Embedder, Progress, Vectors
from slmsearch.training.files import ADAPTER, JOB, SOURCES, STEPS
from slmsearch.training.job import JobManifest, TrainJob, read_manifest, train_sources, write_manifest
from slmsearch.training.phase_timer import CardUse
from slmsearch.training.reports import Collapse, append_report, make_report

PAGES = 30
STEPS_TRAINED = 4


class WordEmbedder(Embedder):
    """Bag of words: each word is a fixed direction."""

    id, revision, dimension = "words", "1", 64

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        return np.stack([self._vector(text) for text in texts]).astype(np.float32)

    def _encode_new_queries(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts)

    def _vector(self, text: str) -> np.ndarray:
        total = np.full(self.dimension, 1e-3)
        for word in re.findall(r"\w+", text.lower()):
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).normal(size=self.dimension)
        return total / np.linalg.norm(total)


def write_corpus(folder: Path, change: Callable[[list[dict[str, Any]]], None] = lambda questions: None) -> dict[str, str]:
    """Write a corpus of one-hop questions; `change` may spoil them. Returns the corpus settings."""
    folder.mkdir(parents=True, exist_ok=True)
    pages, questions = [], []
    for i in range(PAGES):
        name = f"Town{chr(65 + i % 26)}{i}"
        text = f"# {name}\n\n{name} is a town.\n\n## History\n\n{name} was founded in {1500 + i}.\n"
        pages.append({"id": f"p{i}", "title": name, "content": text})
        question = {"id": f"q{i}", "question": f"When was {name} founded?", "answer": str(1500 + i)}
        questions.append(
            {**question, "page_ids": [f"p{i}"], "section_ids": [f"p{i}:history"], "hops": 1, "kind": "one_hop", "source": "towns"}
        )
    change(questions)
    paths = {"pages": folder / "pages.jsonl", "questions": folder / "questions.jsonl"}
    for path, rows in zip(paths.values(), (pages, questions), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {name: str(path) for name, path in paths.items()}


def make_config(home: Path, corpus: dict[str, str], empty_store: Path, **sections: dict[str, Any]) -> RunConfig:
    """Make the config of a small run whose model is a stand-in; the store's tables, which take seconds to make, are copied."""
    (home / "mlruns").mkdir(exist_ok=True)
    shutil.copy(empty_store, home / "mlruns" / "mlflow.db")
    model = home / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    base: dict[str, dict[str, Any]] = {
        "paths": {"data_dir": str(home / "data"), "mlruns_dir": str(home / "mlruns")},
        "corpus": corpus,
        "policy": {"model": str(model)},
        "evaluate": {"split": "all", "baselines": ["random"]},
        "decision": {"min_questions": 20},
        "control": {"steps": 3},
    }
    return RunConfig.model_validate({name: {**base.get(name, {}), **sections.get(name, {})} for name in {*base, *sections}})


class FakeTraining:
    """Trains by writing files; fails once after two steps where asked to."""

    def __init__(self) -> None:
        self.fail_with: BaseException | None = None
        self.calls = 0
        self.content = b"adapter"
        self.collapse: Collapse | None = None
        """Of the last step."""
        self.digests: list[str] = []
        """Corpora of the controls."""
        self.card: dict[str, CardUse] | None = None
        """What its phases took of one."""

    def train(self, job: TrainJob, on_step: Callable[[Any], None], after_step: int = 0) -> JobManifest:
        self.calls += 1
        job.directory.mkdir(parents=True, exist_ok=True)
        (job.directory / STEPS).unlink(missing_ok=True)
        for step in range(1, STEPS_TRAINED + 1):
            if self.fail_with is not None and step == 3:
                error, self.fail_with = self.fail_with, None
                raise error
            report = make_report(step, {"reward/mean": step / 10, "loss": 0.5}, self.collapse if step == STEPS_TRAINED else None)
            append_report(job.directory / STEPS, report)
            if step > after_step:
                on_step(report)
        adapter = job.directory / ADAPTER
        adapter.mkdir(exist_ok=True)
        (adapter / "adapter_config.json").write_text("{}")
        weights = adapter / "adapter_model.safetensors"
        weights.write_bytes(self.content)
        spent = {"sampling": 0.9, "update": 0.4, "other": 0.2}
        (job.directory / JOB).write_text(job.to_json(), encoding="utf-8")
        replace_json(job.directory / SOURCES, train_sources(job.config, job.corpus_digest, job.index_key))
        write_manifest(job, STEPS_TRAINED, 1.5, 0, spent, self.card)
        manifest = read_manifest(job.directory)
        assert manifest is not None
        return manifest

    def train_control(
        self,
        config: RunConfig,
        out: Path,
        seconds: float,
        on_log: Callable[[int, dict[str, float]], None],
        on_phase: Callable[[str, str, int, int], None],
        digest: str,
    ) -> dict[str, Any]:
        self.digests.append(digest)
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text("{}")
        (out / "control.json").write_text("{}")
        (out / "model.safetensors").write_bytes(b"control")
        on_phase("SFT", "steps", 1, config.control.steps)
        on_log(1, {"loss": 1.0, "grad_norm": 2.0, "train_runtime": 3.0})
        return {"steps": config.control.steps, "seconds": seconds}


class ChildHere:
    """Stands in for the child process: calls the function here, where the stand-ins are; a module that loads torch is not imported."""

    stand_ins: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __enter__(self) -> "ChildHere":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, function: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, str) and function in self.stand_ins:
            function = self.stand_ins[function]
        elif isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(importlib.import_module(module), name)
        return function(*args, **kwargs)

    def stop(self) -> None:
        """Nothing runs."""


def replace_heavy_parts(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """Put stand-ins where models would be loaded: the untrained policy knows nothing, the trained one searches and reads."""
    from slmsearch.evaluate import run

    make_real = run.make_policy_sampler

    def make_sampler(spec: Any, environment: Any, questions: Any) -> Any:
        if spec.policy is None or environment.name != "searcher":
            return make_real(spec, environment, questions)
        if spec.policy.adapter:
            return ScriptedSampler(RetrieveThenAnswer(environment.toolbox, environment.config.searcher.max_turns))
        return ScriptedSampler(lambda question, results: "<answer>I don't know</answer>")

    training, embedder = FakeTraining(), WordEmbedder()
    monkeypatch.setattr(run, "make_policy_sampler", make_sampler)
    for module in ("slmsearch.retrieval.build", "slmsearch.retrieval.search"):
        monkeypatch.setattr(f"{module}.load_embedder", lambda config: embedder)
    monkeypatch.setattr("tasks.child.Child", ChildHere)
    monkeypatch.setattr("tasks.train.train", training.train)
    monkeypatch.setitem(ChildHere.stand_ins, "slmsearch.training.teach:train_control", training.train_control)
    return training


def shown_artifacts(flow_run_id: UUID | str) -> list[Artifact]:
    """Read the artifacts of a flow run, of a server with those of many: one answer holds 200 at most."""
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(str(flow_run_id))]))
    with get_client(sync_client=True) as client:
        return client.read_artifacts(flow_run_filter=wanted)
