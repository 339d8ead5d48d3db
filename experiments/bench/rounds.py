"""Shared by the benchmarks: medians of rounds, parts in processes of their own, messages, and the machine."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomrl.errors import LoomError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every figure over the rounds."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Median, lowest and highest of ratios, as `name` and `name_range`."""
    return {
        name: round(statistics.median(values), 2),
        f"{name}_range": [round(min(values), 2), round(max(values), 2)],
    }


def seconds(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def run_part(module: str, *words: str, env: Mapping[str, str]) -> Any:
    """Run `loomrl.experiments.bench.MODULE` in a process of its own; returns the JSON on its last line."""
    command = [sys.executable, "-m", f"loomrl.experiments.bench.{module}", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(env), check=False)
    if done.returncode:
        raise LoomError(f"{module} {' '.join(words)} ended with {done.returncode}:\n{done.stderr.strip()[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def say(text: str) -> None:
    """Progress on stderr; stdout belongs to the figures."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def machine(**more: Any) -> dict[str, Any]:
    """The machine on which the figures were measured."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(), **more}
