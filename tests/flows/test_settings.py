import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from flows.runtime.settings import (
    find_settings,
    load_config,
    loggable,
    masked,
    preset_files,
    read_environment,
    recordable,
)
from slmsearch.config import RunConfig
from slmsearch.errors import ConfigError
from slmsearch.models.known import shipped_models
from tests.root import ROOT

CONFIGS = sorted((ROOT / "deployments" / "configs").glob("*.yaml"))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_sections_with_absolute_paths(tmp_path: Path) -> None:
    config = load_config(environment={}, base=tmp_path)
    assert type(config) is RunConfig, "a BaseSettings would read the worker's environment again"
    assert config.train == RunConfig().train
    assert config.paths.data_dir == str(tmp_path / "data")
    assert config.paths.mlruns_dir == str(tmp_path / "mlruns")


def test_later_wins_and_files_merge_deeply(tmp_path: Path) -> None:
    first = write(tmp_path / "a.yaml", "train: {steps: 1, group_size: 4, lora: {r: 2}}\nevaluate: {limit: 1}")
    second = write(tmp_path / "b.yaml", "train: {steps: 2, lora: {r: 5}}")
    environment = {"SLMSEARCH_EVALUATE__LIMIT": "3", "slmsearch_train__seed": "7", "SLMSEARCH_TRAIN__STEPS": "9"}
    config = load_config([first, second], ["--train.steps", "4", "--reward.malformed=-0.5"], environment)
    assert (config.train.steps, config.train.group_size, config.train.seed) == (4, 4, 7)
    assert (config.train.lora.r, config.train.lora.alpha) == (5, 10)
    assert config.evaluate.limit == 3
    assert config.reward.malformed == -0.5


def test_short_names_lie_between_files_and_prefixed_variables(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "judge: {model: from-file, base_url: http://file}\npaths: {data_dir: /file}")
    environment = {"DATA_DIR": "/short", "JUDGE_MODEL": "short", "JUDGE_BASE_URL": "http://short", "DEV": "1"}
    config = load_config([file], environment=environment)
    assert config.paths.data_dir == "/short"
    assert (config.judge.model, config.judge.base_url) == ("short", "http://short")
    assert config.corpus.limit_pages == 10
    assert load_config([file], environment={**environment, "SLMSEARCH_JUDGE__MODEL": "long"}).judge.model == "long"
    assert load_config(environment={"DEV": "0"}).corpus.limit_pages == 0


def test_dotenv_is_read_and_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ".env", "SLMSEARCH_TRAIN__STEPS=3\nSLMSEARCH_TRAIN__SEED=4\nDATA_DIR=/from-dotenv\n")
    monkeypatch.setenv("SLMSEARCH_TRAIN__SEED", "5")
    monkeypatch.delenv("SLMSEARCH_PATHS__DATA_DIR")
    config = load_config(environment=read_environment(tmp_path), base=tmp_path)
    assert (config.train.steps, config.train.seed) == (3, 5)
    assert config.paths.data_dir == "/from-dotenv"


@pytest.mark.parametrize(
    ("overrides", "environment", "named"),
    [
        (["--train.stepz", "3"], {}, "did you mean train.steps"),
        (["--trian.steps=3"], {}, "train.steps"),
        ([], {"SLMSEARCH_TRAIN__STEPZ": "3"}, "SLMSEARCH_TRAIN__STEPZ"),
        ([], {"SLMSEARCH_NONSENSE": "3"}, "slmsearch config"),
        (["--train.steps", "many"], {}, "train.steps"),
        (["--train.steps", "-1"], {}, "greater than or equal to 0"),
    ],
)
def test_what_is_unknown_or_does_not_fit_is_named_in_one_line(overrides: list[str], environment: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides, environment=environment)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("train: {stepz: 3}", "train.stepz"),
        ("train: [1", "not valid YAML"),
        ("train: {steps: " + "9" * 5000 + "}", "not valid YAML: ValueError"),
        ("train: " + "[" * 2000, "not valid YAML: RecursionError"),
        ("train: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("- 1", "sections"),
        ("trian: {steps: 1}", "trian"),
        ("corpus: {documents: {timeout_s: 3}}", "corpus.documents"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = write(tmp_path / "broken.yaml", text)
    with pytest.raises(ConfigError, match=r"broken\.yaml") as caught:
        load_config([file], environment={})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("--corpus.pages=B\udcfccher", "corpus.pages: 'B"),
        ('--evaluate.baselines=["random", "B\udcfccher"]', "evaluate.baselines: 'B"),
        ("--paths.data_dir=B\udcfccher", "paths.data_dir: '/"),
    ],
)
def test_bytes_that_are_no_text_are_refused_before_anything_is_written(override: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named}.*UTF-8; rename"):
        load_config([], [override], environment={})


def test_a_missing_file_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config([tmp_path / "missing.yaml"], environment={})
    assert load_config([write(tmp_path / "empty.yaml", "# nothing\n")], environment={}).train == RunConfig().train


def test_inputs_are_found_in_the_current_folder_then_beside_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, project = tmp_path / "here", tmp_path / "project"
    (project / "models" / "mine").mkdir(parents=True)
    (here / "models").mkdir(parents=True)
    write(here / "pages.jsonl", "")
    settings = write(project / "settings.yaml", "corpus: {pages: pages.jsonl, questions: gone.jsonl}\npolicy: {model: models/mine}")
    monkeypatch.chdir(here)
    config = load_config([settings], ["--evaluate.baselines", "random,models/gone,Qwen/Qwen3"], environment={})
    assert config.corpus.pages == str(here / "pages.jsonl")
    assert config.corpus.questions == str(here / "gone.jsonl")
    assert config.policy.model == str(project / "models" / "mine")
    assert config.evaluate.baselines == ("random", str(here / "models" / "gone"), "Qwen/Qwen3")
    assert config.retrieval.embedder.model == "sentence-transformers/all-MiniLM-L6-v2"


def test_data_stand_beside_the_settings_that_were_named_else_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, project, preset = tmp_path / "here", tmp_path / "project", find_settings("demo")
    here.mkdir()
    project.mkdir()
    monkeypatch.chdir(here)
    settings, other = write(project / "settings.yaml", "train: {steps: 1}"), write(here / "other.yaml", "paths: {mlruns_dir: runs}")
    named: dict[tuple[Path, ...], Path] = {
        (): here,
        (preset,): here,
        (settings,): project,
        (preset, settings): project,
        (settings, other): project,
    }
    for files, folder in named.items():
        paths = load_config(files, environment={}).paths
        assert (paths.data_dir, Path(paths.mlruns_dir).parent) == (str(folder / "data"), folder), files
    assert load_config([settings, other], environment={}).paths.mlruns_dir == str(project / "runs")
    for overrides, environment in ((["--paths.data_dir", "x"], {}), (["--paths.data_dir=x"], {}), ([], {"DATA_DIR": "x"})):
        assert load_config([settings], overrides, environment).paths.data_dir == str(here / "x"), "what is typed is meant from here"
    assert load_config([settings], environment={"slmsearch_paths__data_dir": "x"}).paths.data_dir == str(here / "x")


def test_a_preset_goes_by_its_name_and_a_file_by_its_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert find_settings("demo") == preset_files()["demo"] and {"learn", "leads", "rtx3090"} <= set(preset_files())
    for given in ("demo.yaml", "x/demo", "./demo"):
        assert find_settings(given) == Path(given)
    with pytest.raises(ConfigError, match=r"no preset is called 'dmo'; there are .*demo.*a file is named with its ending, dmo\.yaml"):
        find_settings("dmo")


def test_tiny_models_go_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(environment={})
    assert config.policy.model == str(shipped_models() / "tiny-searcher") and (Path(config.policy.model) / "config.json").is_file()
    assert config.evaluate.baselines[-1] == str(shipped_models() / "tiny-searcher-clean")
    made = tmp_path / "data" / "models" / "tiny-searcher"
    made.mkdir(parents=True)
    assert load_config(environment={}).policy.model == str(made), "`slmsearch bootstrap` made it"


def test_adapters_go_by_their_names_and_the_corpus_beside_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.jsonl").write_text("")
    flags = [f"--{name}=smollm2-135m-searcher" for name in ("policy.adapter", "learn.adapter", "evaluate.baselines")]
    flags += [f"--sft.beside.{name}=people.jsonl" for name in ("pages", "questions")]
    config, place = load_config(overrides=flags, environment={}), str(shipped_models() / "smollm2-135m-searcher")
    assert (config.policy.adapter, config.learn.adapter, config.evaluate.baselines) == (place, place, (place,))
    assert config.sft.beside.pages == config.sft.beside.questions == str(tmp_path / "people.jsonl")
    with pytest.raises(ConfigError, match=r"sft\.beside: .*give both pages and questions"):
        load_config(overrides=flags[:-1], environment={})


def test_programs_need_searches_that_list_pages() -> None:
    with pytest.raises(ConfigError, match=r"searcher: .*set shows to titles or sections, or programs to false"):
        load_config(overrides=["--searcher.programs=true", "--searcher.shows=text"], environment={})


def test_hub_sources_stay_as_they_are() -> None:
    assert load_config(overrides=["--corpus.pages", "hub:owner/name"], environment={}).corpus.pages == "hub:owner/name"


def test_secrets_are_never_recorded() -> None:
    environment = {"SLMSEARCH_JUDGE__API_KEY": "s3cret", "SLMSEARCH_TRACKING__URI": "http://user:s3cret@host/path"}
    config = load_config(environment=environment)
    assert config.judge.api_key == SecretStr("s3cret")
    leaves = loggable(config)
    assert not [name for name in leaves if "api_key" in name], "left out by type, also where there is no secret"
    for shown in (leaves, recordable(config)):
        assert "s3cret" not in json.dumps(shown)
    assert leaves["tracking.uri"] == "http://host/path"
    assert leaves["train.lora.r"] == 16
    assert masked(config)["judge"]["api_key"] == "**********"


def test_a_wrong_secret_is_not_repeated_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environment={"SLMSEARCH_JUDGE": '{"api_key": ["s3cret"]}'})
    assert "s3cret" not in str(caught.value)


def test_what_was_recorded_can_be_read_back(tmp_path: Path) -> None:
    config = load_config(overrides=["--train.steps", "3", "--evaluate.baselines", "random"], environment={}, base=tmp_path)
    file = write(tmp_path / "recorded.yaml", json.dumps(recordable(config)))
    assert load_config([file], environment={}, base=tmp_path) == config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_committed_configs_load(path: Path) -> None:
    load_config([path], environment={})


@pytest.mark.parametrize("name", ["rtx3090", "rtx3090-qwen2.5-3b"])
def test_the_gpu_configs_say_what_their_comments_say(name: str) -> None:
    config = load_config([path for path in CONFIGS if path.stem == name], environment={})
    episodes = config.train.questions_per_step * config.train.group_size
    assert (episodes, config.train.accumulation) == (64, 1), "episodes of an update, which memory cuts"
    assert (config.train.epochs, config.train.steps, config.train.temperature) == (3, 0, 1.0)
    assert (config.train.vllm.mode, config.retrieval.top_k, config.searcher.max_turns) == ("colocate", 8, 10)


def test_what_a_preset_sets_is_recorded_where_the_default_is_back() -> None:
    """`slmsearch learn --config` puts the preset beneath: what the file left out had its value again."""
    found: Any = recordable(RunConfig(), only_changed=True, beneath="learn")
    assert (found["corpus"]["sections"], found["decision"]["min_questions"], found["learn"]["adapter"]) == ("headings", 200, None)
    assert recordable(RunConfig(), only_changed=True) == {}


def test_every_command_names_the_model_of_its_environment() -> None:
    assert load_config(environment={}).tracking.registered_model == "slmsearch-searcher"
    assert load_config(overrides=["--environment=planner"], environment={}).tracking.registered_model == "slmsearch-planner"
    own = ["--environment=planner", "--tracking.registered_model=mine"]
    assert load_config(overrides=own, environment={}).tracking.registered_model == "mine"
