"""Rows of the real verifiers, played here. `test_adapter_verifiers.py` runs this where verifiers is installed."""

from pathlib import Path

import pytest
from adapter_support import play, saying

from loomrl.errors import ConfigError
from loomrl.gym.adapters.verifiers import VerifiersEnvironment
from loomrl.gym.attack.run import attack_environment
from loomrl.gym.catalogue import find
from loomrl.gym.check.hostile import TEXTS
from loomrl.gym.policy import OraclePolicy
from loomrl.gym.registry import snapshot_of
from loomrl.types import End

MODULES = Path(__file__).parent / "verifiers_modules"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def modules_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(MODULES)


def environment_of(**settings):
    args = settings.pop("args", {})
    module = {"module": "sums", "args": args, "oracle": "verifiers_real:right_answer", **settings}
    return VerifiersEnvironment({"modules": {"sums": module}})


def right_answer(row, messages):
    return row["answer"]


async def test_a_single_turn_is_scored_by_the_modules_own_rewards():
    environment = environment_of()
    right = await play(environment, OraclePolicy)
    wrong = await play(environment, saying("I cannot add, sorry: 0"))
    assert [message.role for message in right.turns[0].observation] == ["system", "user"]
    assert right.turns[0].observation[1].content.endswith("+ 1 = ?")
    assert (right.end, right.reward.success, right.reward.total) == (End.TERMINATED, 1.0, 1.0)
    assert (wrong.end, wrong.reward.success) == (End.TERMINATED, 0.0)


@pytest.mark.parametrize("graded", [False, True])
async def test_all_of_awkward_weights_are_full_success_and_all_but_one_are_not(graded):
    environment = environment_of(args={"kind": "weighted"}, graded=graded)
    right = await play(environment, OraclePolicy)
    wrong = await play(environment, saying("No idea"))
    assert (right.reward.success, right.reward.total) == (1.0, 1.0)
    assert wrong.reward.success == pytest.approx(0.1 if graded else 0.0)


def test_the_adapter_is_pinned_by_a_snapshot():
    assert find("Verifiers").version
    assert "loomrl/gym/adapters/taskset.py" in snapshot_of("Verifiers").content["sources"]


async def test_levels_are_tenths_of_the_rows_by_a_field():
    environment = environment_of(level_field="level")
    seen = {}
    for level in (1, 10):
        observations = [await environment.reset(environment.task("sums", level, seed)) for seed in range(12)]
        seen[level] = {int(observation[-1].content.split()[0]) for observation in observations}
    await environment.close()
    assert seen[1] <= {0, 1, 2, 3}
    assert seen[10] <= {36, 37, 38, 39}
    assert len(seen[1]) > 1


async def test_the_same_task_is_the_same_row():
    one, other = environment_of(), environment_of()
    for seed in range(5):
        assert await one.reset(one.task("sums", 3, seed)) == await other.reset(other.task("sums", 3, seed))
    await one.close()
    await other.close()


async def test_a_reward_that_raises_fails_the_episode_instead_of_paying_nothing():
    trajectory = await play(environment_of(args={"kind": "broken"}), saying("1"))
    assert trajectory.end is End.FAILED
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("scorer", "ScorerError")
    assert "the judge fell asleep" in trajectory.failure.message


async def test_graded_scores_are_shares_of_the_full_score():
    environment = environment_of(graded=True)
    trajectory = await play(environment, saying("0"))
    assert trajectory.reward.success == pytest.approx(0.25)


async def test_what_is_more_than_a_conversation_is_refused():
    environment = environment_of(args={"kind": "running"})
    with pytest.raises(ConfigError, match="right of its tasks need a runtime"):
        await environment.reset(environment.task("sums", 1, 0))


async def test_hostile_text_is_no_success():
    environment = environment_of()
    for name, text in TEXTS.items():
        await environment.reset(environment.task("sums", 1, 0))
        assert (await environment.step(text)).reward.success == 0, name
    await environment.close()


@pytest.mark.slow
def test_the_attacker_finds_a_loose_reward():
    module = {"module": "sums", "args": {"kind": "loose"}, "oracle": "verifiers_real:right_answer"}
    report = attack_environment(VerifiersEnvironment, {"modules": {"sums": module}}, seconds=60)
    assert {finding.rule for finding in report.findings} == {"spoiled"}, str(report)
    assert report.bouts > 50
    assert not report.deadly
    assert not report.without_oracle
