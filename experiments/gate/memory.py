"""A process that opens one policy, lets it act, and prints its own peak memory as JSON."""

import asyncio
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from loomrl.config import EvaluationConfig
from loomrl.config.suite import ControlSuite, LanguageSuite, Suite
from loomrl.control.environment import open_environments
from loomrl.experiments.gate.cost import answer
from loomrl.experiments.gate.language import choice_of
from loomrl.experiments.gate.party import Party
from loomrl.experiments.gate.suite import parse_suite
from loomrl.experiments.policies import open_policy
from loomrl.gym.held_out import draw_held_out
from loomrl.gym.registry import Registry
from loomrl.gym.task_mixture import gather
from loomrl.process import peak_memory_kb
from loomrl.store import LoomDB, open_store

ANSWERS = 3
STEPS = 100


def main() -> None:
    """Read suite, policy and database from stdin; print the peak in megabytes."""
    asked = json.load(sys.stdin)
    sys.path.append(str(Path.cwd()))
    suite = parse_suite(asked["suite"], origin="suite")
    with open_store(asked["store"]) as db:
        act(suite, Party(asked["policy"]), db)
    print(json.dumps({"peak_mb": peak_memory_kb() / 1024}))


def act(suite: Suite, party: Party, db: LoomDB) -> None:
    """Let the policy act in the suite's first benchmark."""
    if isinstance(suite, ControlSuite):
        _control(suite, party, db)
    else:
        asyncio.run(_language(suite, party, db))


async def _language(suite: LanguageSuite, party: Party, db: LoomDB) -> None:
    first = suite.benchmarks[0]
    mixture = gather([first.environment], None, Registry(db).record)
    policy = open_policy(choice_of(suite, party, db))
    for draw in draw_held_out(mixture, EvaluationConfig(episodes=ANSWERS, levels=first.levels)):
        await answer(policy, mixture.member(draw).task(draw), first.environment.settings)


def _control(suite: ControlSuite, party: Party, db: LoomDB) -> None:
    from loomrl.experiments.evaluate_control import find_acts

    choice = suite.benchmarks[0].environment
    _, policy, _ = find_acts(party.key, choice.settings, db)
    with closing(open_environments(choice, 1, choice.settings)) as environments:
        state = policy.begin(environments, seed=0)
        observations: Any = environments.reset(seed=0)[0]
        for _ in range(STEPS):
            observations = environments.step(policy.act_batch(observations, state=state))[0]


if __name__ == "__main__":
    main()
