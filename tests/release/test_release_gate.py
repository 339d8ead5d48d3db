"""A release goes through the gate: what is refused there gets no traffic."""

from pathlib import Path

import pytest

from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError
from loomrl.experiments.release import ReleaseRequest, begin
from loomrl.release.gate.check import improvement_check
from loomrl.release.gate.proof import Bounded
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.releases import list_releases
from loomrl.store.verdicts import VERDICTS, VerdictOutcome
from tests.release.test_gate_control import GOOD, HACK, export


def asked(version: str) -> ReleaseRequest:
    return ReleaseRequest(
        version=version, endpoint="cart", plan=ReleasePlan(), suite="control_tiny", no_gate=None, who="ann", why=""
    )


def test_version_that_hacks_its_benchmark_gets_no_traffic_and_an_allowed_one_is_released_by_its_verdict(
    tmp_path: Path,
) -> None:
    stable = export(tmp_path / "stable", GOOD)
    new = export(tmp_path / "new", (0.1, 0.2, 1.0, 0.7))
    bad = export(tmp_path / "bad", GOOD, target=HACK)
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        before = set_endpoint(db, "cart", [Arm(name="stable", policy=stable)], at=1.0)
        with pytest.raises(ConfigError, match=r"refused: safety\.forbidden\. `loomrl gate show"):
            begin(asked(bad), db)
        assert show_endpoint(db, "cart") == before
        assert list_releases(db) == []
        begun = begin(asked(new), db)
        verdicts = VERDICTS.latest(db)
        assert [each.outcome for each in verdicts] == [VerdictOutcome.ALLOWED, VerdictOutcome.REFUSED]
        assert begun.verdict.reasons == (f"verdict {verdicts[0].id}",)
        assert [(arm.policy, arm.share) for arm in show_endpoint(db, "cart").arms] == [(stable, 1.0), (new, 0.0)]


@pytest.mark.parametrize(
    ("low", "least", "state"),
    [
        (0.01, None, "passed"),
        (-0.01, None, "passed"),
        (0.01, 0.0, "passed"),
        (0.0, 0.0, "failed"),
        (0.04, 0.05, "failed"),
    ],
)
def test_a_suite_may_ask_for_an_improvement_that_is_proved(low: float, least: float | None, state: str) -> None:
    check = improvement_check(Bounded(mean=0.06, low=low, high=0.1, count=100), least=least)
    assert check.state == state
    assert ("not proved better" in check.reason) == (state == "failed")
