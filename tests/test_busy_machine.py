"""torch's threads wait without spinning in every process of ours, or a busy machine makes small models crawl."""

import os
import subprocess
import sys

import pytest

ENTRANCES = (
    "loomrl",
    *(
        pytest.param(module, marks=pytest.mark.slow)
        for module in (
            "loomrl.inference.torch.engine",
            "loomrl.algorithms.control.learner",
            "loomrl.algorithms.language.runner",
            "loomrl.experiments.bench.control.contender",
        )
    ),
)
"""The first imports of launcher, Ray's workers, RLlib's users and benchmarks; all import `loomrl` before."""
LEFT_OUT = {"OMP_WAIT_POLICY", "LD_PRELOAD"}
"""vLLM, in another test of this process, loads OpenMP before Python; whoever inherits that inherits ours as well."""


def spin_count(module: str, **given: str) -> str:
    """Looks of OpenMP before it sleeps, as torch's own OpenMP says when it is loaded."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}, torch"],
        env=environment | {"OMP_DISPLAY_ENV": "VERBOSE"} | given,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = {line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line}
    return line.split("'")[1]


@pytest.mark.parametrize("module", ENTRANCES)
def test_threads_sleep_at_barriers_whatever_of_ours_is_imported_first(module: str) -> None:
    assert spin_count(module) == "0"


def test_someone_who_asks_for_spinning_threads_gets_them() -> None:
    assert int(spin_count("loomrl", OMP_WAIT_POLICY="ACTIVE")) > 10**9
