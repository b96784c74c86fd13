"""The one reader of YAML files, `.env`, environment variables and dotted flags.

It returns a plain, frozen `RunConfig`: a `BaseSettings` handed to a flow would read the worker's environment again.
Later wins: class defaults, YAML files left to right, short names (`DATA_DIR` ...), `.env`, `SLMSEARCH_` variables, flags.
It reads and never changes the environment; `flows/runtime/process_environment.py` does that.

The *base folder* holds data, MLflow's store and `.env`: the folder of the first settings file that was named, else the current one. A
preset has no folder of its own. The place of the code plays no part.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import yaml
from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from slmsearch.config import ConfigSection, PathsConfig, RunConfig
from slmsearch.errors import ConfigError
from slmsearch.foreign import cause_of, encodable, without_credentials
from slmsearch.models.known import path_of
from slmsearch.package_data import package_data

ENV_PREFIX = "SLMSEARCH_"
SHORT_NAMES = {
    "DATA_DIR": "paths.data_dir",
    "JUDGE_MODEL": "judge.model",
    "JUDGE_BASE_URL": "judge.base_url",
    "MLFLOW_TRACKING_URI": "tracking.uri",
    "SANDBOX_PORT": "sandbox.port",
    "DOCKER_MEMORY_LIMIT": "sandbox.docker_memory_limit",
    "DOCKER_CPU_LIMIT": "sandbox.docker_cpu_limit",
}
"""Variables read without the prefix; the prefixed name of the same setting wins."""
API_TOKEN = f"{ENV_PREFIX}API_TOKEN"
"""Variable with the token that `serve searcher` and `mcp --http` require of clients. It is no setting, so no run carries it."""
DEV_PAGES = 10
"""Number of pages that `DEV=1` keeps."""


INPUTS = (
    "corpus.pages",
    "corpus.questions",
    "sft.beside.pages",
    "sft.beside.questions",
    "planner.problems",
    "retrieval.embedder.model",
)
"""Settings that may name files."""
MODELS = ("policy.model", "policy.adapter", "learn.adapter", "learn.writer", "learn.reader")
"""Settings that may name files, or models and adapters by their names."""


def preset_files() -> dict[str, Path]:
    """Return the shipped presets: name -> file."""
    return {path.stem: path for path in sorted(package_data("deployments/configs").glob("*.yaml"))}


def find_settings(given: str) -> Path:
    """Return the file of a `--config` value: a preset by its bare name (`demo`), any other value is a path.

    Raises:
        ConfigError: the preset does not exist.
    """
    if given.endswith((".yaml", ".yml", ".json")) or os.sep in given:
        return Path(given)
    presets = preset_files()
    if given not in presets:
        raise ConfigError(f"no preset is called {given!r}; there are {', '.join(presets)}; a file is named with its ending, {given}.yaml")
    return presets[given]


def find_base(files: Sequence[Path] = ()) -> Path:
    """Return the base folder of settings files: that of the first file that is no preset, else the current folder."""
    presets = set(preset_files().values())
    return next((path.parent for path in (file.resolve() for file in files) if path not in presets), Path.cwd())


def read_environment(base: Path | None = None) -> dict[str, str]:
    """Merge `.env` of the base folder, `.env` of the current folder and the process environment; the last wins."""
    merged: dict[str, str] = {}
    for folder in dict.fromkeys((base or Path.cwd(), Path.cwd())):
        merged.update({name: value for name, value in dotenv_values(folder / ".env").items() if value is not None})
    return {**merged, **os.environ}


def load_config(
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> RunConfig:
    """Read the configuration of a run: files merged deeply from left to right, variables, and dotted flags such as `--train.steps=50`.

    Variables and base folder default to those of `read_environment` and `find_base`.

    Raises:
        ConfigError: a file is missing or broken, a key is unknown, or a value does not fit or is no text.
    """
    base = base or find_base(files)
    environment = read_environment(base) if environment is None else environment
    _check_files(files)
    _check_names(environment, overrides)
    try:
        settings = _settings_class(files, *_from_here(overrides, environment))()
    except ValidationError as error:
        raise ConfigError(f"{_describe(error)}; `slmsearch config` prints the values in use") from error
    except SettingsError as error:
        raise ConfigError(f"{cause_of(error)}; flags look like --train.steps 50") from error
    config = RunConfig.model_validate(settings.model_dump())
    for name in filter(None, (config.evaluate.policy, *config.evaluate.baselines)):
        if name != without_credentials(name):  # names of policies are recorded
            raise ConfigError(f"policy {name!r} may hold no user name or password; give the key as policy.api_key with policy.base_url")
    resolved = resolve_paths(name_model(config), base)
    for name, value in loggable(resolved).items():
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and text != encodable(text):  # which neither JSON nor a database takes
                raise ConfigError(f"{name}: {text!r} holds bytes that are no UTF-8; rename what it names")
    return resolved


def name_model(config: RunConfig) -> RunConfig:
    """Return the settings with the name to register models under: the configured one, or that of the environment for the default."""
    default = RunConfig()
    if config.environment == default.environment or config.tracking.registered_model != default.tracking.registered_model:
        return config
    from slmsearch.environments.registry import environment_of

    return config.changed({"tracking.registered_model": f"slmsearch-{environment_of(config).name}"})


def _from_here(overrides: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Make directories from flags and variables absolute: they are relative to the current folder, not to the settings file."""
    names = [f"paths.{name}" for name in PathsConfig.model_fields]
    flags, variables = list(overrides), dict(environment)
    for at, flag in enumerate(flags):
        name, equals, value = flag.removeprefix("--").partition("=")
        if name in names and equals:
            flags[at] = f"--{name}={Path(value).expanduser().absolute()}"
        elif name in names and at + 1 < len(flags):
            flags[at + 1] = str(Path(flags[at + 1]).expanduser().absolute())
    long = {f"{ENV_PREFIX}{name.replace('.', '__')}".lower() for name in names}
    for name, value in environment.items():
        if value and (name.lower() in long or SHORT_NAMES.get(name) in names):
            variables[name] = str(Path(value).expanduser().absolute())
    return flags, variables


def _settings_class(files: Sequence[Path], overrides: Sequence[str], environment: Mapping[str, str]) -> type[RunConfig]:
    class Settings(RunConfig, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=ENV_PREFIX,
            env_nested_delimiter="__",
            env_parse_none_str="null",
            nested_model_default_partial_update=True,
            use_attribute_docstrings=False,  # Python 3.11 may fail to parse their source while another thread imports
        )

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: PydanticBaseSettingsSource, **__: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            flags: CliSettingsSource[Any] = CliSettingsSource(
                settings_cls, cli_parse_args=list(overrides), cli_exit_on_error=False, cli_parse_none_str="null"
            )
            variables = EnvSettingsSource(settings_cls)
            variables.env_vars = {name.lower(): value for name, value in environment.items()}
            return (
                flags,
                variables,
                InitSettingsSource(settings_cls, init_kwargs=dict(_short_settings(environment))),
                YamlConfigSettingsSource(settings_cls, yaml_file=list(files), deep_merge=True),
            )

    return Settings


def _short_settings(environment: Mapping[str, str]) -> Mapping[str, object]:
    named = {dotted: environment[name] for name, dotted in SHORT_NAMES.items() if environment.get(name)}
    if environment.get("DEV", "").lower() in {"1", "true", "yes", "on"}:
        named["corpus.limit_pages"] = str(DEV_PAGES)
    return _nested(named)


def known_settings() -> dict[str, type[ConfigSection] | None]:
    """Return every dotted name: a section's class for sections, None for values."""
    return {name: _section(field) for name, field in _fields(RunConfig)}


def secret_settings() -> set[str]:
    """Return the dotted names of all settings that hold secrets, by their type."""
    return {name for name, field in _fields(RunConfig) if _is_secret(field)}


def _fields(model: type[ConfigSection], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if (section := _section(field)) is not None:
            yield from _fields(section, f"{prefix}{name}.")


def _section(field: FieldInfo) -> type[ConfigSection] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, ConfigSection) else None


def _check_files(files: Sequence[Path]) -> None:
    for path in files:
        if not path.is_file():
            raise ConfigError(f"config file {path} does not exist; presets go by their names, `slmsearch config --presets` lists them")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # what is no UTF-8, a number of 5,000 digits, brackets without end
            # Its own message quotes the line, which may hold a secret.
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or type(error).__name__
            where = f" in line {mark.line + 1}" if mark else ""
            raise ConfigError(f"config file {path} is not valid YAML{where}: {' '.join(problem.split())}") from None
        if content is not None and not isinstance(content, dict):
            raise ConfigError(f"config file {path} must hold sections such as `train:`, not a {type(content).__name__}")
        for dotted in _dotted_keys(content or {}):
            _check_name(dotted, f"in {path}")


def _dotted_keys(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    known = known_settings()
    for key, value in content.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict) and known.get(f"{prefix}{key}") is not None:
            yield from _dotted_keys(value, f"{prefix}{key}.")


def _check_names(environment: Mapping[str, str], overrides: Sequence[str]) -> None:
    for name in environment:
        if name.upper().startswith(ENV_PREFIX) and name != API_TOKEN:
            _check_name(name[len(ENV_PREFIX) :].lower().replace("__", "."), f"in the variable {name}")
    for flag in overrides:
        if flag.startswith("--"):
            _check_name(flag[2:].split("=", 1)[0], f"in the flag {flag.split('=', 1)[0]}")


def _check_name(dotted: str, where: str) -> None:
    known = known_settings()
    if dotted in known:
        return
    leaf = dotted.rpartition(".")[2]
    near = difflib.get_close_matches(dotted, known, n=3, cutoff=0.75) or [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    hint = f"did you mean {' or '.join(near[:3])}?" if near else "`slmsearch config` lists them all"
    raise ConfigError(f"unknown setting {dotted!r} {where}; {hint}")


def _describe(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False):
        name = ".".join(str(part) for part in item["loc"])
        problems.append(f"{name}: {item['msg']}{_given(name, item['input'])}")
    return "; ".join(problems)


def _given(name: str, value: object) -> str:
    """Describe the value of a setting, unless it may hold a secret."""
    if any(name == secret or name.startswith(f"{secret}.") for secret in secret_settings()):
        return ""
    if isinstance(value, str):
        return f" (got {without_credentials(value)!r})"
    plain = value is None or isinstance(value, bool | int | float)
    return f" (got {value!r})" if plain else f" (got a {type(value).__name__})"


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def resolve_paths(config: RunConfig, base: Path) -> RunConfig:
    """Make paths absolute: directories against the base folder, inputs against the current folder or, where they exist there, the base."""
    new: dict[str, object] = {
        f"paths.{name}": str((base / Path(value).expanduser()).resolve()) for name, value in config.paths.model_dump().items()
    }
    data_dir = str(new["paths.data_dir"])
    inputs = {name: attrgetter(name)(config) for name in INPUTS}
    if config.planner.sft.source not in ("generated", "own"):
        inputs["planner.sft.source"] = config.planner.sft.source
    inputs |= {name: model and path_of(model, data_dir) for name in MODELS for model in [attrgetter(name)(config)]}
    new |= {name: _absolute_input(value, base) for name, value in inputs.items()}
    new["evaluate.baselines"] = tuple(str(_absolute_input(path_of(name, data_dir), base)) for name in config.evaluate.baselines)
    return config.changed(new)


def _nested(settings: Mapping[str, object]) -> dict[str, object]:
    """Turn dotted names into sections."""
    nested: dict[str, Any] = {}
    for dotted, value in settings.items():
        *sections, name = dotted.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return nested


def _absolute_input(text: str | None, base: Path) -> str | None:
    """Return an absolute path if a value names a file; Hub ids, served models and names of baselines stay as they are."""
    if not text or text.startswith(("hub:", "pypi:", "openai:", "http://", "https://")):
        return text
    path = Path(text).expanduser()
    for folder in (Path.cwd(), base):
        if (folder / path).exists():
            return str((folder / path).resolve())
    # A missing file is named in full where its first folder exists here, so that the error shows where it was looked for.
    looks_local = (
        path.is_absolute()
        or path.suffix in {".jsonl", ".json", ".parquet", ".csv"}
        or (len(path.parts) > 1 and Path(path.parts[0]).is_dir())
    )
    return str(path.absolute()) if looks_local else text


def loggable(section: ConfigSection) -> dict[str, object]:
    """Flatten a section to dotted leaves that may be recorded: secret fields are left out by their type."""
    kept = (name for name, field in _fields(type(section)) if _section(field) is None and not _is_secret(field))
    return {name: _without_passwords(attrgetter(name)(section)) for name in kept}


def recordable(config: RunConfig, only_changed: bool = False, beneath: str | None = None) -> dict[str, object]:
    """Return the config as nested JSON values without secrets; it can be read back as a config file.

    `only_changed` also leaves out values that equal the default, and with `beneath` the value of that preset, too.
    """
    defaults = loggable(RunConfig())
    preset = loggable(RunConfig(**yaml.safe_load(find_settings(beneath).read_text(encoding="utf-8")))) if beneath else defaults
    kept = {name: value for name, value in loggable(config).items() if not only_changed or not value == defaults[name] == preset[name]}
    return _nested({name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()})


def masked(section: ConfigSection) -> dict[str, object]:
    """Return a section as nested JSON values with stars for secrets and no passwords in addresses, for a person to read."""
    return dict(_without_passwords(section.model_dump(mode="json")))


def _without_passwords(value: Any) -> Any:
    """Drop `user:password@` from every address in a value of JSON."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {name: _without_passwords(part) for name, part in value.items()}
    return type(value)(map(_without_passwords, value)) if isinstance(value, list | tuple) else value
