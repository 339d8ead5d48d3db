"""A league in a training run: opponents that repeat exactly, checkpoints that stay, and failures that are no games."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from loomrl.algorithms.league import standings
from loomrl.artifacts import open_artifacts
from loomrl.experiments.cli import app
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory
from tests.algorithms.language_support import ENVIRONMENTS, RAY, build, same, stored, weights

pytestmark = RAY
LEAGUE = {"every": 1, "members": 2, "present_share": 0.3, "scripted_share": 0.1}
DUEL = {
    "environments": [{"id": f"{ENVIRONMENTS}DuelEnvironment", "settings": {"opponent": LEAGUE}}],
    "rollout.groups_per_update": 6,
    "rollout.group_size": 4,
    "train.checkpoint_every": 1,
}


class Ran(NamedTuple):
    weights: dict[str, Any]
    league: dict[str, Any]
    metrics: list[dict[str, float]]
    cached: list[bool]
    """For each past version's engine and update, whether its cache took memory meanwhile."""


def run(folder: Path, updates: int, *, unsaved: int = 0, **changes: Any) -> Ran:
    """A run in this folder with `updates` updates, the last ones without a checkpoint of what they made."""
    algo = build(folder, "ppo", **DUEL, **changes)
    told: list[dict[str, float]] = []
    algo.listen = lambda done, metrics: told.append(dict(metrics))
    cached: list[bool] = []
    runner = algo.env_runner_group.local_env_runner
    past = () if runner is None else runner._past_engines
    update = algo._update

    def watched(*args: Any, **words: Any) -> Any:
        cached.extend(bool(engine._network.kept._layers) for engine in past)
        return update(*args, **words)

    algo._update = watched
    while algo.done < updates:
        if algo.done == updates - unsaved:
            algo._checkpoint = lambda: None
        algo.train()
    found = Ran(weights(algo), algo.source.league.state_dict(), told, cached)
    algo.stop()
    return found


def attempts(folder: Path) -> dict[str, Trajectory]:
    return {attempt.id: attempt for attempt in stored(folder)}


def checkpoints(folder: Path) -> list[str]:
    return [name.rpartition("/")[2] for name in open_artifacts(str(folder / "artifacts")).list_names("runs/r")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> tuple[Path, Ran]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, 6)


def test_run_that_was_resumed_meets_the_opponents_of_one_that_never_stopped(
    whole: tuple[Path, Ran], tmp_path: Path
) -> None:
    folder, learnt = whole
    by_turns = {"placement.colocated": True}
    run(tmp_path, 4, unsaved=1, **by_turns)
    again = run(tmp_path, 6, **by_turns)
    assert any(learnt.cached)
    assert again.cached
    assert not any(again.cached)
    assert same(learnt.weights, again.weights)
    assert _without_urls(again.league) == _without_urls(learnt.league)
    mine = attempts(folder)
    theirs = attempts(tmp_path)
    assert {id: _met(attempt) for id, attempt in mine.items()} == {id: _met(attempt) for id, attempt in theirs.items()}
    assert all(mine[id].reward == theirs[id].reward for id in mine)


def test_all_attempts_of_a_group_meet_one_opponent_and_all_kinds_are_met(whole: tuple[Path, Ran]) -> None:
    folder, learnt = whole
    met: dict[str, set[object]] = {}
    for attempt in attempts(folder).values():
        met.setdefault(attempt.group, set()).add(_met(attempt))
    assert all(len(each) == 1 for each in met.values())
    kinds = {kind for each in met.values() for kind, _ in each}
    assert kinds == {"past", "present", "scripted"}
    versions = {version for each in met.values() for kind, version in each if kind == "past"}
    assert len(versions) > 2  # one more than the pool has at any time
    assert learnt.metrics[-1][Metric.LEAGUE_MEMBERS] == 2
    assert learnt.metrics[-1][Metric.LEAGUE_POINTS.of("past")] >= 0


def test_versions_in_the_pool_keep_their_checkpoints_and_those_that_left_lose_them(whole: tuple[Path, Ran]) -> None:
    folder, learnt = whole
    kept = {f"{version:06d}" for version, *_ in learnt.league["members"]}
    left = {f"{version:06d}" for version in learnt.league["left"]}
    assert len(kept) == 2
    assert kept | left <= {*checkpoints(folder)}
    best = {*checkpoints(folder)} - kept - left - {"000000", "000006"}
    assert len(best) <= 1  # the best version is kept in any case


def test_ratings_of_a_run_are_told_with_all_results(whole: tuple[Path, Ran]) -> None:
    told = standings(whole[1].league)
    players = {each["player"]: each for each in told["ratings"]}
    assert {"0", "1", "6", "present", "scripted"} <= players.keys()
    assert players["0"]["rating"] == 0
    assert all(each["low"] <= each["rating"] <= each["high"] for each in told["ratings"])
    assert sum(each["games"] for each in told["results"]) == len(attempts(whole[0]))
    assert sum(each["member"] for each in told["ratings"]) == 2


def test_a_version_is_shown_with_the_ratings_and_results_of_its_league(whole: tuple[Path, Ran]) -> None:
    store = f"sqlite:///{whole[0]}/loom.db"
    told = CliRunner().invoke(app, ["policies", "show", "r", "--store", store, "--json"], catch_exceptions=False)
    assert json.loads(told.stdout)["league"]["ratings"]
    shown = CliRunner().invoke(app, ["policies", "show", "r/6", "--store", store], catch_exceptions=False)
    assert "Ratings as of r/6" in shown.stdout
    assert "scripted" in shown.stdout


def test_a_version_that_is_gone_fails_its_games_and_wins_none(tmp_path: Path) -> None:
    always_past = {f"environments.0.settings.opponent.{share}_share": 0.0 for share in ("present", "scripted")}
    mixed = {**always_past, "environments.0.settings.opponent.present_share": 0.5}
    mixed |= {"environments.0.settings.opponent.every": 2}  # so that the first version is the only one in the pool
    before = run(tmp_path, 1, **mixed).league
    artifacts = open_artifacts(str(tmp_path / "artifacts"))
    artifacts.delete("runs/r/000000")
    after = run(tmp_path, 2, **mixed)
    assert after.metrics[-1][Metric.FAILURES.of("environment")] > 0
    failed = [attempt for attempt in attempts(tmp_path).values() if attempt.failure is not None]
    assert {_met(attempt) for attempt in failed} == {("past", 0)}
    assert all("opponent: " in attempt.failure.message for attempt in failed if attempt.failure is not None)
    games = sum(count for *_, count, _, _, _ in after.league["games"])
    assert games == sum(count for *_, count, _, _, _ in before["games"]) + 24 - len(failed)


def _met(attempt: Trajectory) -> tuple[str, int | None]:
    opponent = attempt.task.parameters["opponent"]
    return opponent["kind"], opponent.get("version")


def _without_urls(league: dict[str, Any]) -> dict[str, Any]:
    """A version that was made again after a crash has a URL of its own."""
    return {**league, "members": [[version, points] for version, _, points in league["members"]]}


@pytest.mark.slow
def test_opponents_are_met_in_remote_runners_before_and_after_a_stop_where_rollouts_and_learning_overlap(
    tmp_path: Path,
) -> None:
    overlap = {"rollout.runners": 1, "hub.max_staleness": 1, "environments.0.settings.opponent.every": 2}
    for updates in (3, 6):
        ran = run(tmp_path, updates, unsaved=int(updates == 3), **overlap)
    assert len(ran.league["members"]) == 2
    assert ran.league["members"][-1][0] == 6
    played = attempts(tmp_path)
    assert all(attempt.failure is None for attempt in played.values())
    met: dict[str, set[object]] = {}
    for attempt in played.values():
        met.setdefault(attempt.group, set()).add(_met(attempt))
    assert all(len(each) == 1 for each in met.values())
    assert {kind for each in met.values() for kind, _ in each} >= {"past", "present"}
