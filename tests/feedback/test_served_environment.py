"""Prompts of production as tasks: training and evaluation ask other ones, and a judge says how well they went."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loomrl.config import DataSelection
from loomrl.errors import ConfigError
from loomrl.feedback.dataset import freeze
from loomrl.feedback.served import Served
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.store import open_store
from loomrl.store.datasets import read_rows
from tests.feedback.served_support import store, url
from tests.feedback.test_dataset import session
from tests.gym.test_judge import Server, completion, server  # noqa: F401 - a fixture

pytestmark = pytest.mark.system
ENVIRONMENT = "loomrl.feedback.served:Served"


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[str]:
    attempts = [session(f"s{n}", f"question {n}", domain=("coding", "writing")[n % 2]) for n in range(60)]
    store(tmp_path, "agent-7", attempts)
    selection = DataSelection.parse({"agents": ["7"], "holdout": 0.3})
    with open_store(url(tmp_path)) as db:
        yield freeze(db, url(tmp_path), selection, now=1.0).id


def opened(folder: Path, dataset: str, judge: Server) -> Served:
    return Served(
        {
            "store_url": url(folder),
            "dataset": dataset,
            "judge": {"kind": "openai", "url": judge.url, "model": "j", "timeout_s": 20},
        }
    )


async def test_training_and_evaluation_ask_other_prompts_and_the_judge_is_the_reward(
    tmp_path: Path,
    frozen: str,
    server: Server,  # noqa: F811
) -> None:
    environment = opened(tmp_path, frozen, server)
    assert environment.families == ("coding", "writing")
    with open_store(url(tmp_path)) as db:
        held = {f"question {row.trajectory[1:]}" for row in read_rows(db, frozen, part="holdout")}
    trained = [await environment.reset(environment.task("coding", 1, seed)) for seed in range(40)]
    judged = [await environment.reset(environment.task("coding", 1, HELD_OUT_SEEDS.start + n)) for n in range(40)]
    assert {asked[0].content for asked in judged} == {each for each in held if int(each.split()[1]) % 2 == 0}
    assert not {asked[0].content for asked in trained} & held
    assert await environment.reset(environment.task("coding", 1, 5)) == trained[5]
    server.says(completion("It does half of it.\nVERDICT: partly"))
    step = await environment.step("an answer")
    assert (step.reward.total, step.reward.success, step.terminated) == (0.5, 0.5, True)
    (asked,) = [body for body, _ in server.asked]
    assert "an answer" in str(asked["messages"])
    await environment.close()
    assert await environment.reset(environment.task("coding", 1, 5)) == trained[5]
    await environment.close()


def test_data_set_without_a_holdout_or_a_judge_is_refused(tmp_path: Path, server: Server) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match="Served: set dataset"):
        Served({})
    store(tmp_path, "agent-7", [session("a")])
    with open_store(url(tmp_path)) as db:
        selection = DataSelection.parse({"agents": ["7"], "holdout": 0.0})
        made = freeze(db, url(tmp_path), selection, now=1.0).id
    with pytest.raises(ConfigError, match=r"domain 'coding' has no prompts in its holdout part.*larger holdout"):
        opened(tmp_path, made, server)
