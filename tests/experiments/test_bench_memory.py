"""`loomrl bench memory` runs from end to end."""

import pytest

from loomrl.errors import ConfigError
from loomrl.experiments.bench.memory.popgym import QUICK, Size, environments, measure
from tests.algorithms.control_support import MARKS

pytestmark = MARKS


@pytest.mark.system
def test_the_benchmark_compares_with_and_without_a_memory() -> None:
    figures = measure(QUICK, ["CountRecall"])  # its observations have parts of several shapes
    told = figures["CountRecall"]
    assert set(told) == {"lstm", "none"}
    assert all(-1 <= best < 0 for best in told.values())
    assert figures["mean"] == told == {name: runs[0] for name, runs in figures["seeds_runs"]["CountRecall"].items()}


@pytest.mark.slow
def test_a_memory_recalls_what_was_shown() -> None:
    told = measure(Size(seeds=(1,), steps=100_000), ["RepeatPrevious"])["RepeatPrevious"]
    assert told["lstm"] > 0.2
    assert -0.6 < told["none"] < -0.4


def test_the_easy_environments_are_found_and_others_refused_by_name() -> None:
    found = environments()
    assert found["RepeatFirst"] == "popgym.envs.repeat_first:RepeatFirstEasy"
    assert len(found) >= 14
    with pytest.raises(ConfigError, match=r"--only: environment='RepeatLast' is unknown.*Did you mean 'RepeatFirst'"):
        measure(QUICK, ["RepeatLast"])
