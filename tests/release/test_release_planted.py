"""Planted versions that are bad although nobody says so: the default plan lets none have all of the traffic."""

import json

import pytest

from loomrl.experiments.bench.release_planted import PLANTED, as_good, measure, run
from loomrl.release.passage import ReleasePhase


@pytest.mark.parametrize("name", PLANTED)
def test_a_bad_version_never_gets_all_of_the_traffic_by_the_default_plan(name: str) -> None:
    version, outcomes = PLANTED[name]
    ends = [run(version, outcomes=outcomes, seed=seed) for seed in range(2)]
    assert not any(end.has_all for end in ends), ends


def test_a_version_that_is_as_good_gets_all_of_the_traffic() -> None:
    """Of four at a rate of 0.05, two go back with a chance of 0.014; the seeds are always the same."""
    ends = [run(as_good, outcomes=bool(seed % 2), seed=seed) for seed in range(4)]
    assert sum(end.phase is ReleasePhase.ROLLED_BACK for end in ends) <= 1
    assert all(end.has_all for end in ends if end.phase is not ReleasePhase.ROLLED_BACK)


@pytest.mark.slow
def test_of_a_hundred_releases_each_no_bad_version_passes_and_of_a_thousand_good_ones_few_come_back() -> None:
    figures = measure()
    print(json.dumps(figures, indent=1))
    found, good = figures["planted"], figures["harmless"]
    assert [each["at_all"] for each in found.values()] == [0] * len(found)
    assert all(each["back"] <= 0.05 * each["releases"] for each in good.values())
