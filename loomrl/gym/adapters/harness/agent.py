"""The agent of somebody else: a command line, or a Python script or function, started without changing it."""

import ast
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from loomrl.errors import ConfigError
from loomrl.gym.adapters.harness.nursery import Launch, Nursery, open_nursery, plain_environment
from loomrl.gym.adapters.harness.session import Access
from loomrl.schema import Config

LAZY = {
    "openai": ("openai.resources.chat.completions", "openai.resources.responses"),
    "anthropic": ("anthropic.resources.messages",),
}
"""Modules that a client imports only at its first call: better once in the nursery than in every agent."""
LONGEST_VARIABLE = 100_000
"""Bytes of an environment variable; Linux allows 128 KiB. A longer task is only in its file."""
TASK_FILE = "task.json"


class Agent(Config):
    """The way to start an agent: a `command`, or with `python` a script or a function."""

    command: tuple[str, ...] = ()
    """A program and its arguments. A new program for every attempt: Python takes a second for it, a fork none."""
    python: str = ""
    """A script (`path/agent.py`, or `package.module` for a module's file), or a function of the task
    (`package.module:function`), whose result is the answer.
    """
    arguments: tuple[str, ...] = ()
    """Of a script."""
    interpreter: str = ""
    """The Python for it; empty is ours."""
    preload: tuple[str, ...] | None = None
    """Modules imported once for all attempts. None: those that the agent's file imports at its top."""
    path: tuple[str, ...] = ()
    """Folders of further modules."""
    env: dict[str, str] = Field({})
    """Further environment variables. Nothing else of this process's environment is passed on but PATH and locale."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.command) == bool(self.python):
            raise ValueError(
                "an agent is a command or python, one of the two: {python: agent.py}, {command: [./agent]}"
            )
        if self.command and (self.arguments or self.interpreter or self.preload or self.path):
            raise ValueError("arguments, interpreter, preload and path are for agents with python: leave them out")
        return self

    @property
    def file(self) -> Path:
        """The Python file that it is in; a ConfigError if there is none."""
        return _file(self.python, self.interpreter)

    def check(self) -> None:
        """A ConfigError if it cannot be started here."""
        if self.python:
            _ = self.file
        elif shutil.which(self.command[0], path=self.env.get("PATH", os.environ.get("PATH"))) is None:
            raise ConfigError(f"agent.command[0]={self.command[0]!r}: there is no such program. Give its whole path.")

    def nursery(self) -> Nursery:
        """The interpreter that its processes are forked from."""
        if self.command:
            return open_nursery()
        modules = self.preload if self.preload is not None else imports_of(self.file)
        lazy = [each for name in modules for each in LAZY.get(name.partition(".")[0], ())]
        return open_nursery(self.interpreter, [*modules, *lazy], self._path)

    @property
    def _path(self) -> tuple[str, ...]:
        ours = () if self.interpreter else tuple(entry for entry in sys.path if entry)
        return (*(str(Path(folder).absolute()) for folder in self.path), *ours)

    def launch(self, task: Mapping[str, Any], access: Access, folder: Path, **limits: Any) -> Launch:
        """The process of one attempt, in its folder."""
        text = json.dumps(task, ensure_ascii=False)
        (folder / TASK_FILE).write_text(text)
        env = {
            **plain_environment(),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LOOM_TASK_FILE": str(folder / TASK_FILE),
            "OPENAI_BASE_URL": access.openai_base_url,
            "OPENAI_API_KEY": access.api_key,
            "ANTHROPIC_BASE_URL": access.anthropic_base_url,
            "ANTHROPIC_API_KEY": access.api_key,
            **self.env,
        }
        if len(text.encode()) <= LONGEST_VARIABLE:
            env["LOOM_TASK"] = text
        if self.command:
            return Launch(argv=self.command, env=env, cwd=str(folder), **limits)
        is_function = ":" in self.python
        return Launch(
            script="" if is_function else str(self.file),
            arguments=self.arguments,
            function=self.python if is_function else "",
            path=self._path if is_function else (str(self.file.parent), *self._path),
            task=task if is_function else None,
            env=env,
            cwd=str(folder),
            **limits,
        )


@lru_cache
def _file(python: str, interpreter: str) -> Path:
    module, _, function = python.partition(":")
    if not function and (os.sep in module or module.endswith(".py")):
        file = Path(module).absolute()
        if not file.is_file():
            raise ConfigError(f"agent.python={python!r}: there is no file {file}. Give its path, or package.module.")
        return file
    if function and interpreter:
        raise ConfigError(f"agent.python={python!r}: functions run in our own Python. Leave interpreter out.")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"agent.python={python!r}: {error}. Give a script's path, or package.module.") from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"agent.python={python!r}: there is no such module. Give a script's path, or package.module.")
    return Path(spec.origin)


@lru_cache
def imports_of(file: Path) -> tuple[str, ...]:
    """The modules that a Python file imports at its top, so that they can be imported ahead of it."""
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, ValueError):
        return ()  # its own complaint will say so
    found: dict[str, None] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found[node.module] = None
    return tuple(found)
