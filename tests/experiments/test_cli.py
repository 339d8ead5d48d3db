import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

import loomrl
from loomrl.errors import LoomError
from loomrl.experiments.cli import app
from loomrl.experiments.commands.face import LIST, RUN
from loomrl.gym.sandbox import _open_boxes
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import RUNS
from tests.algorithms.language_support import experiment
from tests.command_line import typed, typed_json

SMALL = ["environments.0.families=[algebra.linear, geometry.*]", "evaluation.episodes=30"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_version_is_that_of_the_package() -> None:
    assert typed("--version").strip() == loomrl.__version__


def test_show_prints_what_a_file_of_it_would_resolve_to() -> None:
    text = typed("show", "math", "seed=5")
    assert "seed: 5" in text
    Path("again.yaml").write_text(text)
    assert typed_json("show", "again.yaml")["sha256"] == typed_json("show", "seed=5")["sha256"]
    assert typed_json("show", "seed=5")["sha256"] in text


def test_evaluation_tells_the_oracle_from_a_random_policy_and_is_on_record() -> None:
    words = ["evaluate", *SMALL, "--policy", "oracle", "--policy", "random"]
    result = typed_json(*words)
    assert typed_json(*words, "math")["policies"] == result["policies"], "it repeats itself"
    assert result["policies"]["oracle"]["overall"]["success"]["mean"] == 1.0
    assert result["policies"]["random"]["overall"]["success"]["mean"] < 0.2
    assert result["policies"]["oracle"]["overall"]["success"]["count"] == 30
    assert {family.split(".")[0] for family in result["policies"]["oracle"]["by_family"]} == {
        "Math/algebra",
        "Math/geometry",
    }
    db = open_store("sqlite:///loom.db")
    recorded = RUNS.require(db, result["run"])
    assert recorded.kind == "evaluate"
    assert list(recorded.environments) == ["Math@1.2.0"]
    assert result["run"] in {e.run for e in EVALUATIONS.latest(db)}
    db.close()
    assert result["run"] in typed("runs")


@pytest.mark.parametrize(
    ("words", "name", "environments"),
    [
        (["--env", "LogicPuzzle"], "LogicPuzzle", ["LogicPuzzle"]),
        (["environments=[{id: LogicPuzzle}, {id: ToolCall}]"], "LogicPuzzle-ToolCall", ["LogicPuzzle", "ToolCall"]),
        (["math", "--env", "LogicPuzzle", "name=mine"], "mine", ["LogicPuzzle"]),
        (["math", "environments.0.families=[algebra.*]"], "math", ["Math"]),
        (["control/cartpole", "--env", "Acrobot-v1"], "Acrobot-v1", ["Acrobot-v1"]),
    ],
)
def test_an_evaluation_is_on_record_under_the_name_of_what_it_is_of(words, name, environments) -> None:
    policy = "random" if "control/cartpole" in words else "oracle"
    told = typed_json("evaluate", *words, "--episodes", "2", "--policy", policy)
    with closing(open_store("sqlite:///loom.db")) as db:
        (recorded,) = RUNS.latest(db)
        (evaluation,) = EVALUATIONS.latest(db)
    assert (recorded.id, recorded.name) == (told["run"], name)
    assert recorded.id.startswith(f"{name}-")
    assert [id.partition("@")[0] for id in recorded.environments] == environments
    assert evaluation.run == recorded.id


def test_an_evaluation_names_what_it_did_not_judge() -> None:
    three = ["environments=[{id: Math}, {id: LogicPuzzle}, {id: MemoryBuffer}]", "--policy", "oracle"]
    report = typed_json("evaluate", *three, "--episodes", "12")["policies"]["oracle"]
    assert {name: score["success"]["count"] for name, score in report["by_environment"].items()} == {
        "LogicPuzzle": 4, "Math": 4, "MemoryBuffer": 4,
    }  # fmt: skip
    assert "Math/algebra.linear" in report["left_out"]
    assert set(report["left_out"]).isdisjoint(report["by_family"])
    assert "not judged: " in typed("evaluate", *three, "--episodes", "12")
    assert "not judged" not in typed("evaluate", "math", *SMALL, "--policy", "oracle")


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_trained_version_can_be_evaluated_and_traced_to_its_origin(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.updates": 2, "evaluation.episodes": 16, "store_url": "sqlite:///loom.db"})
    Path("e.yaml").write_text(dump(settings))
    assert typed_json("train", "e.yaml", "--run", "r")["policy"] == "r/2"
    for words in (["r"], ["e.yaml", "--policy", "r/2"], ["r", "--episodes", "12", "--temperature", "1"]):
        (report,) = typed_json("evaluate", *words)["policies"].values()
        assert 0.2 < report["overall"]["success"]["mean"] <= 1
        assert set(report["by_family"]) == {"Ascii/plain", "Ascii/polite"}
    model = next(tmp_path.glob("artifacts/runs/r/**/config.json"))
    (judged,) = typed_json("evaluate", str(model.parent), "e.yaml")["policies"].values()
    assert judged["overall"]["success"]["count"] == 16
    traced = typed_json("policies", "show", "r/2")
    assert [a["id"] for a in traced["ancestors"]] == ["r/0"]
    assert traced["evaluations"]
    assert typed_json("policies", "show", "r") == traced, "of a run the last version"
    said = typed("policies", "show", "r/2")
    assert "r/0" in said
    assert "trained on" in said
    assert "{" not in said


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_control_policy_is_trained_exported_and_judged_by_run_and_by_folder() -> None:
    small = ["train.steps=1024", "evaluation.episodes=4", "evaluation.every=null"]
    trained = typed_json("train", "control/cartpole", *small, "--run", "pole")
    assert trained["stopped"].startswith("all 1,")
    assert typed_json("policies", "export", "pole", "out")["policy"] == trained["policy"]
    reports = [
        typed_json("evaluate", *words, "--episodes", "4")["policies"]
        for words in (["pole"], [trained["policy"]], ["out"], ["out", "control/cartpole", "--policy", "random"])
    ]
    means = [next(iter(report.values()))["overall"]["reward"]["mean"] for report in reports]
    assert means == [trained["after"]["greedy"]] * 4
    assert list(reports[3]) == ["out", "random"]
    assert trained["policy"] in typed("policies", "show", trained["policy"])


def test_doctor_names_what_is_missing_and_how_to_get_it() -> None:
    found = typed_json("doctor")
    assert found["healthy"]
    assert found["cores"] >= 1
    remedies = [part["remedy"] for part in found["optional"]]
    assert all(remedies)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    unknown = {name for name in project["optional-dependencies"] if f"[{name}]" not in " ".join(remedies)}
    assert unknown == {"dev", "docs", "smol"}  # smol compiles llama.cpp: docs/engines.md names a way without
    said = typed("doctor")
    parts = {part["name"]: part["purpose"] for part in found["optional"]}
    purposes = {"bubblewrap": "sandbox", "gvisor": "sandbox", "Stockfish": "chess", "open-spiel": "board games"}
    for name, purpose in {**purposes, "PostgreSQL": "database"}.items():
        assert name in said
        assert purpose in parts[name]
    assert "[vllm]" in said or "vllm" in {p["name"] for p in found["optional"] if p["found"]}


def test_doctor_does_not_count_a_sandbox_that_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    _open_boxes.cache_clear()
    (part,) = (part for part in typed_json("doctor")["optional"] if part["name"] == "bubblewrap")
    _open_boxes.cache_clear()
    assert part["found"] is None
    assert "apt-get install bubblewrap" in part["remedy"]


def test_envs_are_listed_shown_verified_and_compared() -> None:
    assert "Math@1.2.0" in {each["id"] for each in typed_json("envs", "list")["environments"]}
    assert "algebra.linear" in typed_json("envs", "show", "Math")["families"]
    typed("evaluate", *SMALL, "--policy", "oracle")
    assert typed_json("envs", "diff", "Math")["equal"]
    assert typed_json("envs", "diff", "Math@1.2.0", "Math@1.2.0")["differences"] == []


CUSTOM = """
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.types import Message, Reward

class {name}(BaseEnvironment):
    version = "{version}"
    async def reset(self, task=None):
        task = task or self.sample_task(0)
        self.word = f"word{{task.seed % 10007}}x{{task.level}}"
        return (Message("user", f"Say {{self.word}} backwards."),)
    async def step(self, action):
        right = float(action == self.word[::-1])
        return Step((), Reward(right, {{"correctness": right}}, right), True, False, {{}})
    def oracle(self):
        return {oracle}
"""


@pytest.mark.system
@pytest.mark.slow
def test_own_environment_is_checked_evaluated_and_cannot_change_under_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    good, bad = Path("echo_good.py"), Path("echo_bad.py")
    good.write_text(CUSTOM.format(name="Echo", version="1.0.0", oracle="self.word[::-1]"))
    bad.write_text(CUSTOM.format(name="Deaf", version="1.0.0", oracle="self.word"))
    assert typed_json("envs", "check", "echo_good:Echo")["passed"]
    failed = typed_json("envs", "check", "echo_bad:Deaf", code=1)
    assert "oracle" in {check["name"] for check in failed["checks"] if not check["passed"]}
    words = ["evaluate", "environments=[{id: 'echo_good:Echo'}]", "evaluation.episodes=9", "--policy", "oracle"]
    assert typed_json(*words)["policies"]["oracle"]["overall"]["success"]["mean"] == 1.0
    good.write_text(good.read_text() + "# changed")
    refused = subprocess.run([sys.executable, "-m", "loomrl", *words], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Echo@1.0.0 is recorded with snapshot" in refused.stderr
    assert "echo_good.py changed" in refused.stderr
    assert "new version number" in refused.stderr


SHY = """
from loomrl.gym.base import EnvironmentSettings
from echo_base import Echo

class ShySettings(EnvironmentSettings):
    honest: bool = False

class Shy(Echo):
    settings_class = ShySettings
    def oracle(self):
        return super().oracle() if self.settings.honest else ""
"""


@pytest.mark.system
@pytest.mark.slow
def test_an_environment_is_checked_with_the_settings_that_it_will_be_used_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Path("echo_base.py").write_text(CUSTOM.format(name="Echo", version="1.0.0", oracle="self.word[::-1]"))
    Path("shy_envs.py").write_text(SHY)
    assert not typed_json("envs", "check", "shy_envs:Shy", code=1)["passed"]
    assert typed_json("envs", "check", "shy_envs:Shy", "honest=true")["passed"]


TEMPLATE = """
templates:
  - name: percentages
    environment: Math
    family: custom
    levels: {1: {a: [1, 9], b: [10, 90]}, 5: {a: [10, 99], b: [100, 999]}}
    parameters: {prompt: "What is {a} percent of {b}?", answer: "{a}*{b}/100"}
"""


def test_tasks_from_a_template_are_played_like_any_other() -> None:
    Path("t.yaml").write_text(TEMPLATE)
    words = ["evaluate", "templates=t.yaml", *SMALL, "--policy", "oracle", "--policy", "random"]
    policies = typed_json(*words)["policies"]
    assert policies["oracle"]["by_family"]["Math/custom"]["success"]["mean"] == 1.0
    assert policies["random"]["by_family"]["Math/custom"]["success"]["mean"] < 0.5


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (TEMPLATE.replace("{a}*{b}/100", "{a} quux"), ["'percentages', level 1", "quux", "plain notation"]),
        (TEMPLATE.replace("answer:", "anser:"), ["Did you mean 'answer'?"]),
        (TEMPLATE.replace("environment: Math", "environment: Maths"), ["'Maths'", "Did you mean 'Math'?"]),
        (TEMPLATE.replace("family: custom", "family: costum"), ["'costum'", "Did you mean 'custom'?"]),
    ],
)
def test_mistake_in_a_template_is_said_before_anything_starts(broken: str, said: list[str]) -> None:
    Path("t.yaml").write_text(broken)
    with pytest.raises(LoomError) as caught:
        typed("evaluate", "templates=t.yaml", *SMALL)
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_an_environment_in_a_file_beside_is_named_as_it_is_to_be_written() -> None:
    typed("new", "env", "my_game")
    with pytest.raises(LoomError, match=r"my_game\.py is here: write my_game:MyGameEnvironment"):
        typed("envs", "check", "my_game")


def test_code_beside_a_file_in_another_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "own_reward_beside.py").write_text("from loomrl.rewards import RewardComponent\n")
    part = "{kind: custom, entry_point: 'own_reward_beside:RewardComponent'}"
    (folder / "own.yaml").write_text(f"name: own\nrewards: {{parts: [{part}]}}\n")
    assert "own_reward_beside" in typed("show", "elsewhere/own.yaml")


def test_a_group_runs_its_own_command_without_a_word_only_if_that_needs_none() -> None:
    groups: Any = typer.main.get_command(app)
    assert groups.commands["runs"].make_context("runs", [])._protected_args == [LIST]
    assert groups.commands["gate"].make_context("gate", ["r/1"])._protected_args == [RUN]
    assert "Judge a policy by a suite" in typed("gate", code=2)
