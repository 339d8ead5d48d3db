"""The one face of `loomrl`: options of the root command, its groups and former words, and the grammar of nouns."""

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from loomrl.errors import ConfigError

if TYPE_CHECKING:
    from loomrl.store import LoomDB

STORE = "sqlite:///loom.db"
VARIABLE = "LOOMRL_STORE"
ANYWHERE = {"--store": 1, "--json": 0}
"""Options of the root command that are taken behind the subcommand too, with the number of their values."""
RUN = "run"
LIST = "list"
SHOW = "show"
F = TypeVar("F", bound=Callable[..., Any])

FORMER = {
    "lineage": "loomrl policies show POLICY",
    "league": "loomrl policies show RUN",
    "export": "loomrl policies export POLICY FOLDER",
    "export run": "loomrl policies export POLICY FOLDER",
    "export tensorzero": "loomrl endpoints export ENDPOINT",
    "import": "loomrl policies import FILE FOLDER",
    "prune": "loomrl policies prune",
    "stop": "loomrl runs stop RUN",
    "coordinate": "loomrl loop EXPERIMENT",
    "coordinate run": "loomrl loop EXPERIMENT",
    "coordinate jobs": "loomrl loop list",
    "coordinate show": "loomrl loop show JOB",
    "coordinate request": "loomrl loop request EXPERIMENT",
    "coordinate cancel": "loomrl loop cancel JOB",
    "coordinate report": "loomrl loop report EXPERIMENT",
    "feedback given": "loomrl feedback list",
    "release status": "loomrl release show ENDPOINT",
    "forget": "loomrl people forget USER",
    "people opt-in": "loomrl people opt-out NAME --undo",
    "monitor": "loomrl endpoints monitor",
    "monitor free": "loomrl endpoints free SESSION",
    "archives": "loomrl data archives",
    "archives list": "loomrl data archives --endpoint ENDPOINT",
    "archives read": "loomrl data archives --read",
    "redact": "loomrl data redact FILE",
    "rewards alarms": "loomrl events --kind reward.alarm",
    "analytics feed": "loomrl query load",
    "analytics rebuild": "loomrl query load --anew",
    "analytics export": "loomrl query TABLE --parquet FILE",
    "nats": "loomrl bus broker",
    "bus status": "loomrl bus",
    "bus schema": "loomrl bus show SUBJECT",
    "bus dead list": "loomrl bus dead",
    "bus dead replay": "loomrl bus dead --replay",
    "jobs status": "loomrl jobs show JOB",
    "jobs result": "loomrl jobs show JOB --json",
    "cluster check": "loomrl doctor FILE",
    "envs verify": "loomrl envs diff ID",
    "metrics files": "loomrl new monitoring FOLDER",
    "lab": "python -m tests.lab",
}
"""Former word → the command that does it now."""


def complete_experiment(incomplete: str) -> list[str]:
    """Shipped experiments, YAML files and folders that begin with these letters."""
    from loomrl.experiments.shipped import names

    folder, _, _ = incomplete.rpartition("/")
    here = Path(folder or ".")
    try:
        entries = sorted(here.iterdir())
    except OSError:
        entries = []
    files = [f"{one}/" if one.is_dir() else str(one) for one in entries if one.is_dir() or one.suffix == ".yaml"]
    return [one for one in (*names(), *files) if one.startswith(incomplete) and not one.startswith(".")]


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT] [PATH=VALUE]...",
        help="Experiment files or names, then overrides.",
        autocompletion=complete_experiment,
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows at most.")]
Scraped = Annotated[
    str | None,
    typer.Option("--metrics", envvar="LOOMRL_METRICS", help="HOST:PORT for Prometheus; port 0 takes any free port."),
]
Tls = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--tls",
        metavar="CERTIFICATE KEY",
        envvar="LOOMRL_TLS",
        help="Speak HTTPS: a certificate with its chain, and its private key, in PEM.",
    ),
]


def _in_words(reason: str | None) -> str | None:
    """A reason; not the next option, which would be swallowed."""
    if reason is not None and reason.startswith("-"):
        raise ConfigError(f"--no-gate: say a reason before {reason}.")
    return reason


Who = Annotated[str, typer.Option(help="Your name; by default your account's.")]
NoGate = Annotated[
    str | None,
    typer.Option(metavar="REASON", callback=_in_words, help="Skip the gate; the reason is kept on record."),
]
Why = Annotated[str, typer.Option(help="Reason, kept on record.")]
Host = Annotated[str, typer.Option(help="Address to serve on; beyond this machine callers need a key or a token.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="Another host name of the server, as behind a proxy; repeatable.")
]


@dataclass(frozen=True, slots=True)
class Face:
    """The options of the root command."""

    given_store: str | None = None
    as_json: bool = False

    @property
    def store(self) -> str:
        """The URL of LoomDB: of the command line, of the environment, or the default one."""
        return self.given_store or os.environ.get(VARIABLE) or STORE


_face: ContextVar[Face] = ContextVar("face", default=Face())  # noqa: B039 - frozen


def face() -> Face:
    """The options that the present command was called with."""
    return _face.get()


def set_face(given: Face, ctx: typer.Context) -> None:
    """Keep the options of the root command until its context ends."""
    token = _face.set(given)
    ctx.call_on_close(lambda: _face.reset(token))


def open_face_store() -> "AbstractContextManager[LoomDB]":
    """LoomDB, as `--store` names it."""
    from loomrl.store import open_store

    return open_store(face().store)


def with_store(words: Sequence[str] | None) -> list[str]:
    """The words of an experiment, with `--store` as its `store_url`. The environment's default does not override it."""
    store = face().given_store
    return [*(words or ()), *([] if store is None else [f"store_url={store}"])]


def without(*options: str) -> Callable[[F], F]:
    """Refuse options of the root command that would change nothing here."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def checked(*args: Any, **values: Any) -> Any:
            if "--store" in options and face().given_store is not None:
                raise ConfigError(f"--store={face().given_store}: this command reads no store. Leave it out.")
            if "--json" in options and face().as_json:
                raise ConfigError("--json: this command has no result to print as JSON. Leave it out.")
            return command(*args, **values)

        return checked  # type: ignore[return-value]

    return decorate


class Root(TyperGroup):
    """The root command: takes its options anywhere, answers former words, and prints its groups on one screen."""

    groups: tuple[str, ...] = ()
    """The headings of the help, in order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move options of the root to the front; refuse former words with the new ones."""
        front, rest = _split(args)
        words = [word for word in rest if not word.startswith("-")]
        for count in (3, 2, 1):
            former = " ".join(words[:count])
            if len(words) >= count and former in FORMER:
                raise ConfigError(f"loomrl {former} is now: {FORMER[former]}")
        return super().parse_args(ctx, front + rest)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, then the commands by their groups, then the options."""
        formatter.write("Usage: loomrl [--store URL] [--json] COMMAND …\n")
        width = max(len(name) for name in self.commands) + 2
        for group in self.groups:
            formatter.write(f"{group}\n")
            for name, command in self.commands.items():
                if getattr(command, "rich_help_panel", None) != group:
                    continue
                formatter.write(f"  {name:{width}}{command.get_short_help_str(200).removesuffix('.')}\n")
        formatter.write(f"\n{self.epilog}\n")


def _split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The root's options wherever they stand before `--`, and the other words."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name not in ANYWHERE:
            rest.append(word)
        else:
            values = [] if equals else [value for _, value in zip(range(ANYWHERE[name]), words, strict=False)]
            front += [word, *values]
    return front, rest


class Noun(TyperGroup):
    """Commands on one kind of record: `loomrl runs`, `runs list`, `runs show RUN` and `runs RUN` are one command."""

    default = LIST

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command, unless another one or help is asked for."""
        if not args:
            args = [] if self.no_args_is_help else [self.default]
        elif args[0] == SHOW and SHOW not in self.commands and LIST in self.commands:
            if len(args) == 1:
                raise ConfigError(f"{ctx.command_path} show: name one, as `{ctx.command_path} list` lists them.")
            args = [LIST, *args[1:]]
        elif args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, and what the default one's first argument may be."""
        found = super().shell_complete(ctx, incomplete)
        command = self.commands.get(self.default)
        argument = next((each for each in getattr(command, "params", ()) if each.param_type_name == "argument"), None)
        if command is None or argument is None:
            return found
        return [*found, *argument.shell_complete(ctx, incomplete)]


class Verb(Noun):
    """A command of its own, `loomrl release VERSION`, with others beside it: `loomrl release pause ENDPOINT`."""

    default = RUN


def nouns(about: str) -> typer.Typer:
    """A group of commands on one kind of record; without a word it lists."""
    return typer.Typer(cls=Noun, help=about)


def verb(about: str, *, needs_words: bool = True) -> typer.Typer:
    """A group whose own command is the usual one."""
    return typer.Typer(cls=Verb, help=about, no_args_is_help=needs_words)
