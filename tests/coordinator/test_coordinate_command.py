"""`loomrl loop` as it is typed, and its experiment through every door."""

import json
from pathlib import Path

import pytest

from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.cli import app
from loomrl.experiments.shipped import resolve_any, resolve_loop
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint
from tests.command_line import typed, typed_json

TINY = "loop/tiny"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a LoomDB whose endpoint serves a model's folder."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/loom.db"
    monkeypatch.setenv("LOOMRL_STORE", url)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with open_store(url) as db:
        set_endpoint(db, "policy", [Arm(name="stable", policy=str(tmp_path / "model"))], at=1.0)
    return url


def test_jobs_are_asked_for_listed_shown_and_cancelled(here: str) -> None:
    loop = (TINY, f"store_url={here}")
    asked = typed_json("loop", "request", *loop, "--why", "new prompts", "--who", "ann")
    assert (asked["state"], asked["priority"], asked["reason"]) == ("queued", "high", "new prompts")
    urgent = typed_json("loop", "request", *loop, "--priority", "urgent")
    listed = typed_json("loop", "list")["jobs"]
    assert [each["id"] for each in listed] == [urgent["id"], asked["id"]]
    ended = typed_json("loop", "cancel", asked["id"][:13], "--who", "bob", "--why", "no")
    assert (ended["state"], ended["reason"]) == ("cancelled", "cancelled by bob (no)")
    log = typed_json("loop", "show", asked["id"])["log"]
    assert [row["state"] for row in log] == ["queued", "cancelled"]
    assert "cancelled by bob" in typed("loop", "list")
    with pytest.raises(LoomError, match="is over"):
        typed_json("loop", "cancel", asked["id"])
    with pytest.raises(ConfigError, match="Known: high, low, normal, urgent"):
        typed_json("loop", "request", *loop, "--priority", "soon")


def test_nothing_to_do_ends_at_once_and_an_empty_data_set_fails_by_name_without_a_second_try(
    here: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = (f"store_url={here}", f"artifact_url={tmp_path}/artifacts")
    loop = (TINY, *places, "data.suite=null", "triggers.schedule=null")
    app(["loop", *loop, "--once"], standalone_mode=False)
    assert "nothing more to do now; trajectories collected so far: 0" in capsys.readouterr().err
    assert typed_json("loop", "list")["jobs"] == []
    asked = typed_json("loop", "request", *loop)
    typed("loop", *loop, "--once")
    (job,) = typed_json("loop", "list")["jobs"]
    assert (job["id"], job["state"], job["fault"]["code"]) == (asked["id"], "failed", "DATA")
    assert "nothing is left to train on: of 0 trajectories" in job["reason"]
    told = typed_json("loop", "report", *loop, "--job", job["id"])
    assert (told["kind"], told["outcome"], told["error"]["code"]) == ("job", "failed", "DATA")
    reports = tmp_path / "artifacts" / "reports" / "policy"
    assert (reports / f"job-{job['id']}.md").read_text().startswith("# Training")
    assert json.loads((reports / f"job-{job['id']}.json").read_text())["job"] == job["id"]
    now = typed_json("loop", "report", *loop)
    assert (now["kind"], now["jobs"]["failed"]) == ("daily", 1)
    assert any("job_failed: DATA" in issue for issue in now["issues"])
    assert "# policy, " in typed("loop", "report", *loop)
    with pytest.raises(ConfigError, match="there is no report '2020-01-01'"):
        typed_json("loop", "report", *loop, "--day", "2020-01-01")


def test_endpoint_that_is_not_there_is_named(here: str) -> None:
    with pytest.raises(LoomError, match="there is no endpoint 'nobody'"):
        typed("loop", TINY, f"store_url={here}", "endpoint=nobody", "--once")


def test_loop_comes_through_every_door_as_the_same_tree(tmp_path: Path) -> None:
    shipped = resolve_loop([TINY])
    assert shipped.training.plain["data"]["dataset"] == shipped.endpoint == "policy"
    assert shipped.data.endpoints == ("policy",)
    assert (shipped.data.suite, shipped.data.max_turns, shipped.data.min_reward) == ("loop_tiny", 50, None)
    changed = resolve_loop([TINY, "training.algorithm.optimizer.learning_rate=1e-5", "pace_s=0.1"])
    python = shipped.override({"training.algorithm.optimizer.learning_rate": 1e-5, "pace_s": 0.1})
    assert changed == python
    (tmp_path / "again.yaml").write_text(dump(changed))
    again = resolve_any([str(tmp_path / "again.yaml")])
    assert (again, again.sha256) == (changed, changed.sha256)
    assert changed.sha256 != shipped.sha256


def test_training_of_a_loop_is_named_with_changes_over_it(tmp_path: Path) -> None:
    (tmp_path / "kto.yaml").write_text("name: kto\nalgorithm: {kind: kto, beta: 0.3}\ndata: {dataset: x, batch: 8}\n")
    (tmp_path / "loop.yaml").write_text(
        f"kind: loop\nname: mine\nendpoint: e\nstore_url: sqlite:///l.db\ntraining: {tmp_path}/kto.yaml\n"
    )
    named = resolve_loop([str(tmp_path / "loop.yaml")])
    assert (named.training.name, named.training.store_url) == ("mine", "sqlite:///l.db")
    assert named.training.plain["algorithm"]["beta"] == 0.3
    assert {"dataset": "e", "batch": 8, "epochs": 1}.items() <= named.training.plain["data"].items()
    over = resolve_loop([str(tmp_path / "loop.yaml"), f"training.base={tmp_path}/kto.yaml", "training.data.batch=9"])
    assert (over.training.plain["data"]["batch"], over.training.plain["algorithm"]["beta"]) == (9, 0.3)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("triggers.schedule='0 25 * * *'", "is no cron expression"),
        ("data.parent=r/1", "data.parent has no effect"),
        ("data.since=2026-01-01", "say days=30 instead"),
        ("trainings=x", "Did you mean"),
        ("training=nowhere", "name='nowhere' is unknown"),
        ("place.kind=moon", "kind"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_loop([TINY, word])


def test_loop_is_no_training_and_a_training_no_loop() -> None:
    with pytest.raises(ConfigError, match="is a loop, whose trainings `loomrl loop` starts"):
        typed("train", TINY)
    with pytest.raises(ConfigError, match=r"is of kind language\. Name one of kind loop"):
        resolve_loop(["math"])
