"""Commands of the planner, and those used after training: planner, export, infer."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.session import FOLDER, Session, cli, command, option

if TYPE_CHECKING:
    from slmsearch.config import PathsConfig
    from slmsearch.episodes.episode import Episode
    from slmsearch.models.gguf_file import Quantisation


@cli.group()
def planner() -> None:
    """Train a planner that splits problems for a worker.

    The worker is a frozen model.
    """


@command(planner, "sft")
@click.option("--out", type=FOLDER, required=True, help="Model directory to write.")
def sft(session: Session, out: Path) -> None:
    """Teach the policy's model to plan.

    Examples are gold plans, the model's own right plans, or a set of plans (planner.sft.source).
    """
    from flows.cli.commands.learning import taught
    from slmsearch.environments.registry import environment_of

    session.override(environment="planner", policy__adapter="null")
    config = session.config
    taught(session, environment_of(config).teaching(config).start_sources(), out)


@cli.group()
def export() -> None:
    """Copy, merge, convert or send a trained adapter."""


_adapter = click.option(
    "--adapter-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Directory of the trained adapter.",
)
_card = click.option(
    "--model-card", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Model card to use; default: a generated one."
)


@command(export, "adapter")
@_adapter
@click.option("--local-save-path", "out", type=FOLDER, required=True, help="Directory to write.")
@option("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16", help="Type of the written weights.")
@_card
def export_adapter(session: Session, adapter_path: Path, out: Path, dtype: str, model_card: Path | None) -> None:
    """Copy an adapter without paths of this machine.

    Its settings then give the name of its base, which brings the tokenizer. In `models/` of the data directory it goes by its name.
    """
    from slmsearch.artifacts.directories import require_replaceable
    from slmsearch.training.export import collect_adapter, list_files

    require_replaceable(out)
    card = make_card(adapter_path, out.name, session.config.paths, model_card, merged=False)
    files = list_files(collect_adapter(adapter_path, out, card, dtype, tokenizer=False))
    text = "\n".join(f"{size:>12}  {name}" for name, size in files)
    session.finish({"adapter": str(out), "files": dict(files)}, f"{text}\n{out}")


@command(export, "merge")
@_adapter
@click.option("--local-save-path", "out", type=FOLDER, required=True, help="Directory to write.")
@option("--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="Type of the written weights.")
@_card
def export_merge(session: Session, adapter_path: Path, out: Path, dtype: str, model_card: Path | None) -> None:
    """Merge an adapter into its base and save the model.

    Reports how far the merged log-probabilities are from those of base and adapter.
    """
    from slmsearch.artifacts.directories import require_replaceable
    from slmsearch.training.export import MAX_DIFFERENCE, merge

    require_replaceable(out)
    card = make_card(adapter_path, out.name, session.config.paths, model_card, merged=True)
    merged = merge(adapter_path, out, _find_base(session, adapter_path), dtype, card)
    text = f"{merged.directory}: max |difference of log-probabilities| {merged.difference:.2g} (limit {MAX_DIFFERENCE:g}, float32)"
    session.finish({"model": str(merged.directory), "base_model": merged.base_model, "max_difference": merged.difference}, text)


@command(export, "gguf")
@click.argument("policy")
@click.option("--to", "out", type=FOLDER, required=True, help="Directory to write; its name is that of the model.")
@option("--quantise", "kind", choices=["f32", "bf16", "q8_0", "q4_k_m"], default="bf16", help="Type of the written weights.")
@option("--questions", type=click.IntRange(min=0), default=200, help="Questions of the parity check; 0 leaves it out.")
@click.option("--ollama", is_flag=True, help="Also make it a model of the Ollama that runs here.")
def export_gguf(session: Session, policy: str, out: Path, kind: "Quantisation", questions: int, ollama: bool) -> None:
    """Write a policy for llama.cpp, Ollama, LM Studio and Jan.

    POLICY is champion, a name, or the directory of an adapter or model. Then
    torch and llama.cpp (extra llamacpp) play the same validation questions
    of the configured corpus. Exit code 1 if llama.cpp is worse, and not by chance.
    """
    from flows.ops.gguf import create_model, export_policy, find_ollama, render_parity
    from slmsearch.sampling.llamacpp import require_llamacpp

    if questions:
        require_llamacpp()  # before the work of an export
    if ollama:
        find_ollama()
    exported, parity = export_policy(session.config, policy, out, kind, questions, session.say)
    worse = parity is not None and parity.is_worse
    if ollama and exported.same_tokens and not worse:
        create_model(out)
    lines = render_parity(parity) if parity else ["not checked: --questions 0"]
    if ollama and (worse or not exported.same_tokens):
        lines.append("not made a model of Ollama, which would answer worse than torch")
    if not exported.same_tokens:
        lines.append("send it token ids: llama.cpp divides text into other tokens than the model has learnt")
    result = {"file": str(exported.file), "same_tokens": exported.same_tokens, "parity": asdict(parity) if parity else None}
    session.finish(result, "\n".join([*lines, str(exported.file)]), negative=worse)


@command(export, "push")
@_adapter
@click.option("--repo-name", required=True, help="owner/name on the Hub.")
@click.option("--private", is_flag=True, help="Make the repository private.")
@click.option("--merged", is_flag=True, help="Send whole weights instead of the adapter.")
@click.option("--local-save-path", type=FOLDER, help="Directory that keeps a copy of the sent files.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent; nothing leaves this machine.")
@_card
def export_push(
    session: Session, adapter_path: Path, repo_name: str, local_save_path: Path | None, model_card: Path | None, **flags: bool
) -> None:
    """Send an adapter, or the merged model, to the Hub.

    The token comes from HF_TOKEN only.
    """
    import tempfile

    from flows.runtime.settings import read_environment
    from slmsearch.artifacts.directories import require_replaceable
    from slmsearch.training.export import collect_adapter, list_files, merge, push

    environment, private, dry_run = read_environment(), flags["private"], flags["dry_run"]
    if not (dry_run or environment.get("HF_TOKEN")):
        raise click.UsageError("HF_TOKEN is not set: put a token with write permission into the environment, or try --dry-run")
    card = make_card(adapter_path, repo_name.rpartition("/")[2], session.config.paths, model_card, flags["merged"])
    base = _find_base(session, adapter_path)
    with tempfile.TemporaryDirectory() as folder:
        directory = local_save_path or Path(folder) / "model"
        require_replaceable(directory)
        if flags["merged"]:
            session.say(f"max |difference of log-probabilities| {merge(adapter_path, directory, base, card=card).difference:.2g}")
        else:
            collect_adapter(adapter_path, directory, card, base_model=base)
        files = list_files(directory)
        listed = "\n".join(f"{size:>12}  {name}" for name, size in files)
        result: dict[str, object] = {"repo": repo_name, "private": private, "files": dict(files), "sent": not dry_run}
        if dry_run:
            session.finish(result, f"{listed}\nwould be sent to {repo_name} ({'private' if private else 'public'}); nothing was")
            return
        address = push(directory, repo_name, private, environment["HF_TOKEN"], environment.get("HF_ENDPOINT"))
    session.finish({**result, "commit": address}, f"{listed}\n{address}")


def _find_base(session: Session, adapter: Path) -> str:
    """Return the base that an adapter names, where it lies on this machine; it must be here or on the Hub.

    The name has no commit, and the id of a known model on the Hub may mean that model or the packaged one: the adapter's training decides,
    then `policy.model`.
    """
    from flows.runtime.fetching import require_policy
    from slmsearch.artifacts.files import read_json
    from slmsearch.config import PolicyConfig
    from slmsearch.models.known import known_name, path_of, split_commit
    from slmsearch.training.export import find_base
    from slmsearch.training.files import JOB

    paths, named = session.config.paths, find_base(adapter)
    trained = read_json(adapter.parent / JOB).get("config", {}).get("policy", {}).get("model", "")
    told = (model for model in (trained, session.config.policy.model) if split_commit(model)[0] == named)
    base = next(told, path_of(known_name(named), paths.data_dir))
    require_policy(PolicyConfig(model=base), paths)
    return base


@command(cli, "infer")
@click.argument("questions", nargs=-1, required=True)
@click.option("--environment", help="Which prompt and format (searcher, planner); default: the configured environment.")
@option("--base-url", default="http://localhost:8000/v1", help="OpenAI-compatible server.")
@click.option("--lora-adapter", help="Name under which the server has the adapter.")
@click.option("--model", help="Name of the model; default: the first that the server lists.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of a message; default: the configured limit.")
@option("--temperature", type=click.FloatRange(min=0), default=0.0, help="0 is greedy.")
def infer(
    session: Session, questions: tuple[str, ...], environment: str | None, max_tokens: int | None, temperature: float, **server: str
) -> None:
    """Ask a served model questions.

    The model plans and the configured worker solves, or the model searches the configured corpus.
    """
    from pydantic import SecretStr

    from flows.runtime.settings import read_environment
    from slmsearch.environments.registry import open_environment
    from slmsearch.evaluate.run import ask_served, find_model
    from slmsearch.foreign import encodable

    key = read_environment().get("OPENAI_API_KEY", "none")
    session.override(environment=environment)
    config = session.config
    name = server["lora_adapter"] or server["model"] or find_model(server["base_url"], key)
    served: dict[str, object] = {"policy.model": name, "policy.base_url": server["base_url"], "policy.api_key": SecretStr(key)}
    if max_tokens is not None:
        served |= {"planner.max_plan_tokens": max_tokens, "searcher.max_turn_tokens": max_tokens}
    config = config.changed({**served, "policy.adapter": None})
    questions = tuple(map(encodable, questions))  # a shell may give bytes that are no UTF-8
    episodes = ask_served(questions, open_environment(config), config.policy, temperature)
    answers = [
        {"question": asked, "answer": e.answer, "stop_reason": e.stop_reason.value, "transcript": transcribe(e), "seconds": e.seconds}
        for asked, e in zip(questions, episodes, strict=True)
    ]
    shown = [f"{found['question']}\n{found['transcript']}\n= {found['answer'] or found['stop_reason']}" for found in answers]
    session.finish({"model": name, "answers": answers}, "\n\n".join(shown))


def transcribe(episode: "Episode") -> str:
    """Return the lines of an episode: messages of the model, and results of tools or the worker."""
    lines = []
    for turn in episode.turns:
        if turn.text:
            lines.append(f"> {turn.text}")
        elif turn.call is not None:
            lines.append(f"  {turn.call.argument}")
        if turn.result is not None:
            lines += [f"  {line}" for line in turn.result.text.splitlines() or ["(no answer)"]]
    return "\n".join(lines)


def make_card(adapter: Path, name: str, paths: "PathsConfig", own: Path | None, merged: bool) -> str:
    """Return the user's model card, or one written from the run that trained this adapter."""
    from slmsearch.training.export import find_base, find_run, write_card

    base = find_base(adapter)
    if own is not None:
        return own.read_text(encoding="utf-8")
    run = find_run(adapter, sorted(Path(paths.mlruns_dir).glob("latest*.json")))
    return write_card(name, base, run, merged)
