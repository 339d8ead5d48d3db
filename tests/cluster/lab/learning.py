"""`python -m tests.cluster.lab.learning EXPERIMENT UPDATES`: train on the cluster, and say what every learner has.

A line of JSON after every update: of every learner its host and a hash of its parameters. The weights that the driver
gathers of a language policy are in EXPERIMENT-UPDATE.npz.
"""

import hashlib
import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.experiments.algorithms import open_algorithm
from loomrl.load import load
from loomrl.store import open_store
from tests.algorithms.language_support import weights


def found(learner: Any) -> tuple[str, str]:
    """A learner's host, and the hash of what it has; of a sharded model that is its shard."""
    digest = hashlib.sha256()
    for tensor in learner.module[DEFAULT_MODULE_ID].state_dict().values():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        digest.update(local.clone().numpy().tobytes())  # numpy would keep FSDP from freeing its own
    return socket.gethostname(), digest.hexdigest()


def main(file: str, updates: str) -> None:
    ray.init("auto", log_to_driver=False)
    experiment = load([file])
    with open_store(experiment.store_url):
        pass  # makes its tables
    algo = open_algorithm(experiment, run=Path(file).stem).build_algo()
    for update in range(1, int(updates) + 1):
        algo.train()
        print(json.dumps([each.get() for each in algo.learner_group.foreach_learner(found)]), flush=True)
        if experiment.kind == "language":
            np.savez(Path(file).with_name(f"{Path(file).stem}-{update}.npz"), **weights(algo))
    algo.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
