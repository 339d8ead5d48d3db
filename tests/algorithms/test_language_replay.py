"""Experience replay of token policies: what is replayed, its age, what it teaches, and that it repeats exactly."""

import functools
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.algorithms.language import learner as learning
from loomrl.algorithms.language.algorithm import Language
from loomrl.algorithms.language.group_replay import GroupReplay, replay_metrics
from loomrl.algorithms.language.learner import ADVANTAGE
from loomrl.algorithms.language.lesson import lesson_of
from loomrl.algorithms.language.sample import AGE, ENGINE
from loomrl.config import GRPO, HubConfig, ReplayConfig
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.hub import EVERYTHING, Hub, open_hub
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Reward, Trajectory
from tests.algorithms.attempts import HANG, attempt, turn
from tests.algorithms.language_support import (
    QUIET,
    build,
    experiment,
    finish,
    learn,
    same,
    timeless,
    train,
    weights,
)
from tests.algorithms.test_language_stream import Simulated, streaming, update

pytestmark = QUIET
with_ray = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster")]

REPLAY = {"rollout.replay": {"groups": 8, "max_age": 2}}
# -- what is replayed -------------------------------------------------------------------------------------------------


def played(id: str, reward: float, version: int, failure: Failure | None = None) -> Trajectory:
    group = id.rpartition("/")[0]
    own = {"group": group, "group_size": 3, "first_version": version, "last_version": version, "run": "r"}
    return attempt(id, [turn(1, 3, reward, version)], failure=failure, **own)


def a_group(name: str, *, version: int, rewards: Sequence[float] = (0.0, 1.0)) -> Group:
    """One whose last attempt failed."""
    usable = [played(f"{name}/{sibling}", reward, version) for sibling, reward in enumerate(rewards)]
    return Group(name, (*usable, played(f"{name}/{len(rewards)}", 0.0, version, HANG)))


@contextmanager
def replayed_from(folder: Path, groups: int = 4, max_age: int = 2) -> Iterator[tuple[Hub, GroupReplay]]:
    with open_hub(f"sqlite:///{folder}/hub.db", HubConfig(), groups_per_update=100) as hub:
        yield hub, GroupReplay(ReplayConfig(groups=groups, max_age=max_age), hub, 7, "sqlite:///none.db")


def observe(hub: Hub, replay: GroupReplay, version: int, groups: Sequence[Group]) -> None:
    hub.append([attempt for group in groups for attempt in group.trajectories])
    replay.observe(groups, version)


def test_a_replayed_group_is_what_was_learnt_from_as_it_is_on_record(tmp_path: Path) -> None:
    with replayed_from(tmp_path) as (hub, replay):
        groups = [a_group(f"r/0/{index}", version=0) for index in range(6)]
        assert replay.draw(0) == []
        observe(hub, replay, 0, groups)
        drawn = replay.draw(1)
        assert len({group.id for group in drawn}) == 4
        by_name = {group.id: group for group in groups}
        assert all(group.trajectories == by_name[group.id].usable for group in drawn)
        assert [group.id for group in replay.draw(1)] == [group.id for group in drawn]
        assert [group.id for group in replay.draw(2)] != [group.id for group in drawn]


def test_where_groups_without_signal_are_dropped_replayed_ones_are_too_and_are_not_counted_again() -> None:
    fresh = [a_group("r/1/0", version=1), a_group("r/1/1", version=1, rewards=(1.0, 1.0))]
    again = [a_group("r/0/0", version=0), a_group("r/0/1", version=0, rewards=(0.0, 0.0))]
    made = lesson_of(GRPO(dynamic_sampling=True), fresh, version=1, again=again)
    assert [*dict.fromkeys(made.groups)] == ["r/1/0", "r/0/0"]
    assert made.dropped == 1
    assert {*lesson_of(GRPO(), fresh, version=1, again=again).groups} == {"r/0/0", "r/0/1", "r/1/0", "r/1/1"}


def test_a_group_of_which_an_attempt_was_deleted_is_replayed_no_more(tmp_path: Path) -> None:
    with replayed_from(tmp_path, max_age=9) as (hub, replay):
        observe(hub, replay, 0, [a_group("r/0/0", version=0), a_group("r/0/1", version=0)])
        hub.delete(["r/0/0/1"])
        assert [group.id for group in replay.draw(1)] == ["r/0/1"]
        assert replay.state_dict().keys() == {"r/0/1"}


@settings(max_examples=8)
@given(
    max_age=st.integers(1, 4),
    asked=st.integers(1, 12),
    late=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=6, max_size=6),
)
def test_no_replayed_token_is_older_than_the_bound_and_a_resumed_run_draws_the_same(
    tmp_path_factory: pytest.TempPathFactory, max_age: int, asked: int, late: list[list[int]]
) -> None:
    """`late`: by update, the age at which each of its groups is first learnt from."""

    def fresh(version: int, ages: list[int]) -> list[Group]:
        return [a_group(f"r/{version}/{i}", version=version - age) for i, age in enumerate(ages)]

    with replayed_from(tmp_path_factory.mktemp("replay"), asked, max_age) as (hub, replay):
        kept: dict[str, Any] = {}
        drawn: list[list[str]] = []
        for version, ages in enumerate(late):
            if version == 3:
                kept = json.loads(json.dumps(replay.state_dict()))
            again = replay.draw(version)
            drawn.append([group.id for group in again])
            assert len(again) <= asked
            assert all(int(group.id.split("/")[1]) < version for group in again)
            groups = fresh(version, ages)
            found = replay_metrics(groups, again, version)
            assert found.get(Metric.REPLAY_AGE_MAX, 0) <= max_age
            assert found[Metric.REPLAY_SHARE] == pytest.approx(len(again) / (len(again) + len(groups)))
            observe(hub, replay, version, groups)
        resumed = GroupReplay(replay.settings, hub, 7, "sqlite:///none.db")
        resumed.load_state_dict(kept)
        for version in range(3, len(late)):
            assert [group.id for group in resumed.draw(version)] == drawn[version]
            resumed.observe(fresh(version, late[version]), version)


@dataclass
class Unequal(Simulated):
    """Siblings earn different rewards."""

    def _played(self, *entry: Any) -> Trajectory:
        played = super()._played(*entry)
        reward = Reward((zlib.crc32(played.id.encode()) % 7) / 7)
        return replace(played, reward=reward, turns=(replace(played.turns[0], reward=reward),))


def test_where_groups_begin_before_their_turn_updates_are_made_again_with_the_same_replayed_groups(
    tmp_path: Path,
) -> None:
    changes = {"train.checkpoint_every": 10, "rollout.replay": {"groups": 3, "max_age": 3}}

    def made(one: Any, players: Simulated) -> list[str]:
        again = one.replay.draw(one.done)
        fresh = update(one, players, checkpoint=False)
        assert replay_metrics(fresh, again, one.done - 1).get(Metric.REPLAY_AGE_MAX, 0) <= 3
        assert not {group.id for group in again} & {group.id for group in fresh}
        return [group.id for group in (*fresh, *again)]

    players = Unequal(lambda plan: 1 + zlib.crc32(plan.attempt.id.encode()) % 5)
    with streaming(tmp_path, players, **changes) as one:
        for _ in range(3):
            made(one, players)
        state = json.loads(json.dumps(one.state_dict()))
        whole = [made(one, players) for _ in range(3)]
    again = Unequal(lambda plan: 1, version=3)
    with streaming(tmp_path, again, **changes) as one:
        one.load_state_dict(state)
        repeated = []
        for version in range(3, 6):
            again.version = version
            repeated.append(made(one, again))
        assert repeated == whole
        assert all(len(names) > 4 for names in whole)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("dpo", {}, r"rollout\.replay with algorithm\.kind=dpo.*leave it out"),
        ("weave", {}, r"algorithm\.kind=weave, which trusts critics"),
        ("grpo", {"algorithm.importance_cap": None}, r"importance_cap is null.*set it to 2\.0"),
        ("grpo", {"algorithm.kl.coefficient": 0.1}, r"kl\.estimator=k3 and place=loss.*Set estimator=k2"),
        ("grpo", {"rollout.replay.max_age": 1, "rollout.publish_every": 2, "hub.max_staleness": 1}, "set max_age=2"),
        (
            "grpo",
            {"rollout.replay.max_age": 3, "rollout.runners": 1, "hub.max_staleness": 3},
            r"max_age=3, but hub\.max_staleness=3.*set max_age=4",
        ),
        ("grpo", {"rollout.replay.groups": 17}, r"replay\.groups=17: 2 updates \(max_age\) of 8 .* are 16"),
        (
            "grpo",
            {"data": {"dataset": "x"}, "algorithm.model.build": None},
            r"rollout\.replay has no effect with data\.dataset=x",
        ),
    ],
)
def test_what_replay_has_no_use_for_or_contradicts_is_refused_by_name(
    tmp_path: Path, kind: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        experiment(tmp_path, kind, **{**REPLAY, **changes})


def test_an_algorithm_of_ones_own_is_asked_the_same(tmp_path: Path) -> None:
    own = {"kind": "custom", "entry_point": "tests.algorithms.own_algorithm:BestConfig"}
    given = {"settings": {"importance_cap": None}}
    config = open_algorithm(experiment(tmp_path, **REPLAY, algorithm=own | given))
    with pytest.raises(ConfigError, match="importance_cap is null"):
        config.validate()
    open_algorithm(experiment(tmp_path, **REPLAY, algorithm=own)).validate()


# -- what it teaches, and that it repeats -----------------------------------------------------------------------------


class TestRuns:
    pytestmark = with_ray

    def test_replayed_tokens_teach_with_their_recorded_log_probabilities_and_their_own_groups_baseline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taught: list[Any] = []
        columns_of = learning.with_columns

        def seen(samples: Any, columns: Any) -> Any:
            taught.append(columns_of(samples, columns))
            return taught[-1]

        monkeypatch.setattr(learning, "with_columns", seen)
        algo = build(tmp_path, **REPLAY, **{"algorithm.optimizer.minibatches": 2})
        history = train(algo, 4)
        record = {t.id: t for _, t in algo.source.hub.replay(selection=EVERYTHING)}
        algo.stop()
        assert [line[Metric.REPLAY_SHARE] > 0 for line in history] == [False, True, True, True]
        assert max(line.get(Metric.REPLAY_AGE_MAX, 0) for line in history) == 2
        assert {line[Metric.STALENESS_MAX] for line in history} == {0}
        by_ids = {t.tokens.ids_T.tobytes(): t for t in record.values() if t.tokens is not None}
        last = [(sample, by_ids[sample.ids_T.tobytes()]) for sample in taught[-1]]
        assert len(last) == 16 * 8
        assert {played.first_version for _, played in last} == {3, 2, 1}
        for sample, played in last:
            assert played.tokens is not None
            assert (sample.columns[AGE][sample.mask_T] == 3 - played.first_version).all()
            np.testing.assert_array_equal(sample.columns[ENGINE], played.tokens.logprobs_T)
            rewards = np.array([t.reward.total for t in record.values() if t.group == played.group])
            expected = (played.reward.total - rewards.mean()) / rewards.std()
            np.testing.assert_allclose(sample.columns[ADVANTAGE][sample.mask_T], expected, atol=1e-6)

    @pytest.mark.parametrize("kind", ["grpo", "ppo"])
    def test_resumed_run_equals_one_that_never_stopped_and_nothing_is_fresh_twice(
        self, tmp_path: Path, kind: str
    ) -> None:
        changes = {**REPLAY, "rollout.replay.max_age": 4, "rollout.groups_per_update": 4, "train.updates": 5}
        whole, parts = (functools.partial(build, tmp_path / name, kind, **changes) for name in ("whole", "parts"))
        history = train(algo := whole())
        finish(parts(), 3)  # of which the checkpoint has two
        rest = train(again := parts())
        assert same(weights(algo), weights(again))
        assert [timeless(line) for line in history[2:]] == [timeless(line) for line in rest]
        stats = again.source.hub.stats().environments["Ascii"]
        assert (stats.acked, stats.trajectories) == (5 * 4, 5 * 32)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["ppo", "grpo", "rloo", "reinforce"])
    def test_every_policy_gradient_learns_with_replay(self, tmp_path: Path, kind: str) -> None:
        history = learn(build(tmp_path, kind, **REPLAY, **{"train.updates": 14}))
        assert all(line[Metric.REPLAY_AGE_MAX] <= 2 for line in history[1:])

    @pytest.mark.slow
    def test_a_restored_checkpoint_has_a_record_of_its_own(self, tmp_path: Path, caplog: Any) -> None:
        algo = build(tmp_path, **REPLAY)
        train(algo, 2)
        algo.save_to_path(str(tmp_path / "checkpoint"))
        algo.stop()
        restored = Language.from_checkpoint(str(tmp_path / "checkpoint"))
        shares = [line[Metric.REPLAY_SHARE] for line in train(restored, 2)]
        restored.stop()
        assert shares[0] == 0 < shares[1]
        assert "deleted" not in caplog.text
