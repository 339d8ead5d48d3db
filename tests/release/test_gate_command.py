import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomrl.errors import ConfigError, LoomError, StoreError
from loomrl.experiments import cli
from loomrl.experiments.gate.suite import names, resolve_suite
from tests.release.gate_support import HERE

SMALL = ["--suite", "language_tiny", "benchmarks.0.environment.families=[arithmetic.sum]", "benchmarks.0.levels=[1]"]
SMALL += ["benchmarks.0.episodes=100", "cost=null"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def gate(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["gate", *words], catch_exceptions=True)
    if isinstance(done.exception, LoomError):
        raise done.exception
    return done.exit_code, done.output


def told(*words: str) -> tuple[int, dict[str, Any]]:
    code, said = gate(*words, "--json")
    return code, json.loads(said.splitlines()[-1])


def test_command_says_allowed_or_refused_by_its_exit_status(tmp_path: Path) -> None:
    code, allowed = told(f"{HERE}:Good", "--against", "random", *SMALL)
    assert (code, allowed["outcome"], allowed["strategy"]["name"]) == (0, "allowed", "blue_green")
    code, refused = told(f"{HERE}:Reciting", "--against", f"{HERE}:Good", *SMALL, "--page", "v.html")
    assert (code, refused["outcome"]) == (1, "refused")
    page = (tmp_path / "v.html").read_text()
    HTMLParser().feed(page)
    assert "Examples of failed checks" in page
    assert refused["id"] in page
    assert [each["id"] for each in told("list")[1]["verdicts"]] == [refused["id"], allowed["id"]]
    code, shown = gate("show", refused["id"])
    assert code == 0
    assert "Examples of failed checks" in shown
    assert "safety.prompt" in shown


def test_verdict_waits_for_those_whom_the_suite_names() -> None:
    code, waiting = told(f"{HERE}:Good", *SMALL, "approvers=[anna]")
    assert (code, waiting["outcome"], waiting["allowed"]) == (1, "waiting", False)
    with pytest.raises(StoreError, match="may not approve"):
        gate("approve", waiting["id"], "--who", "otto")
    code, approved = told("approve", waiting["id"], "--who", "anna")
    assert (code, approved["allowed"], approved["approved_by"]) == (0, True, ["anna"])
    assert approved["checks"] == waiting["checks"]


def test_bad_input_is_named_and_leaves_no_verdict() -> None:
    for words, named in (
        ([f"{HERE}:Good", "--suite", "languag_tiny"], "Did you mean 'language_tiny'"),
        ([f"{HERE}:Good", *SMALL, "safty=null"], "Did you mean 'safety'"),
        ([f"{HERE}:Good", "--against", "production", *SMALL], "which endpoint"),
        (
            [f"{HERE}:Good", "--against", "production:front", *SMALL],
            "no endpoint 'front'.*`loomrl serve VERSION`",
        ),
        ([f"{HERE}:Good", "--against", "run/9", *SMALL], "run/9"),
        (["nobody", *SMALL], "nobody"),
    ):
        with pytest.raises(LoomError, match=named):
            gate(*words)
    assert told("list")[1]["verdicts"] == []


def test_every_shipped_suite_is_sound_and_an_edit_changes_its_hash() -> None:
    assert names() == ["control_tiny", "language", "language_tiny", "loop_tiny"]
    for name in names():
        suite = resolve_suite(name)
        assert suite.name == name
        assert suite.sha256 != resolve_suite(name, ["may_fail=0.01"]).sha256
    with pytest.raises(ConfigError, match="kind"):
        resolve_suite("language", ["kind=both"])
