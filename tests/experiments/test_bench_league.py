"""The benchmark of leagues runs, whole, on little work."""

import pytest

from loomrl.experiments.bench.league import ARMS, HELD_OUT, QUICK, measure

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


def test_every_contender_is_judged_against_every_opponent() -> None:
    pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
    (seed,) = measure(QUICK)["seeds_runs"]
    contenders = {"first", *ARMS}
    assert seed["points"].keys() == contenders
    for row in seed["points"].values():
        assert row.keys() == {*HELD_OUT, *(f"policy-{name}" for name in contenders)}
        assert all(0 <= mean <= 1 for mean in row.values())
    assert {"0", "10", "random"} <= {each["player"] for each in seed["ratings"]}
