"""A language policy that discovers a hole in its reward is stopped; on the mended environment it trains to its end."""

from pathlib import Path
from typing import Any

import pytest

from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import ENVIRONMENTS, RAY, build, experiment, train

pytestmark = [*RAY, pytest.mark.slow]
HACKED = 0.2
"""Share of attempts that are paid and not correct, from which the reward counts as hacked."""


def trained(folder: Path, *, hole: bool, seed: int = 3, **changes: Any) -> tuple[list[dict[str, float]], str]:
    settings = {"environments": [{"id": f"{ENVIRONMENTS}HoleEnvironment", "settings": {"hole": hole}}]}
    algo = build(folder, seed=seed, **settings, **{"train.updates": 25, "rollout.groups_per_update": 16, **changes})
    history = train(algo)
    reason = algo.stopped
    algo.stop()
    return history, reason


@pytest.mark.parametrize("seed", range(3, 8))
def test_a_run_is_stopped_within_five_updates_of_the_discovery_of_a_hole(tmp_path: Path, seed: int) -> None:
    history, reason = trained(tmp_path, hole=True, seed=seed, **{"train.updates": 60})
    onset = next(update for update, line in enumerate(history, 1) if line[Metric.REWARD_UNEARNED] > HACKED)
    assert reason.startswith("reward hacking since update ")
    assert len(history) - onset <= 5
    assert [line[Metric.REWARD_HACKED] for line in history] == [0.0] * (len(history) - 1) + [1.0]
    with open_store(experiment(tmp_path).store_url) as db:
        assert POLICIES.latest(db, run="r", limit=1)[0].number == len(history)


def test_the_mended_environment_is_trained_on_to_the_end(tmp_path: Path) -> None:
    history, reason = trained(tmp_path, hole=False)
    assert (len(history), reason) == (25, "all 25 updates done")
    assert history[-1][Metric.REWARD_CHECKED] > history[0][Metric.REWARD_CHECKED] + 0.3
    assert not any(line[Metric.REWARD_UNEARNED] for line in history)


def test_a_hacked_run_goes_on_if_that_is_only_to_be_said(tmp_path: Path) -> None:
    history, reason = trained(tmp_path, hole=True, **{"train.stop.hacking": False})
    assert (len(history), reason) == (25, "all 25 updates done")
    assert history[-1][Metric.REWARD_HACKED] == 1.0
