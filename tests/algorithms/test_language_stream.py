"""Groups that are trained as they complete: what begins when, what is given up, what a crash leaves."""

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.algorithms.language.collector import Collector, TurnCollector
from loomrl.algorithms.language.measure import staleness
from loomrl.algorithms.language.stream import StreamCollector
from loomrl.algorithms.timing import Phases
from loomrl.config import Experiment, LanguagePolicy
from loomrl.errors import HubError, RunTaken
from loomrl.gym.episode import Plan, failure_trajectory
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.hub import EVERYTHING, open_hub
from loomrl.run.record import begin_run
from loomrl.store import open_store
from loomrl.store.notes import Notes
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Message, Reward, Task, Tokens, Trajectory, Turn
from tests.algorithms.attempts import attempt
from tests.algorithms.language_support import ENVIRONMENTS, experiment
from tests.gym.rank_support import RankingJudge
from tests.gym.rubric_support import serve_judge

GROUPS = 4
SIBLINGS = 2
Play = Callable[[Sequence[Plan]], Iterable[Trajectory]]
RAISED = Failure("environment", "RuntimeError", "no mood for this")


@dataclass
class Simulated:
    """Plays without a model: an attempt takes as many looks as `lasts` says, and samples with the newest version."""

    lasts: Callable[[Plan], int]
    fails: Callable[[Plan], bool] = lambda plan: False
    says: Callable[[Plan], str] = lambda plan: "x"
    leaves: bool = False
    """True if every attempt leaves a memory."""
    version: int = 0
    open: dict[str, list[Any]] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    most: int = 0

    def start(self, plans: Sequence[Plan]) -> None:
        for plan in plans:
            assert plan.attempt.id not in self.open
            self.started.append(plan.attempt.id)
            self.open[plan.attempt.id] = [plan, self.lasts(plan), [self.version]]
        self.most = max(self.most, len({plan.attempt.group for plan, _, _ in self.open.values()}))

    def drop(self, ids: Collection[str]) -> None:
        for id in ids:
            self.open.pop(id, None)

    def take_finished(self) -> list[Trajectory]:
        for entry in self.open.values():
            entry[1] -= 1
            entry[2].append(self.version)
        done = [id for id, (_, left, _) in self.open.items() if left <= 0]
        return [self._played(*self.open.pop(id)) for id in done]

    def _played(self, plan: Plan, _: int, versions: list[int]) -> Trajectory:
        if self.fails(plan):
            return failure_trajectory(plan.attempt, RAISED)
        count = len(versions)
        tokens = Tokens.of(range(count + 1), [False, *[True] * count], [0.0] * (count + 1), [-1, *versions])
        turn = Turn((Message("user", "?"),), self.says(plan), Reward(1.0, {}, 1.0), tokens)
        asked = plan.attempt
        return attempt(
            asked.id,
            [turn],
            task=asked.task,
            group=asked.group,
            group_size=asked.group_size,
            first_version=min(versions),
            last_version=max(versions),
            run=asked.run,
            extra={"memory": {"left by": asked.id}} if self.leaves else {},
        )


S = TypeVar("S", bound=Collector)


@contextmanager
def opened(folder: Path, kind: type[S], own: dict[str, Any], **changes: Any) -> Iterator[S]:
    """A source over a hub and a LoomDB in this folder; opened again, it is a process that comes after a crash."""
    given: Experiment = experiment(
        folder,
        **{
            "rollout": {"runners": 1, "groups_per_update": GROUPS, "group_size": SIBLINGS},
            "hub.max_staleness": 1,
            "train.updates": 1000,
            **changes,
        },
    )
    room = GROUPS * given.train.checkpoint_every
    with (
        open_store(given.store_url) as db,
        open_hub(f"sqlite:///{folder}/hub.db", given.hub, groups_per_update=room) as hub,
    ):
        yield kind.of(given, "r", hub, Notes(db), open_task_mixture(given, db), **own)


def streaming(folder: Path, players: Simulated, **changes: Any) -> AbstractContextManager[StreamCollector]:
    """A source of groups that these players play in the background."""
    return opened(folder, StreamCollector, {"players": players}, **changes)


def in_turns(folder: Path, play: Play, **changes: Any) -> AbstractContextManager[TurnCollector]:
    """A source of groups that `play` plays while the learner waits."""
    return opened(folder, TurnCollector, {"play": play}, **changes)


def play(plans: Sequence[Plan]) -> list[Trajectory]:
    """All plans at once."""
    players = Simulated(lambda plan: 1, version=plans[0].attempt.version if plans else 0)
    players.start(plans)
    return players.take_finished()


def update(one: StreamCollector, players: Simulated, *, learns_for: int = 0, checkpoint: bool = True) -> list[Group]:
    """One update, during which the players go on, and a checkpoint."""
    policy = LanguagePolicy(path="", version=one.done)
    groups, _ = one.collect(policy, Phases())
    for _ in range(learns_for):
        for entry in players.open.values():
            entry[1] -= 1
    one.advance(groups)
    players.version = one.done
    if checkpoint:
        for lease in one.leases:
            one.hub.ack(lease, version=one.done)
        one.leases.clear()
    return groups


def ids(groups: Sequence[Group]) -> list[str]:
    return [attempt.id for group in groups for attempt in group.trajectories]


@settings(max_examples=5)
@given(bound=st.integers(1, 3), seed=st.integers(0, 99), longest=st.integers(1, 30))
def test_no_token_is_older_than_promised_and_no_more_begins_than_can_be_trained(
    tmp_path_factory: pytest.TempPathFactory, bound: int, seed: int, longest: int
) -> None:
    rng = random.Random(seed)
    players = Simulated(lambda plan: rng.randint(1, longest))
    with streaming(tmp_path_factory.mktemp("collector"), players, **{"hub.max_staleness": bound}) as one:
        trained: list[str] = []
        for _ in range(8):
            groups = update(one, players, learns_for=rng.randint(0, 10))
            assert staleness(groups, one.done - 1)[Metric.STALENESS_MAX] <= bound
            trained += ids(groups)
        assert len(trained) == len(set(trained)) == 8 * GROUPS * SIBLINGS
        assert players.most <= GROUPS * (bound + 1)


@pytest.mark.parametrize("bound", [1, 3])
def test_nothing_is_thrown_away_where_all_are_equally_slow(tmp_path: Path, bound: int) -> None:
    players = Simulated(lambda plan: 6)
    with streaming(tmp_path, players, **{"hub.max_staleness": bound}) as one:
        oldest = [staleness(update(one, players, learns_for=3), one.done - 1) for _ in range(8)]
        assert max(each[Metric.STALENESS_MAX] for each in oldest) == bound
        assert sum(one.causes().values()) == 0


def test_slow_group_delays_only_itself_and_is_given_up_when_it_is_too_old(tmp_path: Path) -> None:
    players = Simulated(lambda plan: 10_000 if plan.attempt.group == "r/1" else 1)
    with streaming(tmp_path, players) as one:
        trained = [id for _ in range(6) for id in ids(update(one, players))]
        assert len(trained) == 6 * GROUPS * SIBLINGS
        assert not any(id.startswith("r/1/") for id in trained)
        assert not any(id.startswith("r/1/") for id in players.open)
        failed = [t for _, t in one.hub.replay(selection=EVERYTHING) if t.failure is not None]
        assert {(t.id, t.failure.kind) for t in failed if t.failure} == {("r/1/0", "Late"), ("r/1/1", "Late")}
        assert one.causes() == {"quorum": 1}


@pytest.mark.system
def test_a_group_is_ranked_once_when_its_last_attempt_has_come_and_not_if_one_stays_away(tmp_path: Path) -> None:
    def lasts(plan: Plan) -> int:
        return 10_000 if plan.attempt.id == "r/1/1" else 1 + 5 * int(plan.attempt.id[-1])

    players = Simulated(lasts, says=lambda plan: "x" * (1 + int(plan.attempt.id[-1])))
    with serve_judge(lambda text, place: len(text), RankingJudge) as judge:
        parts = {"rewards.parts": [judge.part().plain]}
        with streaming(tmp_path, players, **parts) as one:
            groups = [group for _ in range(4) for group in update(one, players)]
            failed = {t.id: t.failure for _, t in one.hub.replay(selection=EVERYTHING) if t.failure is not None}
        assert {len(asked.attempts) for asked in judge.asked} == {2}
    ranks = [[one.reward.parts["rank"] for one in group.trajectories] for group in groups]
    assert ranks == [[0.0, 1.0]] * 4 * GROUPS
    assert {id: failure.boundary for id, failure in failed.items()} == {"r/1/0": "judge", "r/1/1": "staleness"}


def test_failed_groups_are_replaced_by_others(tmp_path: Path) -> None:
    players = Simulated(lambda plan: 1, fails=lambda plan: int(plan.attempt.group[2:]) % 3 == 0)
    with streaming(tmp_path, players) as one:
        trained = [id for _ in range(6) for id in ids(update(one, players))]
        assert len(trained) == 6 * GROUPS * SIBLINGS
        assert not any(int(id.split("/")[1]) % 3 == 0 for id in trained)


def test_where_everything_fails_the_run_says_so(tmp_path: Path) -> None:
    players = Simulated(lambda plan: 1, fails=lambda plan: True)
    endless = {"rollout.quarantine": {"window": 10_000}}
    nothing = pytest.raises(HubError, match=r"update 0: no group can be trained.*quorum")
    with streaming(tmp_path, players, **endless) as one, nothing:
        update(one, players)


def test_updates_after_the_checkpoint_are_made_again_from_the_same_groups_and_no_prompt_is_lost(tmp_path: Path) -> None:
    made: list[list[Group]] = []
    rng = random.Random(1)
    players = Simulated(lambda plan: rng.randint(1, 9))
    with streaming(tmp_path, players, **{"train.checkpoint_every": 10}) as one:
        for _ in range(3):
            made.append(update(one, players))
        state = one.state_dict()
        for _ in range(3):
            made.append(update(one, players, checkpoint=False))
        begun = {id.rpartition("/")[0] for id in players.started}
        one.hub.release([*one.leases][1])
    rng = random.Random(2)
    again = Simulated(lambda plan: rng.randint(1, 9))
    with streaming(tmp_path, again, **{"train.checkpoint_every": 10}) as one:
        one.load_state_dict(state)
        for number in range(3, 6):
            again.version = number
            assert update(one, again) == made[number]
        assert not again.started
        made += [update(one, again) for _ in range(6)]
        trained = ids([group for groups in made for group in groups])
        assert len(trained) == len(set(trained)) == 12 * GROUPS * SIBLINGS
        begun |= {id.rpartition("/")[0] for id in again.started}
        stats = one.hub.stats().environments["Ascii"]
        assert len(begun) == len(trained) // SIBLINGS + stats.open + stats.ready + sum(stats.released.values())
        assert not set(again.started) & {t.id for groups in made[:6] for g in groups for t in g.trajectories}


def test_what_began_before_a_crash_goes_on_with_the_memory_and_the_turn_limit_it_began_with(tmp_path: Path) -> None:
    changes = {
        "environments": [{"id": f"{ENVIRONMENTS}TalkativeEnvironment", "settings": {"max_steps": 9}}],
        "rollout.turn_limit": {"first": 1, "more": 2, "every": 2},
        "train.checkpoint_every": 10,
    }

    def under_way(players: Simulated) -> dict[str, tuple[Task, int]]:
        plans = [plan for plan, _, _ in players.open.values()]
        return {plan.attempt.id: (plan.attempt.task, plan.settings["max_steps"]) for plan in plans}

    players = Simulated(lambda plan: 1 + int(plan.attempt.group[2:]) % 3, leaves=True)
    with streaming(tmp_path, players, **changes) as one:
        for _ in range(2):
            update(one, players)
        state = json.loads(json.dumps(one.state_dict()))
        made = [update(one, players, checkpoint=False) for _ in range(2)]
        begun = under_way(players)
    again = Simulated(lambda plan: 10_000, leaves=True)
    with streaming(tmp_path, again, **changes) as one:
        one.load_state_dict(state)
        assert [update(one, again, checkpoint=False) for _ in range(2)] == made
        again.take_finished = give_up  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            one.collect(LanguagePolicy(path="", version=one.done), Phases())
        going_on = under_way(again)
    assert {id: going_on[id] for id in begun} == begun
    assert any("memory" in task.parameters for task, _ in begun.values())
    assert max(limit for _, limit in begun.values()) == 3
    assert max(limit for _, limit in going_on.values()) == 5


def give_up() -> list[Trajectory]:
    raise TimeoutError


def test_tasks_follow_from_seed_and_number_alone(tmp_path: Path) -> None:
    def tasks(folder: Path, seed: int, rng: random.Random) -> dict[str, Any]:
        players = Simulated(lambda plan: rng.randint(1, 9))
        with streaming(folder, players, seed=seed) as one:
            groups = [group for _ in range(4) for group in update(one, players)]
            return {group.id: group.trajectories[0].task for group in groups}

    first = tasks(tmp_path / "a", 1, random.Random(1))
    again = tasks(tmp_path / "b", 1, random.Random(2))
    common = first.keys() & again.keys()
    assert len(common) > 8
    assert all(first[name] == again[name] for name in common)
    other = tasks(tmp_path / "c", 2, random.Random(1))
    assert any(first[name] != other[name] for name in first.keys() & other.keys())


ROWS = [{"prompt": f"Say {number}", "answer": str(number)} for number in range(30)]
PROMPTS = {"id": "Prompts", "settings": {"rows": ROWS, "reward": "tests.gym.prompt_rewards:is_right", "held_out": 0}}


def test_rows_of_a_file_are_drawn_once_an_epoch_also_across_a_crash(tmp_path: Path) -> None:
    changes = {"environments": [PROMPTS], "evaluation.levels": None, "train.checkpoint_every": 10}
    players = Simulated(lambda plan: 1 + int(plan.attempt.group[2:]) % 3)
    with streaming(tmp_path, players, **changes) as one:
        before = [update(one, players) for _ in range(3)]
        state = json.loads(json.dumps(one.state_dict()))
        made = [update(one, players, checkpoint=False) for _ in range(2)]
    players = Simulated(lambda plan: 1 + int(plan.attempt.group[2:]) % 3, version=3)
    with streaming(tmp_path, players, **changes) as one:
        one.load_state_dict(state)
        again = [update(one, players, checkpoint=False) for _ in range(2)]
        assert again == made
        after = [update(one, players) for _ in range(3)]
        begun = {f"r/{number}": flight[2] for number, flight in one.state_dict()["stream"]["flights"].items()}
    seeds = {group.id: group.trajectories[0].task.seed for groups in (*before, *made, *after) for group in groups}
    numbered = {int(name[2:]): seed for name, seed in (seeds | begun).items()}  # without those that came too late
    for epoch in range(2):
        drawn = [seed for number, seed in numbered.items() if number // 30 == epoch]
        assert len(set(drawn)) == len(drawn) > 5


def test_age_of_tokens_is_counted_from_the_version_that_learns() -> None:
    tokens = Tokens.of([1, 2, 3, 4], [False, True, True, True], [0.0, -1.0, -1.0, -1.0], [-1, 3, 4, 5])
    trajectory = attempt("a", [Turn((), "x", tokens=tokens)])
    found = staleness([Group("g", (trajectory, replace(trajectory, id="b")))], 5)
    assert found == {Metric.STALENESS_MAX: 2.0, Metric.STALENESS_MEAN: 1.0}
    assert staleness([], 5) == {}


def other(attempts: Sequence[Trajectory]) -> list[Trajectory]:
    """The same attempts, as another process has played them."""
    return [replace(attempt, turns=(replace(attempt.turns[0], action="y"),)) for attempt in attempts]


def test_where_two_processes_lead_a_run_by_mistake_an_attempt_is_whose_came_first(tmp_path: Path) -> None:
    def play_while_the_other_does(plans: Sequence[Plan]) -> list[Trajectory]:
        two.hub.append(other(play(plans)[:3]))
        return play(plans)

    with in_turns(tmp_path, play_while_the_other_does) as one, in_turns(tmp_path, play) as two:
        groups, _ = one.collect(LanguagePolicy(path="", version=0), Phases())
        said = [attempt.turns[0].action for group in groups for attempt in group.trajectories]
        stored = [attempt.id for _, attempt in one.hub.replay(selection=EVERYTHING)]
    assert sorted(said) == ["x"] * 5 + ["y"] * 3
    assert sorted(stored) == sorted(ids(groups))


def test_so_it_is_where_groups_begin_before_their_turn(tmp_path: Path) -> None:
    players = Simulated(lambda plan: 1)
    with streaming(tmp_path, players) as one, in_turns(tmp_path, play) as two:
        finished = players.take_finished

        def finished_in_two_places() -> list[Trajectory]:
            found = finished()
            two.hub.append(other(found[:1]))
            return found

        players.take_finished = finished_in_two_places  # type: ignore[method-assign]
        groups = update(one, players)
        said = [attempt.turns[0].action for group in groups for attempt in group.trajectories]
    assert "y" in said


@pytest.mark.parametrize("ahead", [False, True])
def test_who_leads_the_run_no_more_begins_nothing_in_place_of_what_the_other_trained(
    tmp_path: Path, ahead: bool
) -> None:
    def open_one() -> AbstractContextManager[Any]:
        return streaming(tmp_path, Simulated(lambda plan: 1)) if ahead else in_turns(tmp_path, play)

    def groups_of(one: Any) -> list[Group]:
        if ahead:
            return update(one, one.players)
        groups: list[Group]
        groups, _ = one.collect(LanguagePolicy(path="", version=0), Phases())
        for lease in one.leases:
            one.hub.ack(lease, version=1)
        return groups

    with open_one() as frozen, open_one() as leading, open_store(frozen.experiment.store_url) as db:
        for one in (frozen, leading):
            one.ledger(db, begin_run(db, one.experiment, {}, id="r", kind="train"))
        trained = ids(groups_of(leading))
        assert len(trained) == GROUPS * SIBLINGS
        known = {attempt.id for _, attempt in leading.hub.replay(selection=EVERYTHING)}
        with pytest.raises(RunTaken, match="was resumed on"):
            groups_of(frozen)
        assert {attempt.id for _, attempt in leading.hub.replay(selection=EVERYTHING)} == known
