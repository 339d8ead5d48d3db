"""The one face of `loomrl`: options of the root anywhere, former words, one grammar of nouns, one screen of help."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.cli import GROUPS, app
from loomrl.experiments.commands.face import ANYWHERE, FORMER, Noun
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.runs import Run, asked_to_stop, start_run
from tests.console.console_samples import url_in


def loomrl(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def tree(command: Any = None, path: str = "loomrl") -> Iterator[tuple[str, Any]]:
    """Every command with its words."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from tree(child, f"{path} {name}")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOOMRL_STORE", raising=False)
    found = f"sqlite:///{tmp_path}/other.db"
    with open_store(found) as db:
        about = {"experiment": "0" * 64, "resolved": "name: math", "code": "1", "environments": {}}
        start_run(db, Run(id="r", name="math", kind="train", started_at=1.0, **about))
    return found


def test_options_of_the_root_are_taken_before_and_after_the_command(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = loomrl("runs", "list", "--json", f"--store={url}")
    assert [run["id"] for run in json.loads(behind)["runs"]] == ["r"]
    assert loomrl("--store", url, "--json", "runs") == behind
    assert json.loads(loomrl("runs", "--json"))["runs"] == []
    monkeypatch.setenv("LOOMRL_STORE", url)
    assert loomrl("runs", "--json") == behind


def test_options_of_the_root_are_declared_nowhere_else() -> None:
    for path, command in tree():
        options = {option for each in command.params for option in each.opts}
        assert path == "loomrl" or not options & set(ANYWHERE), path


def test_list_and_show_are_the_words_of_every_noun(url: str) -> None:
    assert loomrl("runs", "--store", url) == loomrl("runs", "list", "--store", url)
    assert loomrl("runs", "r", "--store", url) == loomrl("runs", "show", "r", "--store", url)
    assert json.loads(loomrl("runs", "show", "r", "--json", "--store", url))["id"] == "r"
    with pytest.raises(ConfigError, match="runs show: name one"):
        loomrl("runs", "show")
    with pytest.raises(ConfigError, match="--limit: it has no effect on one run"):
        loomrl("runs", "show", "r", "--limit", "3", "--store", url)
    with pytest.raises(ConfigError, match="--watch: name one release"):
        loomrl("release", "list", "--watch", "--store", url)
    nouns = [command for _, command in tree() if type(command) is Noun]
    assert all("list" in noun.commands for noun in nouns)


def test_filters_are_those_of_the_declaration(url: str) -> None:
    with open_store(url) as db:
        set_endpoint(db, "chat", [Arm(name="stable", policy="r/1")], at=1.0)
    assert "chat" in loomrl("endpoints", "--store", url)
    assert json.loads(loomrl("runs", "--text", "nothing", "--json", "--store", url))["runs"] == []
    with pytest.raises(ConfigError, match=r"status='runing' is unknown.*Did you mean 'running'"):
        loomrl("runs", "--status", "runing", "--store", url)


SINGLE = (
    ("runs", "math-1", ("all 120 updates done", "Evaluations", "57 %", "Versions", "math-1/40")),
    ("policies", "math-1/20", ("Origins", "math-1/0", "Deployments", "support@1/math-1/20")),
    (
        "endpoints",
        "support",
        ("Arms", "90 %", "Outcomes", "544", "support-1", "Revisions", "first version"),
    ),
    ("gate", "verdict-1", ("+0.09", "loomrl gate approve verdict-1", "Checks", "0 of 200 break no_cards")),
    ("ab", "tone", ("nothing is proved yet", "No value of success", "baseline", "warm")),
    ("rewards", "session-3", ("Components", "It said so.", "Evidence", "'id': 'f-3'")),
    ("loop", "job-1", ("queued", "Log", "by ann")),
)


def test_records_of_every_kind_and_hub_are_listed_and_shown(tmp_path: Path) -> None:
    url = url_in(tmp_path)
    served = json.loads(loomrl("trajectories", "--source", "production", "--limit", "99", "--json", "--store", url))
    assert {row["hub"] for row in served["trajectories"]} == {"endpoint-support"}
    (one,) = (row for row in served["trajectories"] if row["id"] == "session-3")
    shown = json.loads(loomrl("trajectories", "show", "session-3", "--json", "--store", url))
    assert (shown["hub"], shown["reward"]["total"]) == ("endpoint-support", one["reward"])
    assert shown["threads"][0][0]["role"] == "user"
    assert shown["threads"][0][0]["content"] in loomrl("trajectories", "session-3", "--store", url)
    with pytest.raises(StoreError, match="trajectory 'nope' is in no hub"):
        loomrl("trajectories", "nope", "--store", url)
    judged = json.loads(loomrl("trajectories", "show", "wrong", "--json", "--store", url))
    assert judged["grades"]["rank"]["reasons"] == {"rank 2 of 2, shown 1.": "It answers <another> question."}
    assert "It answers <another> question." in loomrl("trajectories", "show", "wrong", "--store", url)
    for noun, id, texts in SINGLE:
        said = loomrl(noun, "show", id, "--store", url)
        assert [text for text in texts if text not in said] == [], noun
    ended = loomrl(
        "ab", "stop", "tone", "--keep", "warm", "--reason", "enough", "--who", "ann", "--json", "--store", url
    )
    assert (json.loads(ended)["phase"], json.loads(ended)["reason"]) == ("stopped", "enough (ann)")


def test_a_store_is_that_of_an_experiment_too(url: str) -> None:
    assert f"store_url: {url}" in loomrl("show", "math", "--store", url)
    with pytest.raises(ConfigError, match=r"--store=.*reads no store"):
        loomrl("doctor", "--store", url)
    with pytest.raises(ConfigError, match="no result to print as JSON"):
        loomrl("hub", "--json")


def test_a_run_is_asked_to_stop(url: str) -> None:
    loomrl("runs", "stop", "r", "--why", "enough", "--store", url)
    with open_store(url) as db:
        assert "enough" in str(asked_to_stop(db, "r"))


@pytest.mark.parametrize("former", FORMER)
def test_a_former_word_is_answered_with_the_new_one(former: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loomrl(*former.split(), "--json")
    assert str(caught.value) == f"loomrl {former} is now: {FORMER[former]}"
    name, *words = FORMER[former].split()
    if name == "loomrl":
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            word = words.pop(0) if words else ""
            if isinstance(command, Noun) and word not in command.commands:
                word = command.default
            command = command.commands[word]


def test_help_is_one_screen_with_every_command_in_its_group() -> None:
    text = loomrl("--help")
    assert len(text.splitlines()) <= 44
    assert max(map(len, text.splitlines())) <= 80
    assert [line for line in text.splitlines() if line in GROUPS] == list(GROUPS)
    for path, command in tree():
        if path.count(" ") == 1:
            assert f"\n  {path.removeprefix('loomrl ')} " in text, path
            assert inspect.cleandoc(command.help or ""), path


def test_the_tree_stays_small() -> None:
    leaves = [path for path, command in tree() if not hasattr(command, "commands")]
    options = [each for _, command in tree() for each in command.params if each.param_type_name == "option"]
    assert len(leaves) <= 86
    assert len(options) <= 260
