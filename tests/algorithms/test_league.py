"""The pool of a league: who joins, who leaves, who is drawn, and what is kept."""

import json
import random
from collections import Counter
from typing import Any

import pytest

from loomrl.algorithms.language.league import League, needed_versions, open_league
from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.experiments.evaluate import refuse_league
from loomrl.gym.curriculum import TaskDraw, TaskFamily
from loomrl.gym.opponent import LeagueSettings, with_opponent
from loomrl.gym.task_mixture import TaskMixture, gather
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Reward, Task
from tests.algorithms.attempts import attempt

FAMILY = TaskFamily("Game", "board.tictactoe")
TASK = Task("Game", "1", "board.tictactoe", 1, 0)
GONE = Failure("episode", "Gone", "the opponent's engine is gone")
ONLY_PAST = {"present_share": 0.0, "scripted_share": 0.0}


def league(**settings: object) -> League:
    return League(LeagueSettings.parse(settings, origin="test"), [FAMILY.key])


def past(version: int) -> dict[str, object]:
    return {"kind": "past", "version": version, "url": f"runs/r/{version:06d}"}


def group(opponent: dict[str, object], points: list[float | None]) -> Group:
    """Attempts against this opponent; None is one that failed."""
    fields: dict[str, Any] = {"task": with_opponent(TASK, opponent), "extra": {"opponent_slips": 2}}
    made = [
        attempt(f"g/{at}", failure=GONE, **fields)
        if each is None
        else attempt(f"g/{at}", reward=Reward(success=each), **fields)
        for at, each in enumerate(points)
    ]
    return Group("g", tuple(made))


def full(**settings: object) -> League:
    """With versions 0, 10 and 20, of which the first is beaten nearly always and the last hardly ever."""
    made = league(**{"every": 10, "members": 3, **settings})
    for version, points in ((0, 1.0), (10, 0.5), (20, 0.0)):
        made.admit(version, f"runs/r/{version:06d}")
        for _ in range(8):
            made.observe([group(past(version), [points] * 8)])
    return made


def drawn(made: League, count: int = 4000) -> Counter[object]:
    rng = random.Random(1)
    draws = [made.draw(rng, TaskDraw(FAMILY, 1, 0)) or {} for _ in range(count)]
    return Counter(draw.get("version", draw["kind"]) for draw in draws)


def test_a_version_is_drawn_by_the_square_of_how_often_it_beats_us() -> None:
    made = full(**ONLY_PAST)
    weights = {m.version: (1 - (sum(m.recent) + 1) / (len(m.recent) + 2)) ** 2 for m in made.members}
    found = drawn(made)
    assert found[20] > 3 * found[10] > 0
    for version, weight in weights.items():
        assert found[version] / 4000 == pytest.approx(weight / sum(weights.values()), abs=0.02)


def test_shares_of_the_scripted_and_the_present_opponent_are_those_of_the_settings() -> None:
    found = drawn(full(present_share=0.3, scripted_share=0.1))
    assert found["present"] / 4000 == pytest.approx(0.3, abs=0.02)
    assert found["scripted"] / 4000 == pytest.approx(0.1, abs=0.02)


def test_before_any_version_has_joined_the_present_one_is_met() -> None:
    assert set(drawn(league(**ONLY_PAST), 50)) == {"present"}


def test_a_family_without_a_second_seat_gets_no_opponent_and_its_attempts_are_no_games() -> None:
    made = full()
    assert made.draw(random.Random(1), TaskDraw(TaskFamily("Game", "puzzle.lights"), 1, 0)) is None
    before = made.state_dict()
    puzzle = Task("Game", "1", "puzzle.lights", 1, 0)
    made.observe([Group("p", (attempt("p", task=puzzle, reward=Reward(success=1.0)),))])
    assert made.state_dict() == before


def test_the_pool_is_bounded_and_the_one_that_is_beaten_most_often_leaves() -> None:
    made = full()
    made.admit(25, "runs/r/000025")
    assert [member.version for member in made.members] == [0, 10, 20]  # it is not time
    made.admit(30, "runs/r/000030")
    made.admit(30, "runs/r/000030.2")
    assert [member.version for member in made.members] == [10, 20, 30]
    assert needed_versions({"league": made.state_dict()}) == {
        0,
        10,
        20,
        30,
    }  # a game that began before may still need it
    made.admit(40, "runs/r/000040")
    assert len(made.members) == 3
    assert 0 not in needed_versions({"league": made.state_dict()})


def test_failed_attempts_are_no_games() -> None:
    made = full()
    before = made.state_dict()
    made.observe([group(past(10), [None, None])])
    assert made.state_dict() == before
    made.observe([group(past(10), [1.0, None])])
    assert sum(games for *_, games, _, _, _ in made.state_dict()["games"]) == 1 + sum(
        games for *_, games, _, _, _ in before["games"]
    )


def test_a_league_resumes_from_json_and_draws_the_same() -> None:
    made = full()
    again = league(every=10, members=3)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    assert drawn(again) == drawn(made)
    assert again.ratings() == made.ratings()
    for one in (made, again):
        one.observe([group(past(10), [1.0] * 100)])
        one.admit(30, "runs/r/000030")
    assert again.state_dict() == made.state_dict()


def test_what_the_present_version_played_counts_for_the_version_that_joins_next() -> None:
    made = league(every=10)
    made.admit(0, "u")
    made.observe([group(past(0), [1.0] * 6 + [0.0] * 2), group({"kind": "present"}, [0.5] * 8)])
    made.admit(10, "u")
    pairs = {(first, second): points for first, second, points, *_ in made.state_dict()["games"]}
    assert pairs == {("10", "0"): 6.0, ("10", "10"): 4.0}
    assert made.ratings().players["10"].mean > 20


def test_metrics_tell_points_by_kind_of_opponent_and_illegal_moves() -> None:
    attempts = [*group(past(0), [1.0, 0.5]).usable, *group({"kind": "scripted"}, [0.0, 0.0]).usable]
    found = full().metrics(attempts)
    assert found[Metric.LEAGUE_POINTS] == 0.375
    assert found[Metric.LEAGUE_POINTS.of("past")] == 0.75
    assert found[Metric.LEAGUE_POINTS.of("scripted")] == 0.0
    assert Metric.LEAGUE_POINTS.of("present") not in found
    assert found[Metric.LEAGUE_ILLEGAL] == 2.0
    assert found[Metric.LEAGUE_MEMBERS] == 3
    assert found["league/rating/low"] < found[Metric.LEAGUE_RATING] < found["league/rating/high"]


def mixture(*environments: dict[str, object]) -> tuple[Experiment, TaskMixture]:
    tree = {"name": "t", "environments": environments, "train": {"checkpoint_every": 10}, "rollout": {"runners": 1}}
    experiment = Experiment.parse({**tree, "hub": {"max_staleness": 2}})
    return experiment, gather(experiment.environments, None, lambda id: (id, ""))


def game(id: str = "Game", families: tuple[str, ...] = (), **opponent: object) -> dict[str, object]:
    return {"id": id, "families": families, "settings": {"opponent": {"kind": "league", **opponent}}}


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ([game(every=15)], "every=15 is no multiple of train.checkpoint_every=10: .* Set it to 20"),
        ([game(families=("puzzle.*",))], "none of its families has a second seat"),
        ([game(members=17)], "opponent.members=17"),
        ([game(every=0)], "opponent.every=0"),
        ([game(present_share=0.5, scripted_share=0.5)], "leave nothing for past versions"),
        ([{"id": "Math", "settings": {"opponent": {"kind": "league"}}}], "Math.* opponent=.*no such setting"),
    ],
)
def test_a_league_that_cannot_be_kept_is_refused_by_name(environments: list[dict[str, object]], said: str) -> None:
    pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
    with pytest.raises(ConfigError, match=rf"(?s){said}"):
        open_league(*mixture(*environments))


def test_versions_must_stay_for_as_long_as_games_may_last() -> None:
    experiment, found = mixture(game(every=2))
    with pytest.raises(ConfigError, match=r"every=2 is not above hub.max_staleness=2"):
        open_league(experiment.override({"train.checkpoint_every": 1}), found)
    assert open_league(*mixture({"id": "Game"})) is None


def test_an_evaluation_belongs_to_no_run_so_that_a_league_is_refused_with_the_setting_to_change() -> None:
    pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
    experiment, found = mixture(game(every=10))
    with pytest.raises(ConfigError, match=r"environments\.0\.settings\.opponent\.kind=minimax"):
        refuse_league(found)
    changed = experiment.override({"environments.0.settings.opponent.kind": "minimax"})
    refuse_league(gather(changed.environments, None, lambda id: (id, "")))
