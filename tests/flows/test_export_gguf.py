"""`slmsearch export gguf`, and answers of llama.cpp, on the commands' own ways: the real one, with the shipped tiny model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from flows.ops import gguf
from slmsearch.artifacts.directories import seal
from slmsearch.config import PolicyConfig, RunConfig
from slmsearch.corpus.store import load_questions
from slmsearch.environments.registry import environment_of
from slmsearch.errors import ServiceError
from slmsearch.models.gguf_file import write_gguf
from slmsearch.models.known import shipped_models
from slmsearch.models.load import load_model
from slmsearch.training import export_gguf
from tests.slmsearch.models.test_gguf_file import make
from tests.zoo.tokenizers import load_small_smollm2, load_smollm2

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (extra `llamacpp`)")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Options of a small world in a data directory of its own."""
    return ["--config", "quick", "--corpus.world.pages", "60", "--policy.device", "cpu", "--paths.data_dir", str(tmp_path / "data")]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A small model whose tokenizer llama.cpp has, too."""
    tokenizer = load_small_smollm2()
    make("llama", True, vocab_size=len(tokenizer)).save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")
    return tmp_path / "plain"


def test_a_policy_is_taken_away_checked_and_plays_as_it_did(slmsearch: Run, small: list[str], tmp_path: Path) -> None:
    out = tmp_path / "away"
    code, told, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--quantise", "f32", "--questions", 20, "--json", *small)
    assert code == 0, err
    result = json.loads(told)
    parity = result["parity"]
    assert parity["n"] == 20 and parity["episodes_identical_frac"] == 1
    assert parity["exact_match_torch"] == parity["exact_match_gguf"] > 0.2
    assert Path(result["file"]).parent == out and not result["same_tokens"]
    assert {file.name for file in out.iterdir()} >= {"Modelfile", "README.md", "tokenizer.json", "parity.json", Path(result["file"]).name}
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "Send it token ids, not text" in readme and "100% of the episodes are the same" in readme
    assert '"name": "search_pages"' in readme and "<tool>read_section" in readme and str(tmp_path) not in readme

    code, told, err = slmsearch("evaluate", "--policy", result["file"], "--evaluate.split", "validation", "--limit", 20, "--json", *small)
    assert code == 0, err
    assert json.loads(told)["metrics"]["answer/exact_match"] == parity["exact_match_gguf"]

    (digest,) = (path.name for path in (tmp_path / "data" / "corpora").iterdir() if (path / "pages.jsonl").is_file())
    question = load_questions(tmp_path / "data" / "corpora", digest)["validation"][0].question
    answers = []
    for engine in ("torch", "llamacpp", "llamacpp"):  # the third time the file is there
        code, told, err = slmsearch("ask", question, "--policy", "tiny-searcher", "--engine", engine, "--json", *small)
        answers.append((code, json.loads(told)["answer"], [turn["text"] for turn in json.loads(told)["turns"]]))
    assert answers[0] == answers[1] == answers[2] and answers[0][0] == 0
    (file,) = (tmp_path / "data" / export_gguf.FILES).glob("*/*.gguf")
    assert (
        GGUFReader(file).fields["tokenizer.ggml.eot_token_id"].contents()
        == GGUFReader(file).fields["tokenizer.ggml.eos_token_id"].contents()
    )
    assert {tensor.tensor_type.name for tensor in GGUFReader(file).tensors} == {"Q8_0", "F32"}


def test_what_cannot_be_taken_away_is_said_in_one_line_and_loses_nothing(
    slmsearch: Run, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "away"
    (out / "mine").mkdir(parents=True)
    (out / "mine" / "notes.txt").write_text("mine")
    code, _, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 0, *small)
    assert code == 2 and "holds mine/notes.txt, which would be deleted" in err.splitlines()[-1] and (out / "mine" / "notes.txt").is_file()
    (out / "mine" / "notes.txt").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    for policy, more, words in (
        ("retrieve-then-answer", (), "has no model: name an adapter or a model"),
        ("openai:m@http://127.0.0.1:9/v1", (), "no GGUF can be made of it"),
        (str(tmp_path / "none"), (), "correct policy.model"),
        (str(tmp_path / "none.gguf"), (), "no file"),
    ):
        code, _, err = slmsearch("export", "gguf", policy, "--to", out, "--questions", 0, *more, *small)
        assert code in (2, 3) and words in err.splitlines()[-1], err
        assert (out / "mine").is_dir()

    copied = shutil.copytree(shipped_models() / "tiny-searcher", tmp_path / "own" / "model")
    seal(copied)
    for target, ends, words in ((copied, 3, "would be replaced"), (copied.parent, 2, "holds model/")):
        code, _, err = slmsearch("export", "gguf", copied, "--to", target, "--questions", 0, *small)
        assert code == ends and words in err.splitlines()[-1] and (copied / "config.json").is_file()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(export_gguf, "make_modelfile", full)
        code, _, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 0, *small)
    assert code == 3 and "cannot be written ([Errno 28] No space left on device); what stood there is as it was" in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir() if "away" in path.name] == ["away"] and (out / "mine").is_dir()
    code, _, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 0, "--ollama", *small)
    assert code == 3 and "Ollama is not installed" in err.splitlines()[-1] and (out / "mine").is_dir(), "before anything is written"
    code, told, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 0, *small)
    assert code == 0 and "send it token ids" in told and (out / "Modelfile").is_file()
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    with monkeypatch.context() as broken:
        broken.setattr(gguf, "check_parity", full)
        code, _, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 5, *small)
    assert code == 3 and before == {file.name: file.stat().st_mtime_ns for file in out.iterdir()}, "an export that was checked stays"
    (out / "notes.txt").write_text("mine")
    code, _, err = slmsearch("export", "gguf", "tiny-searcher", "--to", out, "--questions", 0, *small)
    assert code == 2 and "holds notes.txt" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("changed", "holds", "lacks"),
    [
        (
            {"searcher.format": "native", "searcher.tool_role": "user"},
            ["Make one call at a time", '"query"', "of the role `user`"],
            ["<tool>"],
        ),
        ({"searcher.programs": True}, ["<code>", "<tool>read_section"], []),
        ({"searcher.system_prompt": ""}, ["(none)", "<tool>read_section", "of the role `tool`"], []),
        ({"searcher.reads": "shown"}, ["Answer with a few words of the text"], ["## Its calls"]),
        ({"environment": "planner"}, ["## System message"], ["## Its calls", "search_pages"]),
        ({"environment": "writer"}, ["## System message"], ["## Its calls", "search_pages"]),
    ],
)
def test_the_readme_tells_the_calls_that_were_trained(changed: dict[str, Any], holds: list[str], lacks: list[str]) -> None:
    interface = gguf.describe_interface(environment_of(RunConfig().changed(changed)))
    readme = export_gguf.make_readme("m", "m.gguf", interface, True, 2048)
    assert all(text in readme for text in holds) and not any(text in readme for text in lacks), readme


def test_settings_that_are_not_those_of_the_training_are_named(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    now = RunConfig()
    trained = now.searcher.model_dump(mode="json")
    policy = PolicyConfig(model="m", adapter=str(tmp_path / "adapter"))
    assert gguf._find_other_settings(now.searcher, policy) == [], "nothing is known of it"
    for changed, named in (({}, []), ({"system_prompt": "Search."}, ["searcher.system_prompt"])):
        (tmp_path / "job.json").write_text(json.dumps({"config": {"searcher": {**trained, **changed}}}))
        assert gguf._find_other_settings(now.searcher, policy) == named


def test_ollamas_refusal_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: Ollama itself cannot be had here."""
    (program := tmp_path / "ollama").write_text("#!/bin/sh\necho 'Error: could not connect to ollama app, is it running?' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ServiceError, match=r"could not connect to ollama app, is it running\?; does `ollama serve` run\?"):
        gguf.create_model(tmp_path)
    program.write_text('#!/bin/sh\necho "$PWD $@" > asked\n')
    gguf.create_model(tmp_path)
    assert (tmp_path / "asked").read_text().split() == [str(tmp_path), "create", tmp_path.name, "-f", "Modelfile"]


def test_an_ollama_that_does_not_run_is_one_line_after_the_export(
    slmsearch: Run, small: list[str], plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in: Ollama itself cannot be had here."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ollama"
    program.write_text("#!/bin/sh\necho 'Error: could not connect to ollama app, is it running?' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    out = tmp_path / "away"
    code, _, err = slmsearch("export", "gguf", plain, "--to", out, "--questions", 0, "--ollama", *small)
    assert code == 3 and "does `ollama serve` run?" in err.splitlines()[-1] and (out / "Modelfile").is_file(), err


def test_a_gguf_without_a_chat_template_is_one_line(slmsearch: Run, small: list[str], plain: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(PolicyConfig(model=str(plain), device="cpu"))
    tokenizer.chat_template, weights = None, tmp_path / "plain.gguf"
    write_gguf(model, tokenizer, weights, "f32", "plain")
    for beside in (False, True):  # the tokenizer of the file, and one that lies beside it
        if beside:
            tokenizer.save_pretrained(tmp_path)
        code, _, err = slmsearch("evaluate", "--policy", weights, "--evaluate.split", "validation", "--limit", 2, *small)
        assert code == 3 and "chat template" in err.splitlines()[-1], err


def test_a_modelfile_has_the_template_of_chatml_only() -> None:
    interface = export_gguf.Interface('Search "it".', "", (), "tool")
    text = export_gguf.make_modelfile("m.gguf", load_smollm2(), interface, ["<|im_end|>"], 2048)
    assert text.startswith(
        'FROM ./m.gguf\nPARAMETER temperature 0\nPARAMETER repeat_penalty 1\nPARAMETER num_ctx 2048\nPARAMETER stop "<|im_end|>"\n'
    )
    assert 'SYSTEM """Search "it"."""' in text and "<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>" in text


def test_without_llama_cpp_the_message_has_the_command(slmsearch: Run, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slmsearch.sampling.llamacpp.find_spec", lambda name: None)
    code, _, err = slmsearch("ask", "Where?", "--policy", "tiny-searcher", "--engine", "llamacpp", *small)
    assert code == 3 and "not installed: pip install -e '.[llamacpp]'" in err.splitlines()[-1]
