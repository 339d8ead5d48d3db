"""A turn limit that rises: who has how many turns, also after a crash, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from loomrl.config import TurnLimit
from loomrl.errors import ConfigError
from loomrl.gym.task_mixture import check_turn_limit, open_task_mixture
from loomrl.hub import EVERYTHING
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from loomrl.types import End
from tests.algorithms.language_support import ENVIRONMENTS, QUIET, build, experiment, train

pytestmark = QUIET

RISING: dict[str, Any] = {
    "environments": [{"id": f"{ENVIRONMENTS}TalkativeEnvironment", "settings": {"max_steps": 4}}],
    "rollout.turn_limit": {"first": 1, "more": 2, "every": 2},
}


def test_the_limit_rises_by_steps() -> None:
    limit = TurnLimit(first=3, more=2, every=4)
    assert [limit.after(updates) for updates in (0, 3, 4, 7, 8, 40)] == [3, 3, 5, 5, 7, 23]


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
def test_attempts_get_longer_until_they_have_all_turns_of_the_environment(tmp_path: Path) -> None:
    settings = {**RISING, "algorithm.model.context": 256, "rollout.groups_per_update": 2, "train.updates": 6}
    algo = build(tmp_path, **settings)
    assert [line[Metric.LENGTH_TURNS] for line in train(algo)] == [1, 1, 3, 3, 4, 4]
    ends = {attempt.end for _, attempt in algo.source.hub.replay(selection=EVERYTHING)}
    assert ends == {End.TRUNCATED}


@pytest.mark.parametrize(
    ("environments", "limit", "says"),
    [
        ([{"id": "Math", "settings": {"max_steps": 2}}], {"first": 2}, "first=2 shortens nothing.*max_steps=2"),
        ([{"id": "Math", "settings": {"max_steps": 3, "retry": 0.5}}], {"first": 1}, "no second answer"),
        (
            [
                {
                    "id": "Harness",
                    "settings": {"agent": {"python": __file__}, "tasks": {"a": {"generate": "os:listdir"}}},
                }
            ],
            {},
            "no effect on Harness",
        ),
    ],
    ids=["long enough", "too short for retry", "an agent"],
)
def test_a_limit_that_changes_nothing_or_cannot_be_is_refused(
    tmp_path: Path, environments: Any, limit: Any, says: str
) -> None:
    given = experiment(tmp_path, environments=environments)
    with open_store(given.store_url) as db, pytest.raises(ConfigError, match=says):
        check_turn_limit(TurnLimit(**limit), open_task_mixture(given, db))


def test_learning_from_a_data_set_plays_no_attempts(tmp_path: Path) -> None:
    model = {"algorithm.model.path": "model", "algorithm.model.build": None, "data": {"dataset": "d"}}
    with pytest.raises(ConfigError, match=r"rollout\.turn_limit has no effect with data\.dataset"):
        experiment(tmp_path, **model, **{"rollout.turn_limit": {}})
