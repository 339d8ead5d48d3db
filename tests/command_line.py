"""Commands of `loomrl` as they are typed, in this process: an error of ours is raised."""

import json
from typing import Any

from typer.testing import CliRunner

from loomrl.experiments.cli import app


def typed(*words: str, code: int = 0, **options: Any) -> str:
    """What a command prints; it must end with this status. Options are those of `CliRunner.invoke`."""
    done = CliRunner().invoke(app, list(words), catch_exceptions=False, **options)
    assert done.exit_code == code, done.output
    return done.stdout


def typed_json(*words: str, code: int = 0) -> Any:
    """The JSON object on its last line."""
    return json.loads(typed(*words, "--json", code=code).splitlines()[-1])
