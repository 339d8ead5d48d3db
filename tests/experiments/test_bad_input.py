"""Whatever a person types, a command ends in a line or two of ours and exit status 1 or 2."""

from pathlib import Path

import pytest

from loomrl.experiments.cli import main
from tests.command_line import typed_json

BIG = "9" * 23
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
STRANGE = """
import gymnasium


def made():
    return None


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Text(3)
    action_space = gymnasium.spaces.Discrete(2)
"""
WORLD = "environment={kind: custom, entry_point: 'strange:World'}"


@pytest.fixture(autouse=True)
def _among_strange_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "ein Ordner, ünïcode"
    place.mkdir()
    monkeypatch.chdir(place)
    Path("binary.yaml").write_bytes(bytes(range(256)))
    Path("circular.yaml").write_text("name: x\nhub: &a\n  b: *a\n")
    Path("exploding.yaml").write_text(f"name: x\n{ALIASES}")
    Path("deep.yaml").write_text("[" * 100_000)
    Path("list.yaml").write_text("- a\n")
    Path("kind.yaml").write_text("kind: [a]\n")
    Path("text.db").write_text("no database " * 100)
    Path("folder").mkdir()
    Path("strange.py").write_text(STRANGE)
    for name, text in (("broken", "not json"), ("word", '{"max_position_embeddings": "x"}')):
        Path(name).mkdir()
        Path(name, "config.json").write_text(text)


def said_to(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The stderr of a command that ends in an error."""
    monkeypatch.setattr("sys.argv", ["loomrl", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (1, 2), caught.value.code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", f"seed={BIG}"], [f"seed={BIG}", "less than 2147483648"]),
        (["evaluate", "math", "--episodes", BIG], ["evaluation.episodes", "1000000"]),
        (["evaluate", "evaluation.levels=[]"], ["evaluation.levels=[]", "at least 1 item"]),
        (["show", "curriculum={kind: staged, stages: [{name: a, families: []}]}"], ["families=[]", "at least 1 item"]),
        (["show", "binary.yaml"], ["binary.yaml", "cannot be read"]),
        (["show", "circular.yaml"], ["circular.yaml", "an alias within what it names", "line 2"]),
        (["show", "exploding.yaml"], ["exploding.yaml", "over 100,000 values"]),
        (["sweep", "exploding.yaml"], ["exploding.yaml", "over 100,000 values"]),
        (["doctor", "circular.yaml"], ["circular.yaml", "an alias within what it names"]),
        (["evaluate", "templates=exploding.yaml"], ["exploding.yaml", "over 100,000 values"]),
        (["show", "environments=[{id: Math, settings: &a {b: *a}}]"], ["an alias within what it names"]),
        (["show", "deep.yaml"], ["deep.yaml", "not valid YAML"]),
        (["show", "list.yaml"], ["list.yaml", "mapping"]),
        (["show", "kind.yaml"], ["kind=", "Known: control, language"]),
        (["show", "x" * 5000], ["no such file", "Known:"]),
        (["show", "name=.."], ["name='..'"]),
        (["evaluate", "--policy", "x" * 5000], ["policy name='xxx", "oracle"]),
        (["evaluate", "--policy", "broken"], ["broken/config.json", "Hugging Face"]),
        (["evaluate", "--policy", "word"], ["word/config.json", "Hugging Face"]),
        (["evaluate", "control/cartpole", "--policy", "os:getcwd"], ["--policy='os:getcwd'", "callable"]),
        (["evaluate", "control/cartpole", "--policy", "os:putenv"], ["--policy='os:putenv'", "TypeError"]),
        (["train", "control/cartpole", "--run", ""], ["run=''", "1 to 200 letters"]),
        (["train", "control/cartpole", "--run", "../../evil"], ["run='../../evil'", "1 to 200 letters"]),
        (["train", "control/cartpole", "--run", "x" * 300], ["run='xxx", "1 to 200 letters"]),
        (["sweep", "cartpole", "--run", "../../evil"], ["run='../../evil'", "1 to 200 letters"]),
        (["submit", "math", "--run", "a; b", "--address", "http://127.0.0.1:1"], ["run='a; b'", "1 to 200 letters"]),
        (["train", "control/cartpole", "train.folder=text.db"], ["train.folder='text.db'", "Choose a folder"]),
        (["train", "control/cartpole", "train.folder=''"], ["train.folder=''"]),
        (["train", "control/cartpole", "artifact_url=text.db"], ["artifact_url=", "Choose a folder"]),
        (["train", "control/cartpole", "artifact_url=s3://"], ["artifact_url='s3://'", "names no bucket"]),
        (["train", "control/cartpole", "artifact_url=http://[x"], ["artifact_url='http://[x'"]),
        (["train", "--resume", "--run", "nope"], ["runs has no id 'nope'", "Known: none"]),
        (["runs", "--store", "sqlite:///text.db"], ["not a LoomDB"]),
        (["runs", "--store", "sqlite:///folder"], ["is a folder"]),
        (["runs", "--store", f"sqlite:///{'x' * 300}"], ["too long", "Choose another path"]),
        (["runs", "--store", "sqlite:///a.db?mode=ro"], ["nothing may follow"]),
        (["runs", "--store", "sqlite+nope:///a.db", "--limit", "0"], ["--limit"]),
        (["runs", "--limit", BIG], ["--limit"]),
        (["feedback", "list", "--limit", "-1"], ["--limit"]),
        (["envs", "show", "Math", "--seed", "-1"], ["--seed"]),
        (["envs", "show", "Math", "--family", ""], ["family"]),
        (["jobs", "list", "--address", "http://[::1"], ["address='http://[::1'", "http://HEAD:8265"]),
        (["jobs", "list", "--address", "http://127.0.0.1:99999"], ["99999"]),
        (["bench", "envs", "only=[Maht]", "--quick"], ["'Maht'", "Did you mean 'Math'?"]),
        (["bench", "envs", "only=Math", "--quick"], ["only=Math is a list: only=[Math]"]),
        (["policies", "export", "nope", "text.db"], ["'nope'", "RUN/NUMBER"]),
        (["show", "maht"], ["'maht'", "Did you mean 'math'?"]),
        (["evaluate", "math", "--policy", "orcale"], ["'orcale'", "Did you mean 'oracle'?"]),
        (["evaluate", "math", "environments.0.id=Maht"], ["'Maht'", "Did you mean 'Math'?"]),
        (["evaluate", "math", "environments.0.families=[algbra]"], ["algbra", "algebra.linear"]),
        (["evaluate", "math", "--policy", "nowhere/3"], ["nowhere/3"]),
        (["evaluate", "nope"], ["'nope' is no experiment, no run in", "Latest runs: none", " more (tab"]),
        (["evaluate", "--policy", "strange:make"], ["'make'", "It defines made, World. Did you mean 'made'?"]),
        (["envs", "check", "Math", "max_stepps=3"], ["max_stepps", "Did you mean 'max_steps'"]),
        (["train", "math", "algorithm={kind: custom, entry_point: 'no.such:X'}"], ["no.such:X", "importable"]),
        (
            ["train", "math", "algorithm={kind: remote, model: {path: broken}}"],
            ["kind=remote", "loomrl serve --train BASE"],
        ),
        (["serve", "--train", "broken", "run-1"], ["'run-1' would be served"]),
        (["serve", "--train", "broken", "--endpoint", "x"], ["--endpoint=x has no effect with --train"]),
        (["serve", "--train", "broken", "contxt=5"], ["Did you mean 'context'?"]),
        (["serve", "--train", "broken", "--port", "0"], ["broken/config.json", "not a valid JSON"]),
        (["policies", "show", "nobody/1"], ["nobody/1"]),
        (["show", "language/math_tiny", "environments.0.settings.foo=1"], ["foo=1: no such setting here"]),
        (["show", "math", "algorithm.model={path: /no/where}"], ["model.path='/no/where': there is no such folder"]),
        (["show", "math", "rewards.parts=[{kind: custom, entry_point: 'strange:no'}]"], ["It defines made"]),
        (["show", "control/cartpole", "environment.id=CartPole-v9"], ["CartPole", "v9"]),
        (["train", "control/cartpole", WORLD], ["observation space is Text", "is not supported"]),
        (["show", "math", "algorithm.clip=0.1"], ["low, high, dual", "Write algorithm.clip.low=0.1"]),
        (["sweep", "cartpole", "trials=ten"], ["trials='ten'", "Write samples."]),
        (["runs", "--store", "mysql://x/y"], ["mysql", "sqlite"]),
    ],
)
def test_bad_input_ends_in_a_line_that_names_it(
    words: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray was started"))
    message = said_to(words, monkeypatch, capsys)
    assert "Traceback" not in message
    assert all(part in message for part in said), message
    assert len(message) < 2500
    assert not Path("../../evil").exists()


def test_an_environment_without_families_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("barren_envs.py").write_text(
        "from tests.gym.sample_envs import *\nfrom loomrl.gym.base import BaseEnvironment\n"
        "class Barren(BaseEnvironment):\n    version = '1.0.0'\n    families = ()\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for words in (["evaluate", "--env", "barren_envs:Barren"], ["envs", "show", "barren_envs:Barren"]):
        assert "no families" in said_to(words, monkeypatch, capsys)


def test_an_id_that_is_not_there_is_answered_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = typed_json("evaluate", "math", "--episodes", "1")["run"]
    said = said_to(["train", "--resume", "--run", run[:-1]], monkeypatch, capsys)
    assert f"Known: {run}." in said
    assert f"Did you mean {run!r}?" in said
