"""Sessions of a served control policy as data: frozen, read as episodes, judged, learnt from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from loomrl.config import DataSelection, HubConfig, LoggedData
from loomrl.control.space import acts, translator
from loomrl.errors import ConfigError, DataError
from loomrl.evaluation.offpolicy import judge_logged
from loomrl.feedback.dataset import freeze
from loomrl.feedback.logged import read_logged
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.retention.sweep import Sweeper
from loomrl.store import open_store
from loomrl.store.datasets import Dataset, read_rows
from loomrl.store.rewards import StoredReward, store_rewards
from tests.serving.control_support import CARTPOLE, TWO, Pole, control_policy

SESSIONS = 30
SEEN = np.random.default_rng(5).normal(size=(SESSIONS, 4)).round(3)


def right(seen: Any) -> int:
    return int(seen[0] > 0)


@pytest.fixture
async def served(tmp_path: Path) -> Pole:
    """Sessions of one decision each, of which the callers told the reward; and one of several places at once."""
    pole = Pole(tmp_path)
    async with pole:
        for at, seen in enumerate(SEEN):
            answer = await pole.act(f"s{at}", {"observation": seen.tolist(), "explore": True, "seed": at})
            paid = float(answer.json()["action"] == right(seen))
            await pole.client.post(f"/sessions/s{at}/complete", json={"reward": paid})
        await pole.act("greedy", {"observation": SEEN[0].tolist()})
        await pole.client.post("/sessions/greedy/complete", json={"reward": 1.0})
        await pole.act("unpaid", {"observation": SEEN[0].tolist(), "explore": True})
        await pole.client.post("/sessions/unpaid/complete", json={})
        await pole.act("fleet", {"observations": SEEN[:3].tolist(), "explore": True})
        await pole.client.post("/sessions/fleet/complete", json={"reward": 1.0})
    with pole.db() as db, open_endpoint_hub(pole.store_url, "pole", HubConfig()) as hub:
        assert Sweeper(db, hub, "pole").sweep_sessions(now=2e9).stored == SESSIONS + 3
    return pole


def frozen(pole: Pole, folder: Path) -> Dataset:
    control_policy().save(folder / "policy")
    selection = DataSelection(endpoints=("pole",), parent=str(folder / "policy"), holdout=0.2)
    with open_store(pole.store_url) as db:
        return freeze(db, pole.store_url, selection, now=3e9)


async def test_sessions_are_frozen_and_read_as_episodes(served: Pole, tmp_path: Path) -> None:
    made = frozen(served, tmp_path)
    assert frozen(served, tmp_path).id == made.id
    sizes = made.content["sizes"]
    assert sizes["train"] + sizes["holdout"] == SESSIONS + 3
    assert sizes["holdout"] > 0
    data = LoggedData(dataset=made.id)
    episodes = read_logged(data, CARTPOLE, TWO, store_url=served.store_url)
    with served.db() as db:
        ids = [row.trajectory for row in read_rows(db, made.id, part="train")]
    fit = [id for id in ids if id not in ("unpaid", "fleet")]
    assert len(episodes) == len(fit)
    for id, one in zip(fit, episodes, strict=True):
        seen = SEEN[0] if id == "greedy" else SEEN[int(id[1:])]
        assert np.allclose(one.seen[0], seen)
        assert one.terminated
        assert np.isnan(one.logprobs_T).all() == (id == "greedy")
        if id != "greedy":
            assert float(one.rewards_T[0]) == float(translator(acts(TWO))(one.actions)[0] == right(seen))
    assert len(read_logged(data, CARTPOLE, TWO, store_url=served.store_url, rewarded=False)) >= len(episodes)
    found = judge_logged(episodes, control_policy(), gamma=1.0, greedy=False)
    assert found.ips.mean == pytest.approx(found.logged.mean)
    assert found.left_out == ("greedy" in ids)
    with pytest.raises(ConfigError, match="does not fit the environment"):
        read_logged(data, spaces.Box(-1, 1, (2,)), TWO, store_url=served.store_url)
    with pytest.raises(DataError, match="nobody"):
        read_logged(LoggedData(dataset="nobody"), CARTPOLE, TWO, store_url=served.store_url)


async def test_a_later_judgement_counts_before_what_the_caller_told(served: Pole, tmp_path: Path) -> None:
    with served.db() as db:
        row = StoredReward(id="r", trajectory="s3", endpoint="pole", task="", total=5.0, confidence=1.0, created_at=2.0)
        store_rewards(db, [row])
    made = frozen(served, tmp_path)
    episodes = read_logged(LoggedData(dataset=made.id), CARTPOLE, TWO, store_url=served.store_url)
    assert max(float(one.rewards_T.sum()) for one in episodes) == 5.0
