"""Every environment that comes with LoomRL keeps what the checker asks of environments."""

import pytest

from loomrl.experiments.check_envs import check_all
from loomrl.gym.catalogue import make, names
from tests.needs import need

NEED_SETTINGS = {
    "Harness": "no agent",
    "McpTools": "set command",
    "OpenEnv": "Set servers",
    "Prompts": "set file",
    "TaskFolders": "set folder",
    "Verifiers": "Set modules",
}
"""Adapters of things that lie elsewhere: their own tests check them, with servers and modules."""
NEED_PROGRAMS = {"Code": "a sandbox", "Game": "Stockfish"}
LONG = {"ReasoningGym"}
FEW, FEWEST = 0.3, 0.1
"""Of the episodes, in the quick tests. An opponent that succeeds at all is played on, in batches of full size."""
DEAR = {"Code", "Game", "PettingZoo"}
"""Those of which the fewest are played."""
FEW_WORDS = {
    "Code": 70, "Game": 85, "Language": 60, "LogicPuzzle": 80, "MemoryBuffer": 60, "MetaReasoning": 95,
    "Multimodal": 65, "ToolCall": 70,
}  # fmt: skip
"""Words of a prompt at level 1."""
WORDY = {"board.othello", "chess", "grid", "optimise", "review"}
"""Families whose rules or code need more."""


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names()]
)
def test_an_environment_keeps_what_it_promises(name: str) -> None:
    check(name, FEWEST if name in DEAR else FEW)


@pytest.mark.parametrize(("name", "most"), FEW_WORDS.items())
async def test_the_first_level_is_told_in_few_words(name: str, most: int) -> None:
    environment = make(name, {})
    for family in environment.families:
        if family in WORDY:
            continue
        for seed in range(10):
            messages = await environment.reset(environment.task(family, 1, seed))
            assert sum(len(message.content.split()) for message in messages) <= most, (family, seed)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in names() if name not in NEED_SETTINGS])
def test_it_keeps_it_in_all_the_episodes_that_the_ceilings_ask_for(name: str) -> None:
    check(name, 1.0)


def check(name: str, share: float) -> None:
    if name in NEED_PROGRAMS:
        need(NEED_PROGRAMS[name])
    checked = check_all([name], may_lack=True, share=share)
    if name in NEED_SETTINGS:
        assert NEED_SETTINGS[name] in checked.left_out[name]
    else:
        assert [report.environment for report in checked.reports] == [name], checked.left_out
        faults = [check for report in checked.reports for check in report.checks if not check.passed]
        assert checked.passed, "\n".join(f"{fault.name}: {fault.detail}" for fault in faults)
