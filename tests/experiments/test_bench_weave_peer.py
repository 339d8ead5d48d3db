"""Peers of WEAVE are judged by what they earn, and missed by name."""

import sys

import numpy as np
import pytest

from loomrl.errors import ConfigError
from loomrl.experiments.bench.weave.peer import Task, main


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_returns_are_means_over_fresh_episodes_discounted() -> None:
    sea = Task("deep-sea-treasure-concave-v0", 0.5, (0.0, -50.0))
    right_then_down = iter([3, 1, 1, 1])
    mean = sea.mean_return(lambda seen_E: np.full(len(seen_E), next(right_then_down)))
    assert mean == pytest.approx([2 * 0.25, -1.75])  # the second treasure, in the third step


def test_an_unknown_peer_and_a_missing_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"peer='pcn': unknown. Known: pgmorl, gpi_ls"):
        main("pcn", 1, 100)
    monkeypatch.setitem(sys.modules, "morl_baselines", None)
    with pytest.raises(ConfigError, match=r"morl_baselines cannot be imported .* docs/benchmarks.md says how"):
        main("pgmorl", 1, 100)
