"""The real, unmodified example trainer's way to its data: `… HUB_URL STEPS`. Prints the batches it got as JSON.

Registration, polling, retries and padding are the package's own code; only the gradient step is left out.
"""

import json
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

if find_spec("wandb") is None:
    sys.modules["wandb"] = ModuleType("wandb")

from example_trainer import data
from example_trainer.api import check_atropos_api, get_batch, register_trainer
from example_trainer.config import TrainingConfig

received: list[str] = []


def recording_get_batch(url: str) -> Any:
    answer = get_batch(url=url)
    if answer["batch"] is not None:
        received.append(json.dumps(answer["batch"]))
    return answer


def main(url: str, steps: str) -> None:
    """Take batches for so many steps."""
    sizes = {"batch_size": 4, "gradient_accumulation_steps": 2, "seq_len": 128}
    config = TrainingConfig(model_name="none", atropos_url=url, training_steps=int(steps), **sizes)
    assert check_atropos_api(url=url, timeout=30)
    register_trainer(config)
    data.get_batch = recording_get_batch
    trained = 0
    while trained < int(steps):
        batches, _ = data.get_data(config.batch_size, config.seq_len, config.atropos_url)
        for tokens, labels, advantages, temperatures, logprobs in batches:
            columns = zip(tokens, labels, advantages, temperatures, logprobs, strict=True)
            assert all(len({len(column) for column in micro}) == 1 for micro in columns)
        trained += len(batches)
    print(json.dumps([json.loads(batch) for batch in received]))


if __name__ == "__main__":
    main(*sys.argv[1:])
