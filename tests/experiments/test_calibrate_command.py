"""`loomrl rewards ask` and `calibrate`: from ratings on record to a map that a run's rubric names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from loomrl.config import HubConfig
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.cli import app
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.feedback import append_feedback
from tests.command_line import typed_json
from tests.feedback.support import said, served
from tests.feedback.test_calibration import honest
from tests.gym.rubric_support import NO, YES, ScriptedJudge, serve_judge

pytestmark = pytest.mark.system


@pytest.fixture
def judge() -> Iterator[ScriptedJudge]:
    with serve_judge(honest) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, judge: ScriptedJudge) -> Path:
    """An endpoint that served forty answers, people's thumbs, and an experiment with a rubric."""
    url = f"sqlite:///{tmp_path}/loom.db"
    with open_store(url) as db, open_endpoint_hub(url, "talk", HubConfig()) as hub:
        set_endpoint(db, "talk", [Arm(name="stable", policy="math-1/4")], at=1.0)
        hub.append([served(f"t{number}", "good " * (number % 11)) for number in range(40)])
        append_feedback(db, [said(f"f{n}", f"t{n}", value=float(n % 11 > 5)) for n in range(40)])
    part = judge.part("good", "kind").plain
    serving = {"kind": "serving", "name": "talk", "arms": [{"what": "m"}], "rewards": {"parts": [part]}}
    (tmp_path / "talk.yaml").write_text(yaml.safe_dump(serving))
    training = {"name": "t", "rewards": {"parts": [part, part | {"name": "other", "votes": 3}]}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(training))
    return tmp_path


def call(folder: Path, command: str, *words: str, experiment: str = "talk.yaml", name: str = "talk") -> Result:
    given = [command, name, "--experiment", str(folder / experiment), "--store", f"sqlite:///{folder}/loom.db"]
    return CliRunner().invoke(app, ["rewards", *given, *words], catch_exceptions=False)


def test_ratings_on_record_become_a_map_and_rewards_are_what_it_says(folder: Path) -> None:
    out = folder / "map.json"
    named = f"rewards.parts.0.calibration={out}"  # as an experiment that waits for its first map, or has an old one
    done = call(folder, "calibrate", named, "--out", str(out), "--json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["file"] == str(out)
    assert (told["report"]["ratings"], told["report"]["criteria"]["kind"]["measure"]) == (40, "rank")
    made = json.loads(out.read_text())
    assert made["people"][0] < 0.1
    assert made["people"][-1] > 0.9
    call(folder, "run", "--once", f"parts.0.calibration={out}")
    at = ("--store", f"sqlite:///{folder}/loom.db")
    (reward,) = typed_json("rewards", "show", "t5", *at)["rewards"]
    part = reward["content"]["components"]["rubric"]
    assert part["evidence"]["raw"] == 0.5
    assert part["value"] == pytest.approx(made["people"][made["judge"].index(0.5)], abs=1e-6)


def test_the_table_names_everything_and_without_agreement_there_is_no_map(folder: Path, judge: ScriptedJudge) -> None:
    done = call(folder, "calibrate", "--out", str(folder / "map.json"))
    for part in ("rank correlation with people", "kind: rank", "goes with length, more by", "squared error of the map"):
        assert part in done.stdout
    assert f"Written: {folder}/map.json" in done.stdout
    judge.rule = lambda asked, criterion: YES if honest(asked, criterion) == NO else NO
    refused = call(folder, "calibrate", "--out", str(folder / "none.json"))
    assert refused.exit_code == 1
    assert "No map: it is not proved" in refused.stdout
    assert not (folder / "none.json").exists()


def test_people_are_asked_in_the_inbox_and_too_few_answers_are_refused(folder: Path) -> None:
    assert json.loads(call(folder, "ask", "--count", "3", "--json").stdout) == {"trajectories": 3, "questions": 6}
    questions = typed_json("feedback", "questions", "--store", f"sqlite:///{folder}/loom.db")["questions"]
    asked = [each["choices"] for each in questions if "The answer is kind." in json.dumps(each)]
    assert asked == [["no", "partly", "yes"]] * 3
    with pytest.raises(DataError, match="people rated 0 trajectories"):
        call(folder, "calibrate", "--by", "inbox")


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"several judges: say which with --part rubric\|other"):
        call(folder, "calibrate", experiment="train.yaml")
    with pytest.raises(ConfigError, match=r"part='othr' is unknown.*Did you mean 'other'"):
        call(folder, "calibrate", "--part", "othr", experiment="train.yaml")
    done = call(folder, "calibrate", "--part", "other", "--out", str(folder / "m.json"), experiment="train.yaml")
    assert done.exit_code == 0
    (folder / "bare.yaml").write_text("name: bare\n")
    with pytest.raises(ConfigError, match="has no rubric and no classifier"):
        call(folder, "calibrate", experiment="bare.yaml")
    with pytest.raises(ConfigError, match=r"name='tolk' is unknown.*Did you mean 'talk'"):
        call(folder, "ask", name="tolk")
