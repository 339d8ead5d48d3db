"""`loomrl new`: what it makes passes its checks at once, beside a user's own package; and what a shell completes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.new import KINDS, make_new
from loomrl.experiments.shipped import names, resolve
from tests.command_line import typed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty but for a package of the user's."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def loomrl(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in this folder, which only `sys.path` of the command itself names."""
    more = {"PYTHONSAFEPATH": "1", **environment}
    command = [sys.executable, "-m", "loomrl", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | more, check=False, timeout=280)


@pytest.mark.system
@pytest.mark.parametrize("name", [pytest.param("word_game", marks=pytest.mark.slow), "mine.word_game"])
def test_a_new_environment_passes_the_checker(name: str) -> None:
    assert "WordGameEnvironment" in typed("new", "env", name)
    done = loomrl("envs", "check", f"{name}:WordGameEnvironment")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WordGameEnvironment 0.1.0 passes" in done.stdout


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "name"), [("algorithm", "mine.bars"), ("agent", "word_adder"), ("experiment", "first")]
)
def test_what_is_new_trains_a_step_as_a_user_would(what: str, name: str) -> None:
    made = make_new(what, name)
    commands = [command.split()[1:] for command in made.then]
    assert commands[-1][0] == "train"
    for words in [*commands[:-1], [*commands[-1], "train.updates=1", "evaluation.episodes=4"]]:
        done = loomrl(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "after" in done.stdout


def test_new_files_have_the_users_names_and_are_sound() -> None:
    made = make_new("algorithm", "mine.high_bar")
    assert made.files == ("mine/high_bar.py", "mine/high_bar.yaml")
    experiment = resolve(["mine/high_bar.yaml"])
    assert experiment.name == "high_bar"
    assert type(open_algorithm(experiment)).__name__ == "HighBarConfig"
    make_new("agent", "word_adder")
    assert resolve(["word_adder.yaml"]).name == "word_adder"
    make_new("experiment", "first")
    assert resolve(["first.yaml"]).name == "first"
    for file in Path().rglob("*.*"):
        if file.suffix in (".py", ".yaml"):
            assert "scaffold" not in file.read_text()
    assert not [name for name in names() if "scaffold" in name]


@pytest.mark.parametrize(
    ("what", "name", "said"),
    [
        ("game", "mine", "Known: agent, algorithm, env, experiment"),
        ("env", "math", "a module of this name"),
        ("env", "torch", "a module of this name"),
        ("env", "1x", "no name of a module"),
        ("env", "a-b", "no name of a module"),
        ("env", "../x", "no name of a module"),
        ("env", "class", "no name of a module"),
        ("env", "theirs.game", "no folder 'theirs'"),
        ("env", "mine.there", "there already"),
    ],
)
def test_names_that_cannot_be_are_refused(folder: Path, what: str, name: str, said: str) -> None:
    (folder / "mine/there.py").write_text("# mine")
    before = sorted(folder.rglob("*"))
    with pytest.raises(ConfigError, match=said):
        make_new(what, name)
    assert sorted(folder.rglob("*")) == before
    assert (folder / "mine/there.py").read_text() == "# mine"


@pytest.mark.parametrize(
    ("said", "completed"),
    [
        ("loomrl quer", ["query"]),
        ("loomrl train language/math_tiny_g", ["language/math_tiny_grpo"]),
        ("loomrl train ow", ["own.yaml"]),
        ("loomrl new e", ["env", "experiment"]),
        ("loomrl query base", ["baselines"]),
        ("loomrl train --res", ["--resume"]),
    ],
)
def test_a_shell_completes_commands_experiments_and_options(folder: Path, said: str, completed: list[str]) -> None:
    (folder / "own.yaml").write_text("")
    words = {"_LOOMRL_COMPLETE": "complete_bash", "COMP_WORDS": said, "COMP_CWORD": str(said.count(" "))}
    assert typed(env=words, prog_name="loomrl").split() == completed


def test_a_shell_gets_its_script() -> None:
    script = loomrl("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout
    assert "_LOOMRL_COMPLETE=complete_bash" in script
    assert "complete -o default -F _loomrl_completion loomrl" in script
    assert set(KINDS) == {"env", "algorithm", "agent", "experiment"}
