"""The model of an update on hosts: what follows its law is said exactly, and what does not is not good enough."""

import pytest

from tests.lab import bench
from tests.lab.bench import Update


def updates(*, surprise: float = 1.0) -> list[Update]:
    made = []
    for hosts, megabytes in ((1, 4.0), (2, 11.0), (4, 16.0)):
        for mbit in (20, 100, 1000):
            seconds = 0.25 * max(1.0, hosts / 2) + 2.0 * 8 * megabytes / mbit
            made.append(Update(hosts=hosts, mbit=mbit, seconds=seconds, megabytes=megabytes))
    last = made[-1]
    made[-1] = Update(hosts=4, mbit=1000, seconds=last.seconds * surprise, megabytes=last.megabytes)
    return made


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CORES", 2)


def test_what_follows_the_law_is_said_exactly() -> None:
    said = bench._model(updates())
    assert said["model"] == pytest.approx({"own_s": 0.25, "wire_factor": 2.0}, abs=1e-3)
    assert said["left_out_worst"] == pytest.approx(0.0, abs=1e-6)
    assert said["is_good_enough"]


def test_a_configuration_that_does_not_is_found_where_it_is_left_out() -> None:
    said = bench._model(updates(surprise=2.0))
    assert said["left_out_errors"]["4 hosts, 1000 Mbit/s"] == pytest.approx(-0.5, abs=0.01)
    assert not said["is_good_enough"]
