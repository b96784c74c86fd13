"""The base of all commands: `--config`, `--json`, dotted flags, one place for output and one for errors.

With `--json` exactly one JSON object goes to stdout, also when a command fails (`pages` writes one a page, a line each); other output of
this process and its children goes to stderr. This module imports nothing heavy: `slmsearch --help` must answer at once.
"""

import functools
import json
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flows.cli.groups import Commands, error_as_json, told_in_json
from slmsearch.errors import ConfigError, InvalidDataError, NotWorthItError, SlmSearchError
from slmsearch.foreign import cause_of, encodable, visible, without_credentials

if TYPE_CHECKING:
    from slmsearch.config import RunConfig
    from tasks.progress import Progress

NEGATIVE = 1
"""Exit code of a negative finding of work that was done (data are not valid, the decision is `reject`); otherwise it is 0."""
USAGE = 2
"""Exit code of wrong usage or configuration."""
MISSING = 3
"""Exit code of a service, file or other resource that is missing, broken or full."""
BUG = 70
"""Exit code of an unforeseen error (EX_SOFTWARE of sysexits.h)."""
INTERRUPTED = 130
TERMINATED = 128
"""Exit code of a command that a signal ended, less the signal's number."""
UNREAD = 128 + signal.SIGPIPE
"""Exit code where the reader of the output has gone."""

FOLDER, FILE = click.Path(file_okay=False, path_type=Path), click.Path(dir_okay=False, path_type=Path)
DOTTED = re.compile(r"--[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+(=.*)?", re.DOTALL)
"""Pattern of a flag that overrides a setting: `--train.steps`."""
EPILOG = "Every setting can be overridden: --train.steps 50, --corpus.pages FILE; `slmsearch config` prints them all."


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate dotted flags and their values from the arguments of the command itself.

    Raises:
        click.UsageError: a dotted flag has no value.
    """
    own: list[str] = []
    overrides: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*own, argument, *waiting], overrides
        if not DOTTED.fullmatch(argument):
            own.append(argument)
            continue
        name, equals, value = argument.partition("=")
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise click.UsageError(f"{name} needs a value")
            value = waiting.pop(0)
        overrides.append(f"{name.replace('-', '_').replace('__', '--', 1)}={value}")
    return own, overrides


class Session:
    """Settings of one command, and its output."""

    def __init__(self, given: Sequence[str], overrides: Sequence[str], as_json: bool) -> None:
        """Take over stdout if one JSON object is wanted; `given` are the presets and files of `--config`."""
        self._given, self._overrides = list(given), list(overrides)
        self.as_json = as_json
        self._progress: Progress | None = None
        self._said_where = False
        self._stdout: int | None = None
        if as_json:  # stdout is kept for the result, and all other output goes to stderr
            sys.stdout.flush()
            self._stdout = os.dup(1)
            os.dup2(2, 1)

    @functools.cached_property
    def config(self) -> "RunConfig":
        """Return the resolved configuration, with the process environment prepared for it."""
        from flows.runtime.process_environment import prepare_process_environment
        from flows.runtime.settings import load_config, read_environment

        environment = read_environment(self.base)
        config = load_config(self._files, self._overrides, environment, self.base)
        prepare_process_environment(config, environment)
        return config

    @property
    def _files(self) -> list[Path]:
        from flows.runtime.settings import find_settings

        return [find_settings(given) for given in self._given]

    @property
    def base(self) -> Path:
        """Return the folder of data and MLflow's store unless settings name others; see `flows/runtime/settings.py`."""
        from flows.runtime.settings import find_base

        return find_base(self._files)

    @property
    def flags(self) -> list[str]:
        """Return the arguments that give another command in this folder the same settings."""
        return [*(f"--config={given}" for given in self._given), *self._overrides]

    def retype(self, *words: str) -> str:
        """Return another command with the same settings, but for secrets, as it is typed into a shell."""
        from flows.runtime.settings import secret_settings

        secrets = secret_settings()

        def hides(flag: str) -> bool:
            """Return whether a flag gives a secret, or a section as JSON with one."""
            name, _, value = flag.removeprefix("--").partition("=")
            return name in secrets or any(one.startswith(f"{name}.") and one.rpartition(".")[2] in value for one in secrets)

        return shlex.join(["slmsearch", *words, *(without_credentials(flag) for flag in self.flags if not hides(flag))])

    def override(self, **settings: object) -> None:
        """Override settings with a command's own options; None leaves a setting alone; names have `__` for the dot."""
        given = {name: value for name, value in settings.items() if value is not None}
        self._overrides += [f"--{name.replace('__', '.')}={value}" for name, value in given.items()]
        self.__dict__.pop("config", None)  # was read for a decision

    def begin_with(self, preset: str) -> None:
        """Put a preset before all other settings files."""
        self._given.insert(0, preset)

    def may_set(self, setting: str) -> bool:
        """Return whether a flag or a variable sets a setting, or a file may."""
        from flows.runtime.settings import ENV_PREFIX, read_environment

        variable = f"{ENV_PREFIX}{setting.replace('.', '__')}".upper()
        return (
            bool(self._given)
            or any(flag.startswith(f"--{setting}=") for flag in self._overrides)
            or variable in {name.upper() for name in read_environment(self.base)}
        )

    def say_where(self) -> None:
        """Print the places of data and MLflow's store in one line, once."""
        if self._said_where:
            return
        self._said_where = True
        paths = self.config.paths
        self.say(f"Data in {paths.data_dir}, MLflow in {without_credentials(self.config.tracking.uri or paths.mlruns_dir)}")

    def run(self, flow: str, here: bool = True, live: bool = False) -> Mapping[str, Any]:
        """Run a flow, print where to look at its results, and return its result.

        With `here` or `live` it runs in this process even if a worker is up; `live` shows its trainings in a live view.
        """
        from flows.ops.runner import run_flow
        from flows.runtime.links import where_to_look
        from tasks.live import live_view

        self.say_where()
        if live and not sys.stderr.isatty():
            self.say("--live needs a terminal on standard error; a line every quarter of a minute says how far the training is")
        with live_view(live):
            result = run_flow(flow, self.config, self.say, here or live)
        if "mlflow_run_id" in result:  # a flow that had nothing to do has no run
            self.say(where_to_look(self.config.paths, self.config.tracking, result))
        return result

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Print every quarter of a minute that a command is still at work, if no other progress is shown."""
        from tasks.progress import Progress

        with Progress(name) as self._progress:
            yield

    def say(self, text: str) -> None:
        """Print a message for a person, on stderr."""
        if self._progress is not None:
            self._progress.heard()
        print(visible(text), file=sys.stderr, flush=True)  # not by click, which goes past a bar or a view that is drawn there

    def finish(self, result: Mapping[str, object], text: str, negative: bool = False) -> None:
        """Print the result as JSON if asked for, else as text; a negative finding ends the command with exit code 1."""
        if self._progress is not None:
            self._progress.hide()
        with _printing():
            if self._stdout is None:
                click.echo(visible(text))
            else:
                os.write(self._stdout, (json.dumps(dict(result), default=str) + "\n").encode())
                self.close()
        if negative:
            raise SystemExit(NEGATIVE)

    def finish_rows(self, rows: Iterable[Mapping[str, object]], text: str) -> None:
        """Print a result of many rows: with `--json` one object a line, else as text."""
        if self._stdout is None:
            self.finish({}, text)
            return
        if self._progress is not None:
            self._progress.hide()
        with _printing(), os.fdopen(os.dup(self._stdout), "wb") as out:
            out.writelines(json.dumps(dict(row), ensure_ascii=False, default=str).encode() + b"\n" for row in rows)
        self.close()

    def close(self) -> None:
        """Restore stdout."""
        if self._stdout is not None:
            os.dup2(self._stdout, 1)
            os.close(self._stdout)
            self._stdout = None

    def fail(self, error: BaseException, message: str) -> None:
        """Print the reason of a failure in one line."""
        self.say(f"slmsearch: {message}")
        if self._stdout is not None:
            self.finish(error_as_json(error, message), "")


@contextmanager
def _printing() -> Iterator[None]:
    """End quietly where the reader of the output has gone, with the exit code of SIGPIPE."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still buffered
        raise SystemExit(UNREAD) from None


class SettingsCommand(click.Command):
    """A command with `--config NAME|FILE`, dotted flags and `--json`."""

    def __init__(self, *args: Any, endless: bool = False, **kwargs: Any) -> None:
        """Create the command; an `endless` one, such as a server, shows no progress of its own."""
        super().__init__(*args, **{"epilog": EPILOG, **kwargs})
        self._endless = endless
        self.params.append(click.Option(["--config", "given"], multiple=True, metavar="NAME|FILE", help="Preset or YAML file; repeatable."))
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON object."))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove the dotted flags before click parses the rest; refuse options that neither JSON nor a database takes."""
        with told_in_json(args):
            own, overrides = split_overrides(args)
            ctx.meta["slmsearch.overrides"] = overrides
            rest = super().parse_args(ctx, own)
            for option in [param for param in self.params if isinstance(param, click.Option)]:
                given = ctx.params[str(option.name)]
                for text in given if isinstance(given, tuple) else (given,):
                    if isinstance(text, str) and text != encodable(text):
                        raise click.BadParameter(f"{text!r} holds bytes that are no UTF-8; rename what it names", ctx, option)
            return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with a session as its first argument, and turn errors into exit codes."""
        session = Session(ctx.params.pop("given"), ctx.meta["slmsearch.overrides"], ctx.params.pop("as_json"))
        ctx.obj = session
        previous = signal.signal(signal.SIGTERM, _raise_exit)
        try:
            with nullcontext() if self._endless else session.watch(ctx.command_path.partition(" ")[2]):
                return super().invoke(ctx)
        except (SlmSearchError, OSError) as error:
            session.fail(error, _describe(error))
            ctx.exit(exit_code(error))
        except KeyboardInterrupt as error:
            session.fail(error, "interrupted")
            ctx.exit(INTERRUPTED)
        except SystemExit as error:
            if isinstance(error.code, int) and error.code > TERMINATED and error.code != UNREAD:
                session.fail(error, "terminated")
            raise
        except click.ClickException as error:  # click itself prints it on stderr
            if session.as_json:
                session.finish(error_as_json(error, error.format_message()), "")
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            session.say(without_credentials(traceback.format_exc()))
            session.fail(error, f"unforeseen {type(error).__name__}: {cause_of(error)}")
            ctx.exit(BUG)
        finally:
            session.close()
            signal.signal(signal.SIGTERM, previous)


def exit_code(error: SlmSearchError | OSError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ConfigError):
        return USAGE
    return NEGATIVE if isinstance(error, InvalidDataError | NotWorthItError) else MISSING


def _describe(error: SlmSearchError | OSError) -> str:
    if isinstance(error, SlmSearchError):
        return str(error)
    misnamed = isinstance(error, FileExistsError | FileNotFoundError | IsADirectoryError | NotADirectoryError)
    remedy = "check the path" if misnamed else "check disk space and permissions"
    named = f": {error.filename}" if error.filename else ""  # of a full disk no file is known
    return f"{error.strerror or cause_of(error)}{named}; {remedy}"


def _raise_exit(number: int, _frame: FrameType | None) -> NoReturn:
    # Without it SIGTERM would end the process at once, and MLflow would show its runs as running for ever.
    raise SystemExit(TERMINATED + number)


def option(*names: str, choices: Sequence[str] = (), **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make an option whose help shows its default; `choices` limits its values."""
    if choices:
        settings["type"] = click.Choice(choices)
    return click.option(*names, show_default="default" in settings, **settings)


LIVE = click.option("--live", is_flag=True, help="Show training in a live view; runs in this process.")
"""Option `--live` of commands that train."""
ENGINE = option(
    "--engine",
    choices=("torch", "llamacpp"),
    default="torch",
    help="Engine; llamacpp (an extra) first converts the model to q8_0, once.",
)
"""Option `--engine` of commands that answer questions."""


def command(group: click.Group, name: str, **options: Any) -> Callable[[Callable[..., None]], click.Command]:
    """Register a function as a command of a group; its first argument is the session."""

    def register(function: Callable[..., None]) -> click.Command:
        return group.command(name, cls=SettingsCommand, **options)(click.pass_obj(function))

    return register


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="slmsearch")
def cli() -> None:
    """\b
    Train a small language model to search pages and to answer from them.
    slmsearch learn FOLDER          a searcher of your own documents, on two CPU cores
    slmsearch run train-and-eval    the whole pipeline on a generated encyclopedia, in minutes
    """


@cli.group()
def ops() -> None:
    """Look after deployments, workers, states and disk space."""
