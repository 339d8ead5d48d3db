"""An environment on the real, unmodified `atroposlib`: `… HUB_URL TOKENIZER_FOLDER GROUPS_FILE STEPS`.

Runs under an interpreter that has the package; everything but the task and its answers is the package's own code.
"""

import asyncio
import random
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

if find_spec("wandb") is None:
    sys.modules["wandb"] = ModuleType("wandb")  # imported by the package, used only with use_wandb=True

from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.envs.server_handling.server_manager import APIServerConfig

GROUP_SIZE = 4


class Guessing(BaseEnv):
    """Sampled token ids instead of a model's; some groups of the size that their overrides announce."""

    name = "guessing"

    async def setup(self) -> None:
        self.rng = random.Random(0)
        self.count = 0

    async def get_next_item(self) -> int:
        self.count += 1
        return self.count

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        return

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        return wandb_metrics

    async def collect_trajectories(self, item: int) -> tuple[ScoredDataGroup, list[Any]]:
        await asyncio.sleep(0.01)
        size = 2 if item % 3 == 0 else GROUP_SIZE
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[], messages=None, advantages=None)
        for attempt in range(size):
            prompt = [item, 1, 2]
            answer = [self.rng.randrange(100) for _ in range(self.rng.randrange(1, 90))]
            group["tokens"].append(prompt + answer)
            group["masks"].append([-100] * len(prompt) + answer)
            group["inference_logprobs"].append([1.0] * len(prompt) + [-self.rng.random() for _ in answer])
            group["scores"].append(float(attempt))
        group["overrides"] = [{"temperature": 0.5} for _ in range(size)]
        group["group_overrides"] = {"group_size": size}
        group["generation_params"] = {"temperature": 0.7}
        return group, []


def main(url: str, tokenizer: str, groups_file: str, steps: str) -> None:
    """Roll out until the trainer has had its steps."""
    config = BaseEnvConfig(
        group_size=GROUP_SIZE,
        max_num_workers=2,
        tokenizer_name=tokenizer,
        use_wandb=False,
        wandb_name="guessing",
        rollout_server_url=url,
        total_steps=int(steps),
        data_path_to_save_groups=groups_file,
        steps_per_eval=10_000,
    )
    server = APIServerConfig(model_name="none", base_url="http://127.0.0.1:9/v1", api_key="x", health_check=False)
    asyncio.run(Guessing(config, [server]).env_manager())


if __name__ == "__main__":
    main(*sys.argv[1:])
