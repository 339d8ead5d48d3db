"""Rows of the real verifiers, played here. `test_adapter_verifiers.py` runs this where verifiers is installed."""

import signal
from pathlib import Path

import pytest
from adapter_support import play, saying

from loomrl.errors import ConfigError
from loomrl.gym.adapters.verifiers import VerifiersEnvironment
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


def environment_of(api="v0", **settings):
    args = settings.pop("args", {})
    module = {"module": f"sums_{api}", "api": api, "args": args, "oracle": "verifiers_real:right_answer", **settings}
    return VerifiersEnvironment({"modules": {"sums": module}})


def right_answer(row, messages):
    return row["answer"]


@pytest.mark.parametrize("api", ["v0", "v1"])
async def test_a_single_turn_is_scored_by_the_modules_own_rewards(api):
    environment = environment_of(api)
    right = await play(environment, OraclePolicy)
    wrong = await play(environment, saying("I cannot add, sorry: 0"))
    assert [message.role for message in right.turns[0].observation] == ["system", "user"]
    assert right.turns[0].observation[1].content.endswith("+ 1 = ?")
    assert (right.end, right.reward.success, right.reward.total) == (End.TERMINATED, 1.0, 1.0)
    assert (wrong.end, wrong.reward.success) == (End.TERMINATED, 0.0)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("api", ["v0", "v1"])
async def test_all_of_awkward_weights_are_full_success_and_all_but_one_are_not(api, graded):
    environment = environment_of(api, args={"kind": "weighted"}, graded=graded)
    right = await play(environment, OraclePolicy)
    wrong = await play(environment, saying("No idea"))
    assert (right.reward.success, right.reward.total) == (1.0, 1.0)
    assert wrong.reward.success == pytest.approx(0.1 if graded else 0.0)


def test_a_next_release_without_the_first_generation_says_which_release_has_it():
    with pytest.raises(ConfigError, match=r"installed is verifiers 0\.4.*'verifiers>=0\.3\.1,<0\.4'"):
        environment_of("v0")


@pytest.mark.parametrize("api", ["v1"])
def test_a_release_with_one_generation_is_pinned_by_a_snapshot_all_the_same(api):
    assert find("Verifiers").version
    assert "loomrl/gym/adapters/verifiers_v0.py" in snapshot_of("Verifiers").content["sources"]


@pytest.mark.parametrize("api", ["v0", "v1"])
async def test_levels_are_tenths_of_the_rows_by_a_field(api):
    environment = environment_of(api, level_field="info.level" if api == "v0" else "level")
    seen = {}
    for level in (1, 10):
        observations = [await environment.reset(environment.task("sums", level, seed)) for seed in range(12)]
        seen[level] = {int(observation[-1].content.split()[0]) for observation in observations}
    await environment.close()
    assert seen[1] <= {0, 1, 2, 3}
    assert seen[10] <= {36, 37, 38, 39}
    assert len(seen[1]) > 1


@pytest.mark.parametrize("api", ["v0", "v1"])
async def test_the_same_task_is_the_same_row(api):
    one, other = environment_of(api), environment_of(api)
    for seed in range(5):
        assert await one.reset(one.task("sums", 3, seed)) == await other.reset(other.task("sums", 3, seed))
    await one.close()
    await other.close()


@pytest.mark.parametrize(("api", "args"), [("v0", {"broken": "reward"}), ("v1", {"kind": "broken"})])
async def test_a_reward_that_raises_fails_the_episode_instead_of_paying_nothing(api, args):
    trajectory = await play(environment_of(api, args=args), saying("1"))
    assert trajectory.end is End.FAILED
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("scorer", "ScorerError")
    assert "the judge fell asleep" in trajectory.failure.message


async def test_turns_go_on_until_the_module_ends_them():
    environment = environment_of(args={"kind": "turns"})
    await environment.reset(environment.task("sums", 1, 0))
    answer = int(environment.oracle())
    first = await environment.step(str(answer - 1))
    second = await environment.step(str(answer + 1))
    third = await environment.step(str(answer))
    assert [m.content for m in (*first.observation, *second.observation)] == ["higher", "lower"]
    assert (first.terminated, second.terminated, third.terminated) == (False, False, True)
    assert third.reward.success == 1.0


async def test_the_modules_own_limit_of_turns_ends_the_episode():
    trajectory = await play(environment_of(args={"kind": "turns"}), saying(*["-1"] * 9))
    assert (len(trajectory.turns), trajectory.end, trajectory.reward.success) == (5, End.TERMINATED, 0.0)


async def test_tools_are_told_called_and_answered():
    environment = environment_of(args={"kind": "tools"})
    (prompt,) = await environment.reset(environment.task("sums", 1, 0))
    assert "- add: Add two numbers." in prompt.content
    number = int(environment.oracle()) - 1
    call = f'{{"name": "add", "arguments": {{"first": {number}, "second": 1}}}}'
    step = await environment.step(f"I add.\n<tool_call>{call}</tool_call>")
    assert [(message.role, message.content) for message in step.observation] == [("tool", str(number + 1))]
    assert (await environment.step(str(number + 1))).reward.success == 1.0


async def test_a_call_that_cannot_be_read_is_answered_and_counted():
    environment = environment_of(args={"kind": "tools"})
    await environment.reset(environment.task("sums", 1, 0))
    texts = ("<tool_call>{", "<tool_call>[]</tool_call>", '<tool_call>{"name": "os", "arguments": {}}</tool_call>')
    steps = [await environment.step(text) for text in texts]
    await environment.close()
    assert [step.truncated for step in steps] == [False, False, True]
    assert "there is no such tool; there are add" in steps[-1].observation[0].content


@pytest.mark.parametrize(("broken", "said"), [("setup", "no room"), ("turn", "hung up")])
async def test_trouble_of_the_module_fails_the_episode(broken, said):
    trajectory = await play(environment_of(args={"kind": "turns", "broken": broken}), saying("-1", "-1"))
    assert (trajectory.end, trajectory.failure.boundary) == (End.FAILED, "environment")
    assert said in trajectory.failure.message


async def test_giving_up_cancels_the_rollout_and_leaves_nothing_running():
    environment = environment_of(args={"kind": "turns"})
    await environment.reset(environment.task("sums", 1, 0))
    rollout = environment._conversation._task
    await environment.close()
    assert rollout.cancelled()


async def test_graded_scores_are_shares_of_the_full_score():
    environment = environment_of("v1", graded=True)
    trajectory = await play(environment, saying("0"))
    assert trajectory.reward.success == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("api", "args", "said"),
    [("v0", {"kind": "grouped"}, "in groups"), ("v1", {"kind": "running"}, "right of its tasks need a runtime")],
)
async def test_what_is_more_than_a_conversation_is_refused(api, args, said):
    environment = environment_of(api, args=args)
    with pytest.raises(ConfigError, match=said):
        await environment.reset(environment.task("sums", 1, 0))


async def test_loading_a_module_leaves_our_signals_alone():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    environment = environment_of(args={"count": 11})
    await environment.reset(environment.task("sums", 1, 0))
    await environment.close()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("kind", ["single", "tools"])
async def test_hostile_text_gets_an_answer(kind):
    environment = environment_of(args={"kind": kind})
    for name, text in TEXTS.items():
        await environment.reset(environment.task("sums", 1, 0))
        assert (await environment.step(text)).reward.success == 0, name
    await environment.close()
