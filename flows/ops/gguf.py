"""Export a policy as a GGUF and play the same questions with torch and with llama.cpp."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from flows.runtime.fetching import require_policy
from flows.runtime.servers import Say
from flows.stages.policy_choice import choose_policy
from slmsearch.artifacts.directories import require_replaceable
from slmsearch.artifacts.files import read_json
from slmsearch.config import PolicyConfig, RunConfig, SearcherConfig
from slmsearch.corpus.store import load_questions
from slmsearch.environments.environment import Environment
from slmsearch.environments.registry import environment_of, open_environment
from slmsearch.environments.searcher.prompt import make_prompt
from slmsearch.errors import ModelError, ServiceError
from slmsearch.evaluate.parity import Parity, measure_parity
from slmsearch.evaluate.policies import PolicySpec
from slmsearch.evaluate.run import Evaluation, evaluate_policy, select_questions
from slmsearch.foreign import cause_of
from slmsearch.models.gguf_file import Quantisation
from slmsearch.sampling.llamacpp import require_llamacpp
from slmsearch.serving.api.mcp_tools import ASK, TOOLS
from slmsearch.training.export_gguf import MODELFILE, README, Exported, Interface, export_gguf

PARITY = "parity.json"
"""File of an exported directory with the figures of its check."""
CHOOSE_BY = "validation"
"""Split of the questions: nothing is chosen by the test split."""
OLLAMA_TIMEOUT_S = 600.0
"""Time limit for `ollama create`, in seconds."""


def export_policy(
    config: RunConfig, policy: str, out: Path, kind: Quantisation, questions: int, say: Say
) -> tuple[Exported, Parity | None]:
    """Write the directory of a policy, and check it before it stands there; see `export_gguf` and `check_parity`.

    Args:
        config: settings of the run.
        policy: name of the policy.
        out: directory, missing, empty or an earlier export.
        kind: type of the matrices: bf16, q8_0 or q4_k_m.
        questions: largest number that the check plays; 0 leaves it out.
        say: receives progress messages.

    Raises:
        ModelError: the policy does not exist, has no model here, or cannot be written.
        ConfigError: the name is no policy, or the directory holds something else.
        EvaluationError: too many episodes of the check failed.
    """
    require_replaceable(out)
    spec, _ = choose_policy(config, policy)
    if spec.policy is None:
        raise ModelError(f"{policy} has no model: name an adapter or a model")
    require_policy(spec.policy, config.paths)
    played = spec.policy
    if other := _find_other_settings(config.searcher, played):
        say(f"{policy} was trained with another {', '.join(other)}: written is what is configured now; give the former with --config")
    found: list[Parity] = []

    def check(exported: Exported) -> None:
        found.append(check_parity(config, played, exported, questions, say))

    exported = export_gguf(played, out, kind, describe_interface(environment_of(config)), check if questions else None)
    return exported, found[0] if found else None


def _find_other_settings(searcher: SearcherConfig, policy: PolicyConfig) -> list[str]:
    """Return the settings of the searcher with which an adapter of this installation was trained, and which are others now."""
    job = read_json(Path(policy.adapter).parent / "job.json") if policy.adapter else {}
    trained, now = job.get("config", {}).get("searcher", {}), searcher.model_dump(mode="json")
    return [f"searcher.{name}" for name, value in trained.items() if name in now and now[name] != value]


def describe_interface(environment: Environment) -> Interface:
    """Describe how an environment is played: its system message, and a searcher's calls."""
    opening, searcher = environment.opening(""), environment.config.searcher
    system = next((message["content"] for message in opening if message["role"] == "system"), "")
    if environment.config.environment != "searcher" or searcher.reads != "tools":
        return Interface(system, "", (), searcher.tool_role)
    declared = opening[0].get("tools")
    tools = json.loads(declared) if declared else [tool.describe() for tool in TOOLS if tool.name != ASK]
    return Interface(system, make_prompt("", searcher.changed({"system_prompt": None}))[0]["content"], tools, searcher.tool_role)


def check_parity(config: RunConfig, policy: PolicyConfig, exported: Exported, questions: int, say: Say) -> Parity:
    """Play questions of the configured corpus with a policy in torch and with its file in llama.cpp; keep the figures beside the file.

    Args:
        config: settings of the run. Questions of the validation split are played; without one, those of `evaluate.split`.
        policy: in torch, on the configured device and in the configured dtype.
        exported: the same as a file.
        questions: largest number.
        say: receives a line before each evaluation.

    Raises:
        ModelError: llama.cpp is not installed, or does not read the file.
        EvaluationError: too many episodes failed.
    """
    require_llamacpp()
    digest = environment_of(config).data(config).build(config.paths.corpora)
    splits = load_questions(config.paths.corpora, digest)
    split = CHOOSE_BY if splits.get(CHOOSE_BY) else config.evaluate.split
    config = config.changed({"evaluate.split": split, "evaluate.limit": questions, "evaluate.samples": 1, "judge.kind": "exact"})
    asked = select_questions(splits, config.evaluate)
    opened = open_environment(config, digest)

    def play(engine: str, played: PolicyConfig) -> Evaluation:
        say(f"playing {len(asked)} questions with {engine}")
        return evaluate_policy(asked, opened, PolicySpec(engine, played))

    alone = {"model": str(exported.file), "adapter": None, "base_url": None}
    parity = measure_parity(play("torch", policy), play("llama.cpp", policy.model_copy(update=alone)), config.decision)
    (exported.file.parent / PARITY).write_text(json.dumps(asdict(parity)) + "\n", encoding="utf-8")
    with (exported.file.parent / README).open("a", encoding="utf-8") as readme:
        readme.write("\n## Parity\n\n" + "\n".join(f"- {line}" for line in render_parity(parity)) + "\n")
    return parity


def render_parity(parity: Parity) -> list[str]:
    """Return the figures as lines for a person."""
    low, high = 100 * parity.low, 100 * parity.high
    return [
        f"the same {parity.n} questions: torch {parity.exact_match_torch:.1%} exact, llama.cpp {parity.exact_match_gguf:.1%}",
        f"llama.cpp minus torch {100 * parity.difference:+.1f} points [{low:+.1f}, {high:+.1f}]",
        f"{parity.episodes_identical_frac:.0%} of the episodes are the same, word for word",
    ]


def find_ollama() -> str:
    """Return the path of Ollama's program.

    Raises:
        ServiceError: it is not installed.
    """
    program = shutil.which("ollama")
    if program is None:
        raise ServiceError("Ollama is not installed; leave --ollama out and run `ollama create` with the Modelfile later")
    return program


def create_model(directory: Path) -> None:
    """Make an exported directory a model of Ollama, by the directory's name.

    Raises:
        ServiceError: Ollama is not installed, does not run, or refuses the file.
    """
    command = [find_ollama(), "create", directory.name, "-f", MODELFILE]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=OLLAMA_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"Ollama did not take {directory} within {OLLAMA_TIMEOUT_S:g} s; see the log of `ollama serve`") from error
    if done.returncode:
        raise ServiceError(f"Ollama did not take {directory}: {cause_of(done.stderr)}; does `ollama serve` run?")
